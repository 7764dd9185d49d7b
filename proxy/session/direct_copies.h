// The copies of one client that went to the driver on their own streams: when the link hears that
// they have ended, and how their streams get out of the copy engine's queue.
//
// To mark the end of a small copy with an event costs a tenth of the copy. Nearly always a progress
// word follows that the GPU writes behind it anyway. So a copy is counted at once and marked later:
// by that word, or by an event when a copy on another stream comes, when much is counted, and when
// the session has nothing else to do.
//
// What a stream writes behind a copy goes through the hardware queue of the copy, where a busy lane
// keeps it waiting as it would another copy (docs/facts.md, Copies). A memset takes the stream to
// another queue.
//
// Session thread only. Nothing waits for the GPU.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube::proxy {

class ContextShares;
class CopyLink;
struct Driver;
struct StreamState;

class DirectCopies {
 public:
  // Both outlive it.
  DirectCopies(const Driver& driver, ContextShares& shares) : driver_(driver), shares_(shares) {}
  DirectCopies(const DirectCopies&) = delete;
  DirectCopies& operator=(const DirectCopies&) = delete;

  // The link counted the copy (CopyWay::kDirect), and it was issued; the stream's context is
  // current. mark_if_much() follows.
  void issued(CopyLink& link, StreamState& stream, uint64_t bytes);
  // What the GPU writes behind the copy is with the driver, too: an event costs little now, and has
  // that before it.
  void mark_if_much();
  // Whether copies are counted whose end nothing marks yet, and marks it. On a stream that is being
  // captured by now they count as ended: an event would become the capture's, and a look at it ends
  // that.
  bool unmarked() const { return link_ != nullptr; }
  void mark();
  // The GPU is about to write a word on the stream: out of the copy's queue if a lane is busy
  // there.
  static void make_way(StreamState& stream);
  // It writes `value` to a word of `session` behind the stream's work so far; the word stays until
  // CopyEngine::forget(session). Not while the stream captures: then nobody writes it. It marks
  // what is unmarked, and counts by itself behind a copy that an event marked: that ends with the
  // copy, and a lane that became busy meanwhile would keep the word waiting.
  void word_follows(StreamState& stream, uint64_t* word, uint64_t value, uint64_t session);
  // The stream is about to go away.
  void forget(const StreamState& stream) {
    if (stream_ == &stream) mark();
  }

 private:
  const Driver& driver_;
  ContextShares& shares_;
  CopyLink* link_ = nullptr;  // of the unmarked ones, all of one stream
  StreamState* stream_ = nullptr;
  uint64_t bytes_ = 0;
  uint32_t copies_ = 0;
};

}  // namespace tube::proxy

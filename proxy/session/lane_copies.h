// The copies of one client that go through lanes (proxy/copy/copy_link.h): what is held for each,
// and what becomes of it once its last chunk is submitted.
//
// From acceptance on the copy's stream is held (parked_records.h): later records that name it wait.
// When the lane has the last chunk, the stream is told to wait for the event behind it and let go.
// That is work under way, which ends: no wait of a program, so the context gate is not told.
// Session thread only, but for the nudge.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/copy/copy_link.h"
#include "proxy/session/copy_request.h"
#include "proxy/session/parked_records.h"

namespace tube::proxy {

class ContextShares;
struct Driver;

class LaneCopies {
 public:
  // `wake`: makes a session that sleeps look at nudged(). Any thread.
  LaneCopies(const Driver& driver, ContextShares& shares, ParkedRecords& parked,
             std::function<void()> wake)
      : driver_(driver), shares_(shares), parked_(parked), wake_(std::move(wake)) {}
  LaneCopies(const LaneCopies&) = delete;
  LaneCopies& operator=(const LaneCopies&) = delete;

  // What else stands behind the copy once its stream waits for it, and what to do when it failed.
  struct Ends {
    // The stream waits for the copy; behind its end, the link's event, unless it has ended.
    std::function<void(StreamState&, CUevent end)> waits;
    std::function<void(CUresult)> failed;  // after its record was answered
  };
  // Puts the copy behind its stream's work so far, or, `beside` that, behind nothing. The link's
  // context is current.
  CUresult add(CopyLink& link, LaneCopy copy, StreamState& stream, bool beside,
               const ParkKeys& keys, Ends ends);
  // The newest copy is taken back as if it had not been added: nobody would send it.
  void take_back_last();

  // There is something else to settle. Any thread.
  void nudge() {
    nudged_.store(true, std::memory_order_release);
    wake_();
  }
  // Something was submitted since settle(), or there was a nudge.
  const std::atomic<bool>& nudged() const { return nudged_; }
  bool any() const { return !going_.empty(); }
  // Lets the streams of submitted copies go. True when there was one.
  bool settle();
  // The client is gone: nothing is in flight any more when this returns.
  void take_all_back();

 private:
  struct Going {
    CopyLink* link;
    std::shared_ptr<LaneJob> job;
    StreamState* stream;
    ParkKeys keys;
    Ends ends;
  };
  void let_go(Going& going);

  const Driver& driver_;
  ContextShares& shares_;
  ParkedRecords& parked_;
  const std::function<void()> wake_;
  std::atomic<bool> nudged_{false};
  std::vector<Going> going_;
};

}  // namespace tube::proxy

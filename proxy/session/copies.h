// The one place through which every copy of a client passes, and what copies have in common:
// staging chunks, counting, and the order of uploads whose calls have returned.
//
// A handler checks what the client said, asks Session::stream_op and hands a CopyRequest over;
// issue() makes the driver call on the client's own stream at once, or puts the copy into the lane
// of its link (proxy/copy/copy_link.h), and the stream is held until the lane has sent it. Copies
// that a graph begins or ends with come by here at each launch (calls/graph_lift.h); those in its
// middle stay the driver's.
//
// Session thread only, but for count(). Nothing but settle_uploads() waits for the GPU.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "policies/link_share.h"
#include "proxy/copy/far_copies.h"
#include "proxy/copy/inference_timer.h"
#include "proxy/launch/asked_word.h"
#include "proxy/session/context_shares.h"
#include "proxy/session/copy_counts.h"
#include "proxy/session/copy_request.h"
#include "proxy/session/direct_copies.h"
#include "proxy/session/more_chunks.h"
#include "proxy/session/stream_state.h"
#include "sharedmem/abi.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

class ContextShares;
class CopyEngine;
class CopyLink;
class Gpus;
class LaneCopies;
struct Driver;
struct Stats;

class Copies {
 public:
  // All outlive it. `segment` holds the chunks.
  Copies(const Driver& driver, Gpus& gpus, ContextShares& shares, shared::Segment& segment,
         Stats& stats)
      : driver_(driver),
        gpus_(gpus),
        shares_(shares),
        segment_(segment),
        stats_(stats),
        more_chunks_(driver, gpus, segment),
        direct_(driver, shares),
        far_(driver, gpus, shares.placement()) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  // The segment is there: its address as the GPU sees it, and whether it has all its chunks.
  void open(CUdeviceptr registered, bool more_chunks) {
    registered_ = registered;
    if (more_chunks) more_chunks_.there();
  }

  // What to do when a copy fails in its lane, long after its record was executed.
  using Failed = std::function<void(CUresult)>;
  // From here on copies may go through lanes; `engine` nullptr: none do. `needs`: what the client
  // said of itself. `failed` makes it for the record in hand.
  void use_lanes(CopyEngine* engine, LaneCopies* lanes, uint64_t session,
                 const policies::FunctionNeeds& needs, std::function<Failed()> failed);

  // The session is awake and waits for copies in lanes (CopyEngine::stand_in).
  void stand_in();

  // Between addresses in these ranges.
  static CopyKind kind_of(const Range& dst, const Range& src);
  // Issues the copy and its completion, in the context of the request's stream, or has both in a
  // lane. The driver's code; after an error a chunk of the completion has not been handed on.
  // `*held`: it waits in a lane, and its stream is held.
  CUresult issue(const CopyRequest& request, bool* held = nullptr);
  // Copies of a graph's instance that are not done by it have so many bytes (calls/graph_lift.h);
  // 0: there are none.
  uint64_t least_lifted() const;
  // Copies of the kind that were issued, whatever the driver said. Any thread.
  uint64_t count(CopyKind kind) const { return counter(kind).load(std::memory_order_relaxed); }
  // Those between host and GPU, by the way they went. Any thread.
  const CopyCounts& ways() const { return ways_; }

  // How many chunks there are: all once the client asked for them.
  uint32_t chunks() const {
    return more_chunks_.are_there() ? abi::kChunkCount : abi::kFirstChunks;
  }
  MoreChunks& more_chunks() { return more_chunks_; }
  FarCopies& far() { return far_; }
  std::byte* chunk_data(uint32_t chunk) const { return segment_.chunk(chunk); }

  // Whether uploads came since the stream waited for them last.
  bool owes_wait(const StreamState& stream) const { return stream.uploads_seen != uploads_; }
  // Work is about to go to a stream that owes a wait: puts it in front.
  CUresult wait_for_uploads(StreamState& stream);
  // A record that names no stream is about to take memory away, or to show it to others: waits for
  // the GPU until the uploads whose calls have returned are over. They have nothing of the client's
  // but uploads before them, so this waits for no work that waits for it. An error that they ended
  // with comes back with the next call to the driver.
  void settle_uploads();
  // The stream goes away.
  void forget(const StreamState& stream) {
    if (upload_stream_ == &stream) upload_stream_ = nullptr;
    direct_.forget(stream);
  }

  // Behind its work so far the stream writes a progress word of the segment.
  CUresult write_word(StreamState& stream, uint32_t word, uint64_t value);
  // The last one that it writes.
  const AskedWord& asked() const { return asked_; }
  // The session looks for something to do: whether copies wait to be marked, and marks them.
  bool unmarked() const { return direct_.unmarked(); }
  void mark() { direct_.mark(); }

 private:
  std::atomic<uint64_t>& counter(CopyKind kind) { return counts_[static_cast<uint32_t>(kind)]; }
  const std::atomic<uint64_t>& counter(CopyKind kind) const {
    return counts_[static_cast<uint32_t>(kind)];
  }
  CUresult complete(const CopyRequest& request);
  CUresult copy(const CopyRequest& request);
  CUresult copy_on_host(const CopyRequest& request);
  CUresult copy_here(const CopyRequest& request);
  CUresult copy_peer(const CopyRequest& request, uint32_t to, uint32_t from);
  bool readable(const CopyLink& link, const CopyRequest& request) const;
  CUresult copy_taken(const CopyRequest& request);
  CUresult move(const CopyRequest& request, bool* in_lane);
  CopyLink* link_of(const CopyRequest& request, bool to_gpu, policies::CopyReason* why);
  CUresult send_by_lane(CopyLink& link, const CopyRequest& request, bool* in_lane);
  CUresult copy_region(const CopyRequest& request);
  CUresult copy_region(const CopyRequest& request, uint32_t to, uint32_t from);
  void uploaded(StreamState& stream);

  const Driver& driver_;
  Gpus& gpus_;
  ContextShares& shares_;
  shared::Segment& segment_;
  Stats& stats_;
  CUdeviceptr registered_ = 0;  // of the segment's registered part
  MoreChunks more_chunks_;
  CopyEngine* engine_ = nullptr;
  LaneCopies* lanes_ = nullptr;
  uint64_t session_ = 0;
  CopyCounts ways_;
  std::vector<std::byte> taken_;           // bytes on their way into the driver
  std::unique_ptr<InferenceTimer> timer_;  // of a function whose inference time must be learnt
  DirectCopies direct_;
  FarCopies far_;
  AskedWord asked_;
  std::function<Failed()> failed_;
  uint64_t uploads_ = 0;          // on legacy streams, and which of those had the last one
  uint64_t uploads_settled_ = 0;  // the last one that is known to be over
  StreamState* upload_stream_ = nullptr;
  std::array<std::atomic<uint64_t>, static_cast<uint32_t>(CopyKind::kCount)> counts_{};
};

}  // namespace tube::proxy

// One copy between the host and a GPU that goes over several links at once (wide_copies.h).
//
// Each path pulls its next piece when it has room (policies/paths/pieces.h). A path over a
// neighbour that fails, or whose link is wanted by its owners, hands its pieces back, and the
// others carry them; while owners' copies move, some paths stand still, for a bounded time. What
// fails on the copy's own link is the copy's error. The copy is over when no byte of it moves any
// more, on whichever path.
//
// The pacing thread only, but for cancel(). Nothing waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/cuda_api.h"
#include "policies/paths/multipath.h"
#include "policies/paths/pieces.h"
#include "proxy/copy/copy_path.h"

namespace tube::proxy {

class WideCopy {
 public:
  // `tools` outlives it. `hurry`: little is under way at any moment, because a neighbour's small
  // copy may come.
  WideCopy(PathTools& tools, const policies::HostPlan& plan, std::shared_ptr<LaneJob> job,
           bool hurry);
  WideCopy(const WideCopy&) = delete;
  WideCopy& operator=(const WideCopy&) = delete;

  enum class State : uint8_t { kWaits, kBusy, kOver };
  // Whether a neighbour's link may (still) help. kLater: a small copy of its own goes first, and
  // beside that no more than plan().beside links of ours. kFilled: by a large one, for now.
  enum class Lends : uint8_t { kNo, kLater, kFilled, kYes };
  using LendsOf = std::function<Lends(uint32_t gpu)>;
  // What a copy of its queue that goes before it still has to do. While that hands out pieces this
  // one sends none; while its last ones move, this one's time is not its own.
  enum class Ahead : uint8_t { kNothing, kLastPieces, kPieces };
  // One look: takes note of what has arrived and sends what may go. kWaits: for the client's own
  // stream.
  State turn(const LendsOf& lends, Ahead ahead);
  // It has begun and has pieces that wait: its function's later copies over the same link stand
  // behind it.
  bool has_more() const;
  bool same_queue(const WideCopy& other) const;
  // The client is gone. Any thread.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  const std::shared_ptr<LaneJob>& job() const { return job_; }
  const policies::HostPlan& plan() const { return plan_; }
  // Once it is over.
  CUresult error() const { return error_; }
  // From when it could begin until its last byte; 0: it did not go as planned, or behind another
  // one.
  uint64_t took_ns() const { return took_ns_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t relayed_bytes() const;
  uint32_t failed_paths() const { return failed_paths_; }
  uint32_t taken_paths() const { return taken_paths_; }
  bool held() const { return held_; }  // it stood still on some path

 private:
  bool begin();
  void open_paths();
  void note(CopyPath& path, const CopyPath::End& end);
  void look_at_lenders(const LendsOf& lends);
  void feed();
  void feed(CopyPath& path);
  void fail(CopyPath& path, const policies::Pieces::Piece& piece, CUresult error);
  void close(CopyPath& path);
  void stop();
  void compare_rates();
  bool idle() const;

  PathTools& tools_;
  const policies::HostPlan plan_;
  const std::shared_ptr<LaneJob> job_;
  const uint64_t bytes_;
  const uint32_t in_flight_;
  CopyPath::Copy copy_;
  policies::Pieces pieces_;
  std::vector<std::unique_ptr<CopyPath>> paths_;  // the copy's own link first
  std::atomic<bool> cancelled_{false};
  bool began_ = false, stopped_ = false, held_ = false;
  bool first_ = true;  // nothing was ahead of it
  uint64_t began_ns_ = 0, took_ns_ = 0;
  CUresult error_ = CUDA_SUCCESS;
  uint32_t failed_paths_ = 0, taken_paths_ = 0;
};

}  // namespace tube::proxy

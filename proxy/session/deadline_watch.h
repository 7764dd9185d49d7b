// Whether one client's steps end within its SLO, and the part of the GPU that it holds for that
// reason (policies/auto_slice.h).
//
// A step begins when the session wakes for a record with nothing outstanding (launch/step_times.h).
// When the SLO is over the session looks once whether the GPU has written the word that the program
// asked for last: that is all it costs, for functions with an SLO only. A change of parts is made
// here, on the session's thread: where the split has yet to be made that waits for a quiet moment
// and, once, for all that runs on the GPU.
//
// Session thread only, but for the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "policies/auto_slice.h"

namespace tube::proxy {

class AskedWord;
class ContextShares;
class GpuSlices;
class LaunchTurns;

class DeadlineWatch {
 public:
  // Both outlive it.
  DeadlineWatch(ContextShares& shares, const AskedWord& word) : shares_(shares), word_(word) {}

  struct Client {
    uint64_t session = 0;
    uint64_t slo_ns = 0;    // 0: nothing is watched
    bool may_hold = false;  // a part by itself: it asked for none
    uint64_t keep_ns = 0;   // how long without a reason; 0: there are no such parts
  };
  // nullptr: there are none.
  void use(GpuSlices* slices, LaunchTurns* turns, const Client& client);
  bool on() const { return client_.slo_ns != 0; }

  // A step began: the last one has ended.
  void began(uint64_t now_ns);
  // `kept_back`: records of the client wait in the session. To be called when wants_look().
  void look(uint64_t now_ns, bool kept_back);
  bool wants_look(uint64_t now_ns) const { return on() && now_ns >= look_ns_; }
  // How long the session may sleep; 0: as long as it likes.
  uint64_t sleeps_ns(uint64_t now_ns) const {
    return !on() || look_ns_ == UINT64_MAX ? 0 : look_ns_ > now_ns ? look_ns_ - now_ns : 1;
  }

  // Any thread.
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }

 private:
  void ended(bool missed, uint64_t now_ns);
  void apply();
  void plan(uint64_t now_ns);

  ContextShares& shares_;
  const AskedWord& word_;
  GpuSlices* slices_ = nullptr;
  LaunchTurns* turns_ = nullptr;
  Client client_;
  std::optional<policies::AutoSlice> policy_;
  uint32_t gpu_ = 0;  // of the part
  std::optional<uint32_t> applied_;
  uint64_t began_ns_ = 0;
  uint64_t due_ns_ = 0;  // of the step in progress; 0: there is none, or it has been looked at
  uint64_t look_ns_ = UINT64_MAX;
  std::atomic<uint64_t> steps_{0}, missed_{0};
};

}  // namespace tube::proxy

// How long a session's thread rests when its function has used more than its share of a core.
//
// Natively the driver's work for a program is done on the program's own cores, so a control group
// that gives it a tenth of a core bounds that work too. Through Tube the records are executed by a
// thread of the proxy, outside of that group: a program writes records faster than they can be
// executed and so drives a whole core. The thread is therefore held to the program's own quota: it
// earns CPU time at that rate, may save up what a tenth of a second earns, and rests until its debt
// is earned.
//
// What nobody else needed is not held against a function: without others that want the cores the
// debt is forgotten. A function without a quota is never held, since its thread is one core at
// most, which it may have natively, too.
//
// Pure functions over plain values; times in nanoseconds. The clocks, and when to look, are in
// proxy/common/cpu_watch.h.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tube::policies {

inline constexpr uint32_t kWholeCore = 1000;  // shares are in thousandths of a core
inline constexpr uint64_t kSavedUpNs = 100'000'000;
inline constexpr uint64_t kLongestRestNs = 100'000'000;  // then it looks again

// Whether more threads want to run than there are cores: an awake function is two of them, its
// session's and its own. `alone`: no other function was at work lately.
constexpr bool others_want_cores(uint32_t cores, uint32_t awake, bool alone) {
  return !alone && uint64_t{2} * std::max(awake, 2u) > cores;
}

class CpuShare {
 public:
  struct Use {
    uint64_t now_ns = 0;
    uint64_t cpu_ns = 0;  // of the thread, since it began
    uint32_t share = kWholeCore;
    bool others_wait = false;
  };
  // How long the thread rests now; 0: it goes on. The first look only begins.
  uint64_t look(const Use& use) {
    const uint64_t passed_ns = begun_ ? use.now_ns - now_ns_ : 0;
    const uint64_t used_ns = begun_ ? use.cpu_ns - cpu_ns_ : 0;
    begun_ = true;
    now_ns_ = use.now_ns;
    cpu_ns_ = use.cpu_ns;
    if (use.share == 0 || use.share >= kWholeCore) return saved_ns_ = 0;
    saved_ns_ += static_cast<int64_t>(earned(passed_ns, use.share)) - static_cast<int64_t>(used_ns);
    saved_ns_ = std::min(saved_ns_, static_cast<int64_t>(earned(kSavedUpNs, use.share)));
    if (!use.others_wait) saved_ns_ = std::max(saved_ns_, int64_t{0});
    if (saved_ns_ >= 0) return 0;
    return std::min(static_cast<uint64_t>(-saved_ns_) * kWholeCore / use.share, kLongestRestNs);
  }

 private:
  static uint64_t earned(uint64_t ns, uint32_t share) {
    constexpr uint64_t kMostNs = 3'600'000'000'000;  // no overflow; more than can be saved up
    return std::min(ns, kMostNs) * share / kWholeCore;
  }

  bool begun_ = false;
  uint64_t now_ns_ = 0, cpu_ns_ = 0;
  int64_t saved_ns_ = 0;  // negative: a debt
};

}  // namespace tube::policies

// When a function's steps begin: a step is what its program sends from one wait for the GPU to the
// next one.
//
// The session tells when it woke for a record with nothing outstanding; from that comes when the
// next step is expected (policies/arrival_period.h), for which a GPU may rest between long launches
// (policies/launch_admission.h). One writer, its session; any thread may ask, and be wrong for a
// moment: then a long launch goes a little early or late.
#pragma once

#include <atomic>
#include <cstdint>

#include "policies/arrival_period.h"
#include "proxy/launch/asked_word.h"

namespace tube::proxy {

class StepTimes {
 public:
  // The word outlives it.
  explicit StepTimes(const AskedWord& word) : word_(word) {}

  // The session woke for a record. Whether a step began.
  bool woke(uint64_t now_ns) {
    const uint64_t asks = word_.asks();
    if (asks == asks_ || word_.outstanding()) return false;
    asks_ = asks;
    period_.began(now_ns);
    began_asks_.store(asks, std::memory_order_relaxed);
    began_ns_.store(now_ns, std::memory_order_release);
    period_ns_.store(period_.period_ns(), std::memory_order_relaxed);
    anchor_ns_.store(period_.anchor_ns(), std::memory_order_release);
    return true;
  }

  // Whether a step has begun that was expected, and its end is not asked for yet. It may have begun
  // since it was `now_ns`. Behind next(), which no longer expects it then.
  bool begins(uint64_t now_ns) const {
    return period_ns_.load(std::memory_order_relaxed) != 0 &&
           now_ns < began_ns_.load(std::memory_order_acquire) + kSubmitNs &&
           began_asks_.load(std::memory_order_relaxed) == word_.asks();
  }
  // When the next one should begin, and until when it is awaited. False: nobody knows.
  bool next(uint64_t now_ns, uint64_t* at_ns, uint64_t* until_ns) const {
    const uint64_t anchor_ns = anchor_ns_.load(std::memory_order_acquire);
    const uint64_t period_ns = period_ns_.load(std::memory_order_relaxed);
    if (period_ns == 0) return false;
    *at_ns = policies::ArrivalPeriod::next_ns(anchor_ns, period_ns, now_ns);
    *until_ns = *at_ns + policies::ArrivalPeriod::slack_ns(period_ns);
    return now_ns < anchor_ns + kForgetPeriods * period_ns;
  }

 private:
  static constexpr uint64_t kSubmitNs = 2'000'000;  // from its beginning to the question
  static constexpr uint64_t kForgetPeriods = 9;     // without a step: it does not go on

  const AskedWord& word_;
  uint64_t asks_ = 0;
  policies::ArrivalPeriod period_;
  std::atomic<uint64_t> anchor_ns_{0}, period_ns_{0};
  std::atomic<uint64_t> began_ns_{0}, began_asks_{0};
};

}  // namespace tube::proxy

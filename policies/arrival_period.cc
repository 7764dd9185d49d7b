#include "policies/arrival_period.h"

namespace tube::policies {

uint64_t ArrivalPeriod::periods_in(uint64_t distance_ns, uint64_t period_ns) {
  const uint64_t periods = (distance_ns + period_ns / 2) / period_ns;
  if (periods == 0 || periods > kMostMissed) return 0;
  const uint64_t exact_ns = periods * period_ns;
  const uint64_t off_ns = distance_ns > exact_ns ? distance_ns - exact_ns : exact_ns - distance_ns;
  return off_ns <= slack_ns(period_ns) ? periods : 0;
}

// A mean over all that fit is better than the shortest, which is short by chance.
void ArrivalPeriod::learn() {
  period_ns_ = 0;
  if (count_ < kKept) return;
  uint64_t shortest_ns = UINT64_MAX;
  for (const uint64_t candidate_ns : distances_) {
    if (candidate_ns >= shortest_ns) continue;
    uint64_t sum_ns = 0, periods = 0;
    size_t agree = 0;
    for (const uint64_t distance_ns : distances_) {
      const uint64_t in = periods_in(distance_ns, candidate_ns);
      if (in == 0) continue;
      ++agree;
      periods += in;
      sum_ns += distance_ns;
    }
    if (agree < kAgree) continue;
    shortest_ns = candidate_ns;
    period_ns_ = sum_ns / periods;
  }
}

void ArrivalPeriod::began(uint64_t now_ns) {
  if (now_ns - last_ns_ < kLeastNs) return;
  const uint64_t distance_ns = now_ns - last_ns_;
  last_ns_ = now_ns;
  if (distance_ns > kMostNs) {  // another life
    count_ = 0;
    period_ns_ = 0;
    anchor_ns_ = now_ns;
    return;
  }
  distances_[count_++ % kKept] = distance_ns;
  learn();
  // One that came late by itself does not move the others' marks.
  const bool fits = period_ns_ == 0 || periods_in(distance_ns, period_ns_) != 0 ||
                    next_ns(anchor_ns_, period_ns_, now_ns) <= now_ns;
  if (fits || now_ns - anchor_ns_ > kMostMissed * period_ns_) anchor_ns_ = now_ns;
}

}  // namespace tube::policies

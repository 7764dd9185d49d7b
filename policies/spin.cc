#include "policies/spin.h"

#include <algorithm>

namespace tube::policies {
namespace {

// The middle of a bucket stands for all its gaps.
uint64_t typical_gap_ns(uint32_t bucket) { return gap_bucket_end_ns(bucket) / 4 * 3; }

// Of all remembered gaps together, when waits spin for `spin_ns`.
uint64_t cost_of(const Gaps& gaps, const SpinCost& cost, uint64_t spin_ns) {
  uint64_t sum = 0;
  for (uint32_t bucket = 0; bucket < kGapBuckets; ++bucket) {
    const uint64_t gap = typical_gap_ns(bucket);
    const bool late = gap_bucket_end_ns(bucket) > spin_ns;
    uint64_t one = (late ? spin_ns : gap) / cost.burn_part;
    if (late) one += cost.late_ns + (cost.late_part != 0 ? gap / cost.late_part : 0);
    sum += one * gaps.count[bucket];
  }
  return sum;
}

}  // namespace

uint64_t best_spin(const Gaps& gaps, const SpinCost& cost) {
  if (cost.limit_ns == 0) return 0;
  const uint64_t least = std::min(kLeastSpinNs, cost.limit_ns);
  uint32_t seen = 0;
  for (uint32_t count : gaps.count) seen += count;
  if (seen == 0) return cost.limit_ns;  // nothing known: as long as allowed
  uint64_t best = least;
  uint64_t best_cost = cost_of(gaps, cost, least);
  for (uint32_t bucket = 0; bucket < kGapBuckets; ++bucket) {
    const uint64_t spin = gap_bucket_end_ns(bucket);
    if (spin <= least || spin > cost.limit_ns) continue;
    const uint64_t sum = cost_of(gaps, cost, spin);
    if (sum >= best_cost) continue;
    best = spin;
    best_cost = sum;
  }
  return best;
}

}  // namespace tube::policies

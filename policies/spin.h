// How long a wait spins before it sleeps: decided from how long such waits took.
//
// A waiter counts its gaps (how long each wait lasted) in buckets. Each bucket is twice as long as
// the one before, and old gaps fade. best_spin() picks the bucket's end up to which spinning costs
// least in the mean. A wait that ends while spinning has burnt its length. A wait that outlasts the
// spin has burnt the whole spin, and comes late by what waking costs. This tells gaps apart that
// fall into two groups (within a step, between steps): a mean would fit neither.
//
// The limit says what a burnt nanosecond counts: where a core is free the limit is long and burning
// is cheap. spin_share() says how much of its limit a waiter may use when there are more awake
// threads than cores.
//
// Pure functions over plain values; the waiters' atomics and clocks are in sharedmem/wait.h.
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint32_t kGapBuckets =
    20;  // the first ends at 1 us, the last but one at about 0.26 s
inline constexpr uint32_t kGapsRemembered = 64;  // halved when there are more

struct Gaps {
  uint32_t count[kGapBuckets] = {};
};

struct SpinCost {
  uint64_t limit_ns = 0;  // never longer
  uint64_t late_ns = 0;   // what a sleeper comes late, at least
  uint32_t late_part =
      0;  // and 1/late_part of the gap, where a wait polls with growing naps; 0: it does not
  uint32_t burn_part = 4;  // a nanosecond of spinning counts as 1/burn_part of one of lateness
};

constexpr uint32_t gap_bucket(uint64_t gap_ns) {
  uint32_t bucket = 0;
  for (uint64_t end = 1024; gap_ns > end && bucket < kGapBuckets - 1; end *= 2) ++bucket;
  return bucket;
}
constexpr uint64_t gap_bucket_end_ns(uint32_t bucket) { return uint64_t{1024} << bucket; }

// 0 when the limit is; else at least kLeastSpinNs (or the limit), so that gaps that become short
// again are seen to be.
inline constexpr uint64_t kLeastSpinNs = 4'000;
uint64_t best_spin(const Gaps& gaps, const SpinCost& cost);

// The cost of a wait that a futex wakes. A spin of the whole limit costs as much as being woken
// late. So gaps of one length are waited out up to the limit and slept through beyond it.
constexpr SpinCost woken_cost(uint64_t limit_ns, uint64_t late_ns) {
  return {limit_ns, late_ns, 0, static_cast<uint32_t>(limit_ns > late_ns ? limit_ns / late_ns : 1)};
}

// Numerator of kWholeShare parts of the limit: all of it while each awake pair (a function and its
// session) can have two cores, a quarter while there are not more than four times as many, then
// nothing.
inline constexpr uint32_t kWholeShare = 4;
constexpr uint32_t spin_share(uint32_t cores, uint32_t awake_pairs) {
  if (uint64_t{2} * awake_pairs <= cores) return kWholeShare;
  return uint64_t{2} * awake_pairs <= uint64_t{4} * cores ? 1 : 0;
}
// The default limit, in microseconds. Both shares of it reach the end of a
// bucket: 131 and 33 us.
inline constexpr uint32_t kDefaultSpinUs = 132;
// What a function gets that must answer within a time (`--slo-ms`), while it can have the cores:
// its waits may be spun through, and so may its pauses. Its small requests are otherwise mostly
// waking: on an H200 a copy of 51 KiB every 5 ms takes 71 us, and 20 us without (bench/isolate).
inline constexpr uint32_t kUrgentSpinUs = 20'000;
constexpr uint32_t spin_limit_us(uint32_t whole_us, uint32_t share, bool urgent) {
  return urgent && share == kWholeShare && whole_us != 0 && whole_us < kUrgentSpinUs
             ? kUrgentSpinUs
             : whole_us * share / kWholeShare;
}
// How much longer a wait for what the GPU writes may spin, and how long at most: natively a
// synchronise spins all the way.
inline constexpr uint64_t kGpuSpins = 128, kLongestGpuSpinNs = 20'000'000;
// The same for a helper thread that waits until the GPU gets to a host function. Natively such a
// thread sleeps, and the program with it: only short waits are worth its core.
inline constexpr uint64_t kCallbackSpins = 8;
constexpr uint64_t gpu_spin_limit_ns(uint32_t spin_us, uint64_t spins = kGpuSpins) {
  const uint64_t limit_ns = uint64_t{spin_us} * 1000 * spins;
  return limit_ns < kLongestGpuSpinNs ? limit_ns : kLongestGpuSpinNs;
}
// With fewer cores the default is not to spin: other threads need the core that a spin takes.
inline constexpr uint32_t kCoresToSpin = 8;

}  // namespace tube::policies

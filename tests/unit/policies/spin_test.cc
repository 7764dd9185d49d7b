// How long to spin: what pays for gaps of one kind, of two kinds, and when cores are scarce.
#include "policies/spin.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

constexpr uint64_t kWholeNs = kDefaultSpinUs * 1000;
constexpr SpinCost kFutex = woken_cost(kWholeNs, 30'000);
constexpr SpinCost kPolled{10'000'000, 10'000, 32, 64};

Gaps gaps_of(std::initializer_list<std::pair<uint64_t, uint32_t>> list) {
  Gaps gaps;
  for (const auto& [gap_ns, count] : list) gaps.count[gap_bucket(gap_ns)] += count;
  return gaps;
}

TEST(GapBucket, GrowsByTwoAndHoldsEverything) {
  EXPECT_EQ(gap_bucket(0), 0u);
  EXPECT_EQ(gap_bucket(1024), 0u);
  EXPECT_EQ(gap_bucket(1025), 1u);
  EXPECT_EQ(gap_bucket(~uint64_t{0}), kGapBuckets - 1);
  for (uint32_t bucket = 0; bucket + 1 < kGapBuckets; ++bucket)
    EXPECT_EQ(gap_bucket(gap_bucket_end_ns(bucket)), bucket);
}

TEST(BestSpin, UsesTheLimitWhileNothingIsKnownAndNothingWithoutOne) {
  EXPECT_EQ(best_spin({}, kFutex), kFutex.limit_ns);
  EXPECT_EQ(best_spin({}, SpinCost{}), 0u);
  EXPECT_EQ(best_spin(gaps_of({{2000, 10}}), SpinCost{}), 0u);
}

TEST(BestSpin, CoversShortGapsAndLeavesLongOnes) {
  const uint64_t covering = best_spin(gaps_of({{20'000, 20}}), kFutex);
  EXPECT_GE(covering, 20'000u);
  EXPECT_LE(covering, 40'000u);
  EXPECT_EQ(best_spin(gaps_of({{5'000'000, 20}}), kFutex), kLeastSpinNs);
}

// Launches within a step, and the pause until the next one: a mean of both would spin for neither
// or for ever.
TEST(BestSpin, TellsTwoKindsOfGapsApart) {
  const uint64_t spin = best_spin(gaps_of({{7'000, 40}, {8'000'000, 20}}), kFutex);
  EXPECT_GE(spin, 7'000u);
  EXPECT_LE(spin, 9'000u);
}

TEST(BestSpin, OneLongWaitDoesNotOutweighManyShortOnes) {
  EXPECT_GE(best_spin(gaps_of({{20'000, 50}, {~uint64_t{0}, 1}}), kFutex), 20'000u);
}

// A stream's progress: as long as a native synchronise would spin and napping would be late; not
// for what takes a blink.
TEST(BestSpin, WaitsOutAStepOnTheGpuButNotASecond) {
  EXPECT_GE(best_spin(gaps_of({{3'600'000, 30}}), kPolled), 3'600'000u);
  EXPECT_LE(best_spin(gaps_of({{150'000'000, 30}}), kPolled), 100'000u);
}

// A launch every 60 to 200 us, as of a model in PyTorch on a slow host: slept through with the
// shorter limit, waited out with the longer.
TEST(BestSpin, ALongerLimitWaitsOutLongerGaps) {
  const Gaps gaps = gaps_of({{60'000, 30}, {200'000, 30}});
  EXPECT_LT(best_spin(gaps, woken_cost(kWholeNs, 30'000)), 200'000u);
  EXPECT_GE(best_spin(gaps, woken_cost(4 * kWholeNs, 30'000)), 200'000u);
  EXPECT_GE(best_spin(gaps_of({{120'000, 30}}), woken_cost(kWholeNs, 30'000)), 120'000u);
  EXPECT_EQ(best_spin(gaps_of({{200'000, 30}}), woken_cost(kWholeNs, 30'000)), kLeastSpinNs);
}

// As the session computes it, in whole microseconds: gaps of one length are waited out to the end
// of a bucket with every share.
TEST(SpinShare, OfTheDefaultReachesTheEndOfABucket) {
  for (const auto& [pairs, gap_ns] : {std::pair<uint32_t, uint64_t>{8, 131'000}, {32, 32'000}}) {
    const uint64_t limit_us = kDefaultSpinUs * spin_share(16, pairs) / kWholeShare;
    EXPECT_GE(best_spin(gaps_of({{gap_ns, 30}}), woken_cost(limit_us * 1000, 30'000)), gap_ns)
        << pairs;
    EXPECT_GE(best_spin(gaps_of({{32 * gap_ns, 30}}),
                        {gpu_spin_limit_ns(static_cast<uint32_t>(limit_us)), 10'000, 32, 64}),
              32 * gap_ns)
        << pairs;
  }
}

// Pauses of some milliseconds are waited out for a function that must answer in time, while there
// are cores; where nobody spins, it does not either.
TEST(SpinShare, OfAnUrgentFunctionCoversItsPauses) {
  EXPECT_EQ(spin_limit_us(kDefaultSpinUs, kWholeShare, false), kDefaultSpinUs);
  EXPECT_EQ(spin_limit_us(kDefaultSpinUs, 1, true), kDefaultSpinUs / kWholeShare);
  EXPECT_EQ(spin_limit_us(kDefaultSpinUs, 0, true), 0u);
  EXPECT_EQ(spin_limit_us(0, kWholeShare, true), 0u);
  EXPECT_EQ(spin_limit_us(50'000, kWholeShare, true), 50'000u);
  const uint64_t urgent_us = spin_limit_us(kDefaultSpinUs, kWholeShare, true);
  const Gaps pauses = gaps_of({{5'000'000, 30}});
  EXPECT_GE(best_spin(pauses, woken_cost(urgent_us * 1000, 30'000)), 5'000'000u);
  EXPECT_EQ(best_spin(pauses, woken_cost(kDefaultSpinUs * 1000, 30'000)), kLeastSpinNs);
}

TEST(WokenCost, SpinningTheWholeLimitCostsWhatComingLateDoes) {
  for (uint64_t limit : {kWholeNs / 2, kWholeNs, 4 * kWholeNs}) {
    const SpinCost cost = woken_cost(limit, 30'000);
    EXPECT_NEAR(static_cast<double>(cost.limit_ns) / cost.burn_part, 30'000, 4'000) << limit;
  }
  EXPECT_EQ(woken_cost(10'000, 30'000).burn_part, 1u);
}

TEST(BestSpin, NeverExceedsItsLimit) {
  for (uint64_t limit : {1'000, 10'000, 100'000}) {
    for (uint64_t gap : {500, 5'000, 50'000, 500'000}) {
      const SpinCost cost = woken_cost(limit, 30'000);
      EXPECT_LE(best_spin(gaps_of({{gap, 9}}), cost), limit);
    }
  }
}

TEST(SpinShare, IsWholeWithACoreForEachAndNothingWhenCrowded) {
  EXPECT_EQ(spin_share(16, 1), kWholeShare);
  EXPECT_EQ(spin_share(16, 8), kWholeShare);
  EXPECT_EQ(spin_share(16, 9), 1u);
  EXPECT_EQ(spin_share(16, 32), 1u);
  EXPECT_EQ(spin_share(16, 48), 0u);
  EXPECT_EQ(spin_share(2, 1), kWholeShare);
  EXPECT_EQ(spin_share(1, 3), 0u);
}

}  // namespace
}  // namespace tube::policies

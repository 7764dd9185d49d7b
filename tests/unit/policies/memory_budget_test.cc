// What fits, and what a function is told, on plain values.
#include "policies/memory/memory_budget.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr MemoryBudget kFree{0, kNoMemoryLimit};
constexpr GpuMemory kGpu{70 * kGiB, 80 * kGiB};

TEST(MemoryBudget, WhatFitsIsWhatTheLimitLeaves) {
  constexpr MemoryBudget budget{3 * kGiB, 4 * kGiB};
  EXPECT_TRUE(budget.fits(0));
  EXPECT_TRUE(budget.fits(kGiB));
  EXPECT_FALSE(budget.fits(kGiB + 1));
  EXPECT_FALSE(budget.fits(UINT64_MAX)) << "no sum overflows";
  EXPECT_TRUE(kFree.fits(UINT64_MAX - 1));
}

TEST(MemoryBudget, ALimitBelowWhatIsHeldLeavesNothing) {
  constexpr MemoryBudget budget{3 * kGiB, 2 * kGiB};
  EXPECT_EQ(budget.room(), 0u);
  EXPECT_FALSE(budget.fits(1));
  EXPECT_TRUE(budget.fits(0));
}

TEST(MemoryBudget, AWishOnlyLowersWhatIsAllowed) {
  EXPECT_EQ(starting_memory_limit(kNoMemoryLimit, kNoMemoryLimit), kNoMemoryLimit);
  EXPECT_EQ(starting_memory_limit(4 * kGiB, kNoMemoryLimit), 4 * kGiB);
  EXPECT_EQ(starting_memory_limit(kNoMemoryLimit, 2 * kGiB), 2 * kGiB);
  EXPECT_EQ(starting_memory_limit(4 * kGiB, 2 * kGiB), 2 * kGiB);
  EXPECT_EQ(starting_memory_limit(kGiB, 2 * kGiB), kGiB);
}

TEST(MemoryBudget, WithoutLimitsAFunctionIsToldWhatTheDriverSays) {
  EXPECT_EQ(visible_memory({9 * kGiB}, {90 * kGiB}, kNoMemoryLimit, 0, kGpu), kGpu);
  // Nor does what it holds by our count change the driver's answer.
  EXPECT_EQ(visible_memory({79 * kGiB}, kFree, kNoMemoryLimit, 0, kGpu), kGpu);
}

TEST(MemoryBudget, FreeIsTheLeastOfWhatAllLeave) {
  const MemoryBudget function{kGiB, 4 * kGiB};
  EXPECT_EQ(visible_memory(function, kFree, 4 * kGiB, 0, kGpu), (GpuMemory{3 * kGiB, 4 * kGiB}));
  EXPECT_EQ(visible_memory(function, {18 * kGiB, 20 * kGiB}, 4 * kGiB, 0, kGpu),
            (GpuMemory{2 * kGiB, 4 * kGiB}));
  EXPECT_EQ(visible_memory(function, {18 * kGiB, 20 * kGiB}, 4 * kGiB, 0, {kGiB, 80 * kGiB}),
            (GpuMemory{kGiB, 4 * kGiB}));
  EXPECT_EQ(visible_memory({5}, {18 * kGiB, 20 * kGiB}, kNoMemoryLimit, 0, kGpu),
            (GpuMemory{2 * kGiB, 80 * kGiB}))
      << "the total is the function's own limit, or the GPU's";
}

TEST(MemoryBudget, ALimitAboveTheGpusMemoryShowsTheGpu) {
  EXPECT_EQ(visible_memory({0, 100 * kGiB}, kFree, 100 * kGiB, 0, kGpu), kGpu);
}

TEST(MemoryBudget, TheTotalStaysWhileTheLimitChanges) {
  const uint64_t started = 4 * kGiB;
  EXPECT_EQ(visible_memory({3 * kGiB, 2 * kGiB}, kFree, started, 0, kGpu), (GpuMemory{0, started}));
  EXPECT_EQ(visible_memory({kGiB, 2 * kGiB}, kFree, started, 0, kGpu), (GpuMemory{kGiB, started}));
  EXPECT_EQ(visible_memory({kGiB, 9 * kGiB}, kFree, started, 0, kGpu),
            (GpuMemory{3 * kGiB, started}));
  EXPECT_EQ(visible_memory({6 * kGiB, 9 * kGiB}, kFree, started, 0, kGpu), (GpuMemory{0, started}));
  EXPECT_EQ(visible_memory({kGiB}, kFree, started, 0, kGpu), (GpuMemory{3 * kGiB, started}));
  EXPECT_EQ(visible_memory({kGiB, 2 * kGiB}, kFree, kNoMemoryLimit, 0, kGpu),
            (GpuMemory{kGiB, 80 * kGiB}));
}

TEST(MemoryBudget, WhatIsKeptCountsAsFree) {
  constexpr MemoryBudget others{9 * kGiB};  // it holds at least what its function does
  EXPECT_EQ(visible_memory({4 * kGiB, 4 * kGiB}, others, 4 * kGiB, kGiB, kGpu).free_bytes, kGiB);
  EXPECT_EQ(visible_memory({4 * kGiB}, {9 * kGiB, 9 * kGiB}, kNoMemoryLimit, kGiB, kGpu).free_bytes,
            kGiB);
  EXPECT_EQ(visible_memory({4 * kGiB, 2 * kGiB}, others, 4 * kGiB, kGiB, kGpu).free_bytes, 0u)
      << "without it, still more than allowed";
  const GpuMemory with_kept{71 * kGiB, 80 * kGiB};
  EXPECT_EQ(visible_memory({9 * kGiB}, {90 * kGiB}, kNoMemoryLimit, kGiB, kGpu), with_kept)
      << "without limits, too";
  // Whoever says that it keeps more than it holds sees no more than its limit, or the GPU.
  EXPECT_EQ(visible_memory({kGiB, 4 * kGiB}, others, 4 * kGiB, UINT64_MAX, kGpu).free_bytes,
            4 * kGiB);
  EXPECT_EQ(
      visible_memory({kGiB, 4 * kGiB}, others, 4 * kGiB, UINT64_MAX, {kGiB, 80 * kGiB}).free_bytes,
      2 * kGiB);
}

// Whatever the numbers: free <= total, and taking what is free fits.
TEST(MemoryBudget, FreeNeverExceedsTotalAndAlwaysFits) {
  const uint64_t values[] = {0,         1,         kGiB,           2 * kGiB,
                             79 * kGiB, 80 * kGiB, UINT64_MAX - 1, UINT64_MAX};
  for (const uint64_t held : values) {
    for (const uint64_t limit : values) {
      for (const uint64_t workflow : values) {
        for (const uint64_t started : values) {
          const MemoryBudget function{held, limit}, all{held, workflow};
          const GpuMemory seen = visible_memory(function, all, started, 0, kGpu);
          EXPECT_LE(seen.free_bytes, seen.total_bytes);
          EXPECT_LE(seen.total_bytes, kGpu.total_bytes);
          if (!function.limited() && !all.limited()) continue;
          EXPECT_TRUE(function.fits(seen.free_bytes) && all.fits(seen.free_bytes));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tube::policies

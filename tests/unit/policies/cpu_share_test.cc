#include "policies/cpu_share.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr uint32_t kTenth = 100;

TEST(CpuShareTest, BelowItsShareAFunctionNeverRests) {
  CpuShare share;
  for (uint64_t ms = 0; ms < 1000; ms += 10)
    EXPECT_EQ(share.look({ms * kMs, ms * kMs / 10, kTenth, true}), 0u) << ms;
}

TEST(CpuShareTest, AFloodIsHeldToItsShare) {
  CpuShare share;
  uint64_t now = 5'000 * kMs, cpu = 0;
  const uint64_t begin = now;
  while (now - begin < 10'000 * kMs) {  // a millisecond of work between looks
    now += share.look({now, cpu, kTenth, true});
    now += kMs;
    cpu += kMs;
  }
  EXPECT_GT(cpu, 900 * kMs);
  EXPECT_LT(cpu, 1100 * kMs);
}

TEST(CpuShareTest, WhatWasSavedUpIsSpentWithoutARest) {
  CpuShare share;
  EXPECT_EQ(share.look({0, 0, kTenth, true}), 0u);
  EXPECT_EQ(share.look({10'000 * kMs, 10 * kMs, kTenth, true}), 0u);
  // A tenth of what 100 ms earn is there, however long it slept.
  EXPECT_EQ(share.look({10'000 * kMs, 20 * kMs, kTenth, true}), 0u);
  EXPECT_EQ(share.look({10'000 * kMs, 21 * kMs, kTenth, true}), 10 * kMs);
}

TEST(CpuShareTest, NoRestIsLongerThanOneLook) {
  CpuShare share;
  EXPECT_EQ(share.look({0, 0, 1, true}), 0u);
  EXPECT_EQ(share.look({kMs, 1'000 * kMs, 1, true}), kLongestRestNs);
}

TEST(CpuShareTest, WhatNobodyElseNeededIsForgotten) {
  CpuShare share;
  EXPECT_EQ(share.look({0, 0, kTenth, false}), 0u);
  EXPECT_EQ(share.look({1'000 * kMs, 1'000 * kMs, kTenth, false}), 0u);
  EXPECT_EQ(share.look({1'000 * kMs, 1'000 * kMs, kTenth, true}), 0u);
  EXPECT_NE(share.look({1'001 * kMs, 1'001 * kMs, kTenth, true}), 0u);
}

TEST(CpuShareTest, WithoutAQuotaNobodyRests) {
  CpuShare share;
  for (const uint32_t none : {0u, kWholeCore, 4 * kWholeCore}) {
    EXPECT_EQ(share.look({0, 0, none, true}), 0u);
    EXPECT_EQ(share.look({1, 1'000 * kMs, none, true}), 0u);
  }
}

TEST(CpuShareTest, CoresAreWantedWhenMoreThreadsThanCoresAreAwake) {
  EXPECT_FALSE(others_want_cores(1, 1, true));
  EXPECT_TRUE(others_want_cores(2, 1, false));  // another one was at work a moment ago
  EXPECT_FALSE(others_want_cores(16, 8, false));
  EXPECT_TRUE(others_want_cores(16, 9, false));
}

}  // namespace
}  // namespace tube::policies

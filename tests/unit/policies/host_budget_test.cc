// How much host memory a proxy may hold for its functions.
#include "policies/memory/host_budget.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

TEST(HostBudget, KeepsASixteenthFree) {
  EXPECT_EQ(default_host_budget(16 * kGiB).headroom_bytes, kGiB);
  EXPECT_EQ(default_host_budget(16 * kGiB).total_bytes, 15 * kGiB);
  EXPECT_EQ(default_host_budget(400 * kMiB).headroom_bytes, 32 * kMiB);
  EXPECT_EQ(default_host_budget(2048 * kGiB).headroom_bytes, 2 * kGiB);
  EXPECT_EQ(default_host_budget(10 * kMiB).total_bytes, 0u);
}

TEST(HostBudget, TheTotalIsOneOfTwoBounds) {
  const HostBudget budget{100, 10};
  EXPECT_EQ(admit_host_bytes(budget, 40, 60, UINT64_MAX), HostVerdict::kFits);
  EXPECT_EQ(admit_host_bytes(budget, 41, 60, UINT64_MAX), HostVerdict::kOverTotal);
  EXPECT_EQ(admit_host_bytes(budget, 1, 101, UINT64_MAX), HostVerdict::kOverTotal);
}

TEST(HostBudget, WhatTheMachineHasLeftIsTheOther) {
  const HostBudget budget{100, 10};
  EXPECT_EQ(admit_host_bytes(budget, 5, 0, 15), HostVerdict::kFits);
  EXPECT_EQ(admit_host_bytes(budget, 6, 0, 15), HostVerdict::kNoRoom);
  EXPECT_EQ(admit_host_bytes(budget, 0, 0, 9), HostVerdict::kNoRoom);
}

}  // namespace
}  // namespace tube::policies

// How much host memory is made before GPU memory has to move there.
#include "policies/memory/host_ahead.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

TEST(HostAhead, NothingIsMadeWhereNothingCanLeave) {
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 0, 0, 0}), 0u);
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 9 * kGiB, 9 * kGiB, 1}), 0u);
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 0, 0, 2}), 0u);
}

TEST(HostAhead, NothingIsMadeWhileOneMoreWouldFit) {
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 3 * kGiB, 2 * kGiB, 2}), 0u);
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 7 * kGiB, kGiB, 7}), 0u);
  EXPECT_EQ(host_bytes_ahead({12 * kGiB, 9 * kGiB, kGiB, 9}), 0u);
}

TEST(HostAhead, WhatLeavesForOneMore) {
  // Beyond three quarters, and one of 70% of which another one would want 40.
  EXPECT_EQ(host_bytes_ahead({12 * kGiB, 10 * kGiB, kGiB, 10}), kGiB);
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 7 * kGiB, 7 * kGiB, 2}), 4 * kGiB);
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 10 * kGiB, 5 * kGiB, 2}), 5 * kGiB);
}

TEST(HostAhead, WhatIsAwayAndTwoThatChangePlaces) {
  // Two of 70%: each may have to make room for all of the other.
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 14 * kGiB, 7 * kGiB, 2}), 14 * kGiB);
  // Twelve of 20%: 14 GiB are away, and two change places.
  EXPECT_EQ(host_bytes_ahead({10 * kGiB, 24 * kGiB, 2 * kGiB, 12}), 18 * kGiB);
}

TEST(HostAhead, NeverMoreThanFunctionsHold) {
  for (uint64_t capacity = 1; capacity <= 16; ++capacity)
    for (uint64_t held = 0; held <= 32; ++held)
      for (uint64_t largest = 0; largest <= held; ++largest) {
        const uint64_t bytes = host_bytes_ahead({capacity, held, largest, 3});
        EXPECT_LE(bytes, held);
        if (held > capacity) {
          EXPECT_GE(bytes, held - capacity);
        }
      }
  constexpr uint64_t kMuch = UINT64_MAX / 4;
  EXPECT_LE(host_bytes_ahead({kMuch, 2 * kMuch, 2 * kMuch, 2}), 2 * kMuch);
}

TEST(HostAhead, TheMachineKeepsTwiceTheHeadroom) {
  EXPECT_TRUE(host_has_ahead(3 * kGiB, kGiB, kGiB));
  EXPECT_FALSE(host_has_ahead(3 * kGiB - 1, kGiB, kGiB));
  EXPECT_FALSE(host_has_ahead(0, kGiB, 1));
  EXPECT_TRUE(host_has_ahead(UINT64_MAX, kGiB, kGiB));
}

}  // namespace
}  // namespace tube::policies

// How the addresses of a window are divided.
#include "policies/memory/address_windows.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

TEST(AddressWindows, TheFirstOneServesUntilItIsHalfFull) {
  EXPECT_TRUE(window_stays_first(0, 8 * kGiB));
  EXPECT_TRUE(window_stays_first(4 * kGiB, 8 * kGiB));
  EXPECT_FALSE(window_stays_first(4 * kGiB + 1, 8 * kGiB));
}

TEST(AddressWindows, AQuarterIsLeftToAllocations) {
  EXPECT_EQ(reservable_bytes(8 * kGiB), 6 * kGiB);
}

TEST(AddressWindows, OneFunctionReservesHalfAtMost) {
  EXPECT_TRUE(may_reserve(0, 4 * kGiB, 8 * kGiB));
  EXPECT_FALSE(may_reserve(1, 4 * kGiB, 8 * kGiB));
  EXPECT_FALSE(may_reserve(3 * kGiB, ~0ull, 8 * kGiB));
  EXPECT_FALSE(may_reserve(~0ull, 1, 8 * kGiB));
}

}  // namespace
}  // namespace tube::policies

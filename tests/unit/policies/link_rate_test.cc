// What is left of a link that others use.
#include "policies/link_rate.h"

#include <gtest/gtest.h>

#include <vector>

namespace tube::policies {
namespace {

uint64_t own(std::vector<uint64_t> others) { return own_link_rate(54'000, others); }

TEST(LinkRate, AloneItIsTheWholeLink) {
  EXPECT_EQ(own({}), 54'000u);
  EXPECT_EQ(own({0, 0}), 54'000u);
}

TEST(LinkRate, WhoMovesLittleLeavesTheRest) {
  EXPECT_EQ(own({4'000}), 50'000u);
  EXPECT_EQ(own({1'000, 3'000}), 50'000u);
}

TEST(LinkRate, WhoAlwaysCopiesGetsNoMoreThanAShare) {
  EXPECT_EQ(own({54'000}), 27'000u);
  EXPECT_EQ(own({54'000, 54'000}), 18'000u);
  EXPECT_EQ(own({54'000, 4'000}), 25'000u) << "two share what the third leaves";
}

}  // namespace
}  // namespace tube::policies

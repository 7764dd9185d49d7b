// Who holds which part of a GPU (policies/sm_slices.h).
#include "policies/sm_slices.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

using Sizes = std::vector<uint32_t>;

constexpr SmPart kSmall{0, false}, kRestOfSmall{0, true};

SmSlices h200() { return {132, sm_splits(132, 8)}; }

TEST(SmSlices, AGpuIsSplitInFewWays) {
  EXPECT_EQ(sm_splits(132, 8), (Sizes{16, 32, 64}));
  EXPECT_EQ(sm_splits(108, 4), (Sizes{12, 24, 52}));
  EXPECT_EQ(sm_splits(8, 2), (Sizes{2, 4}));
  EXPECT_EQ(sm_splits(16, 8), (Sizes{8}));
  EXPECT_EQ(sm_splits(8, 8), Sizes{});
  EXPECT_EQ(sm_splits(1, 1), Sizes{});
}

TEST(SmSlices, WithoutAHolderEverybodyHasTheWholeGpu) {
  SmSlices slices = h200();
  EXPECT_FALSE(slices.held());
  EXPECT_TRUE(slices.part_of(1).whole());
  EXPECT_EQ(slices.multiprocessors_of(slices.part_of(1)), 132u);
}

TEST(SmSlices, TheSmallestPartThatIsEnoughIsHeldAndTheRestIsTheOthers) {
  for (const auto& [percent, size] : std::vector<std::pair<uint32_t, uint32_t>>{{1, 16},
                                                                                {12, 16},
                                                                                {13, 32},
                                                                                {24, 32},
                                                                                {25, 64},
                                                                                {48, 64},
                                                                                {49, 68},
                                                                                {50, 68},
                                                                                {60, 100},
                                                                                {76, 116}}) {
    SmSlices slices = h200();
    slices.ask(7, percent);
    EXPECT_EQ(slices.multiprocessors_of(slices.part_of(7)), size) << percent;
    EXPECT_EQ(slices.multiprocessors_of(slices.part_of(8)), 132 - size) << percent;
  }
}

TEST(SmSlices, WhoWantsMoreThanAnyPartHoldsNone) {
  SmSlices slices = h200();
  slices.ask(7, 90);
  EXPECT_FALSE(slices.held());
  slices.ask(8, 10);
  EXPECT_EQ(slices.held()->function, 8u);
}

TEST(SmSlices, OneHoldsAtATimeAndTheNextWhenItLeaves) {
  SmSlices slices = h200();
  slices.ask(1, 12);
  slices.ask(2, 24);
  EXPECT_EQ(slices.part_of(1), kSmall);
  EXPECT_EQ(slices.part_of(2), kRestOfSmall);
  slices.forget(1);
  EXPECT_EQ(slices.held()->function, 2u);
  EXPECT_EQ(slices.multiprocessors_of(slices.part_of(2)), 32u);
  slices.forget(2);
  EXPECT_FALSE(slices.held());
}

TEST(SmSlices, WhoExchangesMemoryHoldsNothing) {
  SmSlices slices = h200();
  slices.ask(1, 12);
  slices.ask(2, 12);
  slices.exchanges(1);
  EXPECT_EQ(slices.held()->function, 2u);
  slices.exchanges(2);
  EXPECT_FALSE(slices.held());
  slices.exchanges(3);
  slices.ask(3, 12);
  EXPECT_FALSE(slices.held());
}

}  // namespace
}  // namespace tube::policies

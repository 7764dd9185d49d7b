// When a spinning thread offers its core: until that came dear, then not for longer and longer.
#include "policies/core_offers.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

constexpr uint64_t kRoundNs = 8'000, kSliceNs = 3'000'000;

TEST(CoreOffers, AreMadeWhileOnlyTheOtherSideTakesThem) {
  CoreOffers offers;
  for (uint64_t now = 0; now < 1000 * kRoundNs; now += kRoundNs) {
    EXPECT_TRUE(offers.due(now));
    offers.made(now + kRoundNs, kRoundNs);
  }
}

TEST(CoreOffers, PauseOnceSomebodyElseTookASlice) {
  CoreOffers offers;
  offers.made(kSliceNs, kSliceNs);
  EXPECT_FALSE(offers.due(kSliceNs));
  EXPECT_FALSE(offers.due(kSliceNs + kFirstOfferPauseNs - 1));
  EXPECT_TRUE(offers.due(kSliceNs + kFirstOfferPauseNs));
}

// A job that stays costs a slice ever more seldom: in an hour by less than 70 slices.
TEST(CoreOffers, PauseLongerEachTimeUpToALimit) {
  CoreOffers offers;
  uint64_t now = 0, before = 0, dear = 0;
  for (; now < 3600 * kFirstOfferPauseNs; now = offers.none_until_ns) {
    ASSERT_TRUE(offers.due(now));
    offers.made(now + kSliceNs, kSliceNs);
    EXPECT_EQ(offers.pause_ns,
              before == 0 ? kFirstOfferPauseNs : std::min(2 * before, kLongestOfferPauseNs));
    before = offers.pause_ns;
    ++dear;
  }
  EXPECT_LT(dear, 70u);
}

TEST(CoreOffers, BeginAnewAfterALongQuietTime) {
  CoreOffers offers;
  for (int i = 0; i < 3; ++i) offers.made(offers.none_until_ns + kSliceNs, kSliceNs);
  EXPECT_EQ(offers.pause_ns, 4 * kFirstOfferPauseNs);
  offers.made(offers.none_until_ns + 8 * offers.pause_ns, kSliceNs);
  EXPECT_EQ(offers.pause_ns, kFirstOfferPauseNs);
}

}  // namespace
}  // namespace tube::policies

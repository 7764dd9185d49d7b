// How much GPU memory is held ready, on plain values.
#include "policies/pool_size.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr uint64_t kSecond = 1'000'000'000;

TEST(PoolSize, TheBoundIsASmallPartOfTheGpu) {
  EXPECT_EQ(pool_budget(kDefaultPoolBytes, 141ull << 30).bytes, 2ull << 30);
  EXPECT_EQ(pool_budget(kDefaultPoolBytes, 1000 * kMiB).bytes, 50 * kMiB);
  EXPECT_EQ(pool_budget(0, 141ull << 30).bytes, 0u);
  const PoolBudget budget{10};
  EXPECT_TRUE(budget.fits(4, 6));
  EXPECT_FALSE(budget.fits(5, 6));
  EXPECT_FALSE(budget.fits(UINT64_MAX, UINT64_MAX));
  EXPECT_FALSE(PoolBudget{}.fits(0, 1));
}

TEST(PoolSize, TheFirstRequestOfASizeBringsNothing) {
  PoolDemand demand;
  demand.missed(0, 4 * kMiB, kSecond);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond), 0u);
  demand.missed(1, 4 * kMiB, kSecond);
  demand.missed(0, 6 * kMiB, kSecond);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond), 0u) << "another GPU, another size";
}

TEST(PoolSize, EachRequestInVainDoublesWhatIsAhead) {
  PoolDemand demand;
  const uint32_t expected[] = {0, 1, 2, 4, 8, 8, 8};
  for (const uint32_t ahead : expected) {
    demand.missed(0, 4 * kMiB, kSecond);
    EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond), ahead);
  }
  demand.found(0, 4 * kMiB, 2 * kSecond);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, 2 * kSecond), 8u);
  demand.forget();
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, 2 * kSecond), 0u);
}

TEST(PoolSize, NothingIsAheadOfWhoHasGoneQuiet) {
  PoolDemand demand;
  demand.missed(0, 4 * kMiB, kSecond);
  demand.missed(0, 4 * kMiB, kSecond);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond + kPoolQuietNs - 1), 1u);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond + kPoolQuietNs), 0u);
  demand.missed(0, 4 * kMiB, kSecond + 2 * kPoolQuietNs);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond + 2 * kPoolQuietNs), 0u) << "it begins anew";
}

TEST(PoolSize, TheSizeThatWasAskedForTheLongestAgoIsForgotten) {
  PoolDemand demand;
  for (uint64_t i = 1; i <= 17; ++i) {
    for (int twice = 0; twice < 2; ++twice) demand.missed(0, i * 2 * kMiB, i);
  }
  EXPECT_EQ(demand.ahead(0, 2 * kMiB, 17), 0u);
  for (uint64_t i = 2; i <= 17; ++i) EXPECT_EQ(demand.ahead(0, i * 2 * kMiB, 17), 1u);
}

}  // namespace
}  // namespace tube::policies

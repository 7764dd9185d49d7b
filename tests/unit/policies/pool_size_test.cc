// How much GPU memory is held ready, on plain values.
#include "policies/memory/pool_size.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

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

// The proxy's thread looks at the clock before it has the lock.
TEST(PoolSize, WhatCameAfterTheLookIsNotOld) {
  EXPECT_FALSE(pool_expired(kSecond + 1, kSecond));
  PoolDemand demand;
  demand.missed(0, 4 * kMiB, kSecond + 1);
  demand.missed(0, 4 * kMiB, kSecond + 1);
  demand.freed(0, 4 * kMiB);
  EXPECT_EQ(demand.ahead(0, 4 * kMiB, kSecond), 1u);
  EXPECT_EQ(demand.worth(0, 4 * kMiB, kSecond), 1u);
}

TEST(PoolSize, TheSizeThatWasAskedForTheLongestAgoIsForgotten) {
  PoolDemand demand;
  for (uint64_t i = 1; i <= 17; ++i) {
    for (int twice = 0; twice < 2; ++twice) demand.missed(0, i * 2 * kMiB, i);
  }
  EXPECT_EQ(demand.ahead(0, 2 * kMiB, 17), 0u);
  for (uint64_t i = 2; i <= 17; ++i) EXPECT_EQ(demand.ahead(0, i * 2 * kMiB, 17), 1u);
}

// Requests each `distance_ns`, each freed before the next.
PoolDemand steady(uint64_t bytes, uint64_t distance_ns, int count, uint64_t* now_ns) {
  PoolDemand demand;
  for (int i = 0; i < count; ++i, *now_ns += distance_ns) {
    demand.found(0, bytes, *now_ns);
    demand.freed(0, bytes);
  }
  return demand;
}

TEST(PoolDemandTest, ABlockIsWorthItsMemoryWhenItIsWantedBeforeItCouldBeRemade) {
  constexpr uint64_t kUs = 1000;
  for (const uint64_t bytes : {2 * kMiB, 1024 * kMiB}) {
    uint64_t now = kSecond;
    const PoolDemand often = steady(bytes, remake_ns(bytes), 50, &now);
    EXPECT_EQ(often.worth(0, bytes, now), 1u) << "one at a time is enough";
    EXPECT_EQ(often.worth(1, bytes, now), 0u);
    EXPECT_EQ(often.worth(0, bytes + 2 * kMiB, now), 0u);
    EXPECT_EQ(often.worth(0, bytes, now + kPoolQuietNs), 0u) << "its window is over";
    const PoolDemand seldom = steady(bytes, 10 * remake_ns(bytes), 50, &now);
    EXPECT_EQ(seldom.worth(0, bytes, now - 10 * remake_ns(bytes) + kUs), 0u);
  }
}

TEST(PoolDemandTest, WhatIsHeldNowIsNotReserved) {
  PoolDemand demand;
  uint64_t now = kSecond;
  for (int i = 0; i < 40; ++i, now += 1000) demand.found(0, 2 * kMiB, now);
  EXPECT_EQ(demand.worth(0, 2 * kMiB, now), 0u) << "so many were never held at once";
  for (int i = 0; i < 30; ++i) demand.freed(0, 2 * kMiB);
  EXPECT_GT(demand.worth(0, 2 * kMiB, now), 8u);
  demand.forget();
  EXPECT_GT(demand.worth(0, 2 * kMiB, now), 8u) << "what was learnt stays";
}

TEST(PoolDemandTest, TheFirstBlockOfASizeIsKept) {
  PoolDemand demand;
  demand.missed(0, 2 * kMiB, kSecond);
  demand.freed(0, 2 * kMiB);
  EXPECT_EQ(demand.worth(0, 2 * kMiB, 2 * kSecond), 1u);
}

TEST(PoolDemandTest, OldRequestsCountLess) {
  SizeProfile profile;
  for (int i = 0; i < 10'000; ++i) profile.add_held(20);
  EXPECT_EQ(profile.most_held(), 20u);
  for (int i = 0; i < 20'000; ++i) profile.add_held(2);
  EXPECT_EQ(profile.most_held(), 2u);
  profile.add_held(UINT32_MAX);
  profile.add_interval(UINT64_MAX);
  EXPECT_LE(profile.window_ns(), kPoolQuietNs);
}

TEST(PoolDemandTest, PoliciesHaveNames) {
  for (const PoolPolicy policy : {PoolPolicy::kDemand, PoolPolicy::kKeep, PoolPolicy::kStatic})
    EXPECT_EQ(parse_pool_policy(pool_policy_name(policy)), policy);
  EXPECT_FALSE(parse_pool_policy("most"));
}

}  // namespace
}  // namespace tube::policies

#include "policies/memory/migration.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

using Indices = std::vector<size_t>;

StoredObject object(uint64_t mib, uint64_t made_ms, uint32_t turn = kNoTurn) {
  StoredObject object;
  object.bytes = mib * kMiB;
  object.made_ns = object.used_ns = made_ms * kMs;
  object.turn = turn;
  return object;
}

Indices leaving(MigrationOrder order, const std::vector<StoredObject>& objects, uint64_t mib,
                uint64_t now_ms = 1000) {
  return choose_leaving(order, objects, mib * kMiB, now_ms * kMs);
}

TEST(Migration, WhoIsFurthestBackInTheQueueGoesFirst) {
  const std::vector<StoredObject> objects{object(10, 1, 1), object(10, 2, 0), object(10, 3, 2)};
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 10), Indices({2}));
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 20), Indices({2, 0}));
}

TEST(Migration, LeastRecentlyUsedIsTheOtherArm) {
  const std::vector<StoredObject> objects{object(10, 2, 0), object(10, 1, 1), object(10, 3, 2)};
  EXPECT_EQ(leaving(MigrationOrder::kLru, objects, 20), Indices({1, 0}));
}

TEST(Migration, WhoHasNoTurnGoesBeforeWhoHas) {
  const std::vector<StoredObject> objects{object(10, 1, 7), object(10, 2), object(10, 3, 0)};
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 20), Indices({1, 0}));
}

TEST(Migration, WithoutAQueueTheNewestGoesFirst) {
  const std::vector<StoredObject> objects{object(10, 100), object(10, 900), object(10, 500)};
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 20), Indices({1, 2}));
}

TEST(Migration, LearntWaitsTellTheTurn) {
  std::vector<StoredObject> objects{object(10, 900), object(10, 800)};
  objects[0].waits_ns = 50 * kMs;   // due at 950
  objects[1].waits_ns = 500 * kMs;  // due at 1300
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 10, 920), Indices({1}));
}

TEST(Migration, AWaitThatIsLongOverTellsNothing) {
  std::vector<StoredObject> objects{object(10, 100), object(10, 900)};
  objects[0].waits_ns = 10 * kMs;   // was due at 110
  objects[1].waits_ns = 200 * kMs;  // due at 1100
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 10), Indices({0}));
}

TEST(Migration, WhatWasTakenGoesBeforeWhatStillWaits) {
  std::vector<StoredObject> objects{object(10, 500), object(10, 100)};
  objects[1].taken = true;
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 10), Indices({1}));
}

TEST(Migration, WithinAWindowTheLargestGoesFirst) {
  const std::vector<StoredObject> objects{object(10, 501), object(30, 505), object(20, 510)};
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 25), Indices({1}));
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 40), Indices({1, 2}));
}

TEST(Migration, WhatIsElsewhereCostsNothing) {
  std::vector<StoredObject> objects{object(30, 501), object(10, 505)};
  objects[1].elsewhere = true;
  EXPECT_EQ(leaving(MigrationOrder::kQueue, objects, 10), Indices({1}));
}

TEST(Migration, SmallOnesGoLast) {
  for (const MigrationOrder order : kMigrationOrders) {
    std::vector<StoredObject> objects{object(1, 1), object(10, 2, 0)};
    objects[0].whole = false;
    EXPECT_EQ(leaving(order, objects, 5), Indices({1}));
  }
}

TEST(Migration, NothingGoesForNothing) {
  EXPECT_EQ(leaving(MigrationOrder::kQueue, {object(10, 1)}, 0), Indices());
  EXPECT_EQ(leaving(MigrationOrder::kQueue, {}, 10), Indices());
}

Indices returning(MigrationOrder order, const std::vector<StoredObject>& objects, uint64_t mib) {
  return choose_returning(order, objects, mib * kMiB, 1000 * kMs);
}

TEST(Migration, TheNextTurnComesBackFirstAndNobodyOvertakes) {
  const std::vector<StoredObject> objects{object(10, 1, 3), object(10, 2, 1), object(40, 3, 2)};
  EXPECT_EQ(returning(MigrationOrder::kQueue, objects, 100), Indices({1, 2, 0}));
  EXPECT_EQ(returning(MigrationOrder::kQueue, objects, 49), Indices({1}));
  EXPECT_EQ(returning(MigrationOrder::kQueue, objects, 5), Indices());
  EXPECT_EQ(returning(MigrationOrder::kLru, objects, 100), Indices());
}

TEST(Migration, UntoldOnesComeBackWhenTheyWereAwayForAWhileAndNobodyHadThem) {
  std::vector<StoredObject> objects{object(10, 990), object(10, 200), object(10, 100)};
  objects[2].taken = true;
  EXPECT_EQ(returning(MigrationOrder::kQueue, objects, 100), Indices({1}));
}

TEST(Migration, TheGpuWithMostToSpareTakesIt) {
  const std::vector<GpuSpace> spaces{{0, 1000 * kMiB, 80'000 * kMiB},
                                     {1, 8000 * kMiB, 80'000 * kMiB},
                                     {2, 40'000 * kMiB, 80'000 * kMiB}};
  EXPECT_EQ(choose_place(spaces, 0, 500 * kMiB), 2);
  EXPECT_EQ(choose_place(spaces, 0, 39'990 * kMiB), kToHost) << "its reserve would be gone";
  EXPECT_EQ(choose_place(spaces, 2, 500 * kMiB), kToHost) << "the others have less";
  EXPECT_EQ(choose_place({spaces.data(), 1}, 0, 1), kToHost);
}

TEST(Migration, TheReserveFollowsGrowthWithinBounds) {
  EXPECT_EQ(store_reserve(80'000 * kMiB, 0), 64 * kMiB);
  EXPECT_EQ(store_reserve(80'000 * kMiB, 500 * kMiB), 500 * kMiB);
  EXPECT_EQ(store_reserve(80'000 * kMiB, 70'000 * kMiB), 2500 * kMiB);
  EXPECT_EQ(store_reserve(640 * kMiB, 0), 20 * kMiB);
}

TEST(Migration, WaitsAreAMeanThatFollows) {
  WaitTime waits;
  EXPECT_EQ(waits.mean_ns(), 0u);
  waits.note(100);
  EXPECT_EQ(waits.mean_ns(), 100u);
  waits.note(200);
  EXPECT_EQ(waits.mean_ns(), 125u);
}

TEST(Migration, GrowthIsTheMostOfASecond) {
  MemoryGrowth growth;
  growth.note(0, 1000);
  EXPECT_EQ(growth.expected(), 0u) << "what was there before is no growth";
  growth.note(5 * kMs, 1300);
  growth.note(10 * kMs, 1200);
  growth.note(15 * kMs, 1400);
  EXPECT_EQ(growth.expected(), 500u);
  growth.note(100 * kMs, 1500);
  EXPECT_EQ(growth.expected(), 500u);
  growth.note(1010 * kMs, 1500);
  EXPECT_EQ(growth.expected(), 100u);
  growth.note(5000 * kMs, 100);
  EXPECT_EQ(growth.expected(), 0u);
}

TEST(Migration, OrdersHaveNames) {
  for (const MigrationOrder order : kMigrationOrders)
    EXPECT_EQ(parse_migration_order(migration_order_name(order)), order);
  EXPECT_FALSE(parse_migration_order("fifo"));
}

}  // namespace
}  // namespace tube::policies

// Units of a slab: what is given out is free, in a row, and found while there is room.
#include "hook/memory/unit_map.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace tube::hook {
namespace {

TEST(UnitMap, FirstFit) {
  UnitMap map;
  EXPECT_EQ(map.take(10), 0u);
  EXPECT_EQ(map.take(60), 10u);
  map.free(4, 3);
  EXPECT_EQ(map.take(4), 70u);
  EXPECT_EQ(map.take(3), 4u);
  EXPECT_EQ(map.taken(), 74u);
}

TEST(UnitMap, ToTheLastUnitAndNotBeyond) {
  UnitMap map;
  EXPECT_EQ(map.take(0), UnitMap::kNone);
  EXPECT_EQ(map.take(UnitMap::kUnits + 1), UnitMap::kNone);
  EXPECT_EQ(map.take(UnitMap::kUnits - 1), 0u);
  EXPECT_EQ(map.take(2), UnitMap::kNone);
  EXPECT_EQ(map.take(1), UnitMap::kUnits - 1);
  EXPECT_EQ(map.take(1), UnitMap::kNone);
  map.free(0, UnitMap::kUnits);
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.take(UnitMap::kUnits), 0u);
}

TEST(UnitMap, WhatIsTakenTwiceCountsOnce) {
  UnitMap map;
  map.take_at(100, 20);
  map.take_at(110, 20);
  EXPECT_EQ(map.taken(), 30u);
  map.free(100, 30);
  map.free(100, 30);
  EXPECT_TRUE(map.empty());
}

TEST(UnitMap, RandomProgramsAgreeWithAPlainModel) {
  UnitMap map;
  std::vector<bool> model(UnitMap::kUnits);
  std::vector<std::pair<uint32_t, uint32_t>> pieces;
  std::mt19937 random(3);
  for (int step = 0; step < 3000; ++step) {
    if (random() % 5 < 2 && !pieces.empty()) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const auto [at, count] = pieces.back();
      pieces.pop_back();
      map.free(at, count);
      for (uint32_t i = at; i < at + count; ++i) model[i] = false;
      continue;
    }
    const uint32_t count = 1 + random() % (step % 2 == 0 ? 4 : 300);
    uint32_t expected = UnitMap::kNone;
    for (uint32_t at = 0, run = 0; at < UnitMap::kUnits && expected == UnitMap::kNone; ++at) {
      run = model[at] ? 0 : run + 1;
      if (run == count) expected = at + 1 - count;
    }
    const uint32_t got = map.take(count);
    ASSERT_EQ(got, expected) << step;
    if (got == UnitMap::kNone) continue;
    for (uint32_t i = got; i < got + count; ++i) model[i] = true;
    pieces.emplace_back(got, count);
  }
}

}  // namespace
}  // namespace tube::hook

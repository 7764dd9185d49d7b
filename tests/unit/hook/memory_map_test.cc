#include "hook/memory/memory_map.h"

#include <gtest/gtest.h>

namespace tube::hook {
namespace {

Context* context(int n) { return reinterpret_cast<Context*>(static_cast<uintptr_t>(n)); }

bool is_outside(const MemoryMap& map, uint64_t address) {
  MemoryKind kind;
  return map.outside_windows(address, &kind);
}

TEST(MemoryMap, FindsTheAllocationAroundAnAddress) {
  MemoryMap map;
  map.insert({1000, 100, 7, context(1), MemoryKind::kDevice, 0});
  Allocation a;
  ASSERT_TRUE(map.find(1099, &a));
  EXPECT_EQ(a.buffer_id, 7u);
  EXPECT_TRUE(map.find(1000, &a));
  EXPECT_FALSE(map.find(1100, &a));
  EXPECT_FALSE(map.find(999, &a));
}

TEST(MemoryMap, RemovesWholeAllocationsOfTheRightKindOnly) {
  MemoryMap map;
  map.insert({1000, 100, 7, context(1), MemoryKind::kPinned, 3});
  Allocation a;
  EXPECT_FALSE(map.remove(1001, MemoryKind::kPinned, &a));
  EXPECT_FALSE(map.remove(1000, MemoryKind::kDevice, &a));
  ASSERT_TRUE(map.remove(1000, MemoryKind::kPinned, &a));
  EXPECT_EQ(a.flags, 3u);
  EXPECT_FALSE(map.find(1000, &a));
}

TEST(MemoryMap, ForgetsWhatAContextOwnedButNotModuleVariables) {
  MemoryMap map;
  map.insert({1000, 100, 1, context(1), MemoryKind::kDevice, 0});
  map.insert({2000, 100, 2, context(2), MemoryKind::kDevice, 0});
  map.insert({3000, 100, 3, context(1), MemoryKind::kGlobal, 0});
  map.forget_context(context(1));
  Allocation a;
  EXPECT_FALSE(map.find(1000, &a));
  EXPECT_TRUE(map.find(2000, &a));
  EXPECT_TRUE(is_outside(map, 3050));
}

TEST(MemoryMap, KnowsModuleVariables) {
  MemoryMap map;
  EXPECT_FALSE(is_outside(map, 1000));
  map.insert({1000, 8, 1, context(1), MemoryKind::kGlobal, 0});
  map.insert({2000, 8, 2, context(1), MemoryKind::kDevice, 0});
  EXPECT_TRUE(is_outside(map, 1004));
  EXPECT_FALSE(is_outside(map, 2004));
  Allocation a;
  ASSERT_TRUE(map.remove(1000, MemoryKind::kGlobal, &a));
  EXPECT_FALSE(is_outside(map, 1004));
}

TEST(MemoryMap, SaysWhichKindLiesOutside) {
  MemoryMap map;
  MemoryKind kind = MemoryKind::kDevice;
  map.insert({3000, 8, 3, context(1), MemoryKind::kRegistered, 0});
  EXPECT_TRUE(map.outside_windows(3007, &kind));
  EXPECT_EQ(kind, MemoryKind::kRegistered);
  EXPECT_FALSE(map.outside_windows(3008, &kind));
  map.forget_context(context(1));
  EXPECT_TRUE(is_outside(map, 3000));
}

TEST(MemoryMap, SeesOverlapsAtEitherEnd) {
  MemoryMap map;
  MemoryKind kind = MemoryKind::kDevice;
  map.insert({1000, 100, 1, context(1), MemoryKind::kRegistered, 0});
  EXPECT_TRUE(map.overlaps(1099, 1, &kind));
  EXPECT_TRUE(map.overlaps(900, 101, &kind));
  EXPECT_TRUE(map.overlaps(900, 1000, &kind));
  EXPECT_FALSE(map.overlaps(900, 100, &kind));
  EXPECT_FALSE(map.overlaps(1100, 100, &kind));
}

TEST(MemoryMap, OpenedMemoryGoesWithItsContext) {
  MemoryMap map;
  map.insert({1000, 8, 1, context(1), MemoryKind::kOpened, 0});
  EXPECT_TRUE(is_outside(map, 1004));
  map.forget_context(context(1));
  EXPECT_FALSE(is_outside(map, 1004));
  map.insert({1000, 8, 1, context(1), MemoryKind::kOpened, 0});
  EXPECT_TRUE(is_outside(map, 1004));
}

}  // namespace
}  // namespace tube::hook

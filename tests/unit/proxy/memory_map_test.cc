// Blocks of the memory map: how long they live, and what their names are worth afterwards.
#include <algorithm>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class MemoryMapTest : public ::testing::Test {
 protected:
  MemoryMapTest()
      : driver(test::make_fake_driver()),
        gpus(driver),
        map(driver, gpus),
        account(map.budgets().open("test", policies::kNoMemoryLimit)) {
    EXPECT_TRUE(gpus.open().ok());
    window = take_window(0);
    fds_before = open_fds();
  }
  uint32_t take_window(uint32_t candidate) {
    while (candidate < windows::kCandidates && !map.take_window(candidate)) ++candidate;
    EXPECT_LT(candidate, windows::kCandidates);
    return candidate;
  }
  Placed allocate(uint64_t bytes = 4 * kMiB) {
    Placed placed;
    EXPECT_EQ(map.allocate(window, 1, 0, bytes, *account, &placed), CUDA_SUCCESS);
    return placed;
  }
  BlockId create(uint64_t bytes = 4 * kMiB) {
    BlockId block = BlockId::kNone;
    CUmemAllocationProp prop{};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    EXPECT_EQ(map.create(prop, bytes, 0, *account, &block), CUDA_SUCCESS);
    return block;
  }
  void expect_nothing_left() {
    EXPECT_EQ(map.blocks(), 0u);
    EXPECT_EQ(map.regions(), 0u);
    EXPECT_EQ(map.used_bytes(0), 0u);
    EXPECT_EQ(map.shares().count(), 0u);
    EXPECT_EQ(map.budgets().now(0).held_bytes, 0u);
    EXPECT_EQ(account->now(0).held_bytes, 0u);
    EXPECT_EQ(test::fake().live_memory, 0);
    EXPECT_EQ(test::fake().mappings, 0);
    EXPECT_EQ(open_fds(), fds_before);
  }

  Driver driver;
  Gpus gpus;
  MemoryMap map;
  std::shared_ptr<MemoryAccount> account;
  uint32_t window = 0;
  int fds_before = 0;
};

TEST_F(MemoryMapTest, ABlockLivesAsLongAsItIsReferenced) {
  const Placed placed = allocate();
  ASSERT_TRUE(map.retain(placed.block));
  map.release(placed.block);
  EXPECT_EQ(test::fake().mappings, 1);
  ASSERT_TRUE(map.find(placed.block).has_value());
  EXPECT_EQ(map.find(placed.block)->address, placed.address);
  EXPECT_EQ(map.used_bytes(0), 4 * kMiB);
  map.release(placed.block);
  expect_nothing_left();
}

TEST_F(MemoryMapTest, TheIdOfABlockThatIsGoneIsRefusedEverywhere) {
  const BlockId gone = allocate().block;
  map.release(gone);
  const Placed next = allocate();  // in the same slot, at the same address
  EXPECT_NE(next.block, gone);
  for (const BlockId dead : {gone, BlockId::kNone, BlockId{~uint64_t{0}}}) {
    UniqueFd fd;
    CUmemAllocationProp prop;
    uint64_t address = 0;
    CUarrayMapInfo info{};
    EXPECT_FALSE(map.retain(dead));
    EXPECT_FALSE(map.find(dead).has_value());
    EXPECT_EQ(map.export_fd(dead, &fd), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map.properties(dead, &prop), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map.place(dead, window, 1, &address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(map.map(dead, next.address, kMiB, 0, 0), CUDA_ERROR_INVALID_VALUE);
    if (dead != BlockId::kNone) {
      EXPECT_EQ(map.map_arrays({&info, 1}, {&dead, 1}, nullptr), CUDA_ERROR_INVALID_VALUE);
    }
    MemoryHandle handle;
    EXPECT_EQ(map.shares().share(1, SharedMemory{dead, next.address, kMiB}, &handle),
              CUDA_ERROR_INVALID_VALUE);
    map.release(dead);
  }
  EXPECT_TRUE(map.find(next.block).has_value());
  map.release(next.block);
  expect_nothing_left();
}

TEST_F(MemoryMapTest, AMappingOfAClientKeepsItsBlock) {
  const uint64_t base = map.reserve(window, 1, 4 * kMiB, 0, 0);
  const BlockId block = create();
  ASSERT_EQ(map.map(block, base, 2 * kMiB, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(map.map(block, base + 2 * kMiB, 2 * kMiB, 2 * kMiB, 0), CUDA_SUCCESS);
  map.release(block);  // the program's own handle
  EXPECT_EQ(map.unmap(base), CUDA_SUCCESS);
  EXPECT_EQ(map.unmap(base), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(test::fake().live_memory, 1);
  map.drop_mapping(base + 2 * kMiB);
  map.unreserve(window, base, 4 * kMiB);
  expect_nothing_left();
}

TEST_F(MemoryMapTest, ASecondWindowShowsTheSameMemory) {
  const Placed first = allocate();
  uint64_t second = 0;
  ASSERT_EQ(map.place(first.block, take_window(window + 1), 2, &second), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().live_memory, 1);
  EXPECT_EQ(map.used_bytes(0), 4 * kMiB);
  EXPECT_EQ(map.owner(second)->session, 2u);
  map.release(first.block);
  EXPECT_EQ(test::fake().mappings, 2);
  map.drop_mapping(second);
  expect_nothing_left();
}

TEST_F(MemoryMapTest, WhatCannotBeMappedLeavesNothing) {
  test::fake().next_map = CUDA_ERROR_UNKNOWN;
  Placed placed;
  EXPECT_EQ(map.allocate(window, 1, 0, kMiB, *account, &placed), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(map.import_placed(window, 1, 0, -1, 2 * kMiB, &placed), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(placed.block, BlockId::kNone);
  const BlockId block = create();
  uint64_t address = 0;
  EXPECT_EQ(map.map(block, 0x1000, kMiB, 0, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(map.place(block, window, 1, &address), CUDA_ERROR_UNKNOWN);
  map.release(block);
  expect_nothing_left();
}

// Everything that can hold a reference, given up in every order.
// As the pool does with one that is idle.
TEST_F(MemoryMapTest, ABlockMayGoWhileItsMemoryComesBack) {
  static MemoryMap* of = nullptr;
  static BlockId going = BlockId::kNone;
  static decltype(driver.cuMemCreate) create = nullptr;
  of = &map;
  create = driver.cuMemCreate;
  driver.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes,
                          const CUmemAllocationProp* prop, unsigned long long flags) {
    of->release(going);
    return create(handle, bytes, prop, flags);
  };
  for (const CUresult answer : {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY}) {
    going = BlockId::kNone;
    const BlockId block = allocate().block;
    const auto there = map.movable(1, 0);
    ASSERT_EQ(there.size(), 1u);
    ASSERT_TRUE(map.send_away(there[0], {}));
    going = block;
    test::fake().next_memory = answer;
    EXPECT_EQ(map.bring_back(there[0], false), answer);
    test::fake().next_memory = CUDA_SUCCESS;
    expect_nothing_left();
    EXPECT_EQ(map.bring_back(there[0], false), CUDA_SUCCESS);
    EXPECT_FALSE(map.promise_again(block));
  }
}

TEST_F(MemoryMapTest, NothingIsLeftInWhateverOrderItsHoldersGo) {
  const uint32_t other_window = take_window(window + 1);
  std::vector<int> order = {0, 1, 2, 3, 4};
  do {
    SCOPED_TRACE(::testing::PrintToString(order));
    const Placed placed = allocate();
    const uint64_t reservation = map.reserve(window, 3, 2 * kMiB, 0, 0);
    uint64_t second = 0;
    MemoryHandle handle;
    SharedMemory opened;
    UniqueFd exported;
    ASSERT_EQ(map.place(placed.block, other_window, 2, &second), CUDA_SUCCESS);
    ASSERT_EQ(map.map(placed.block, reservation, 2 * kMiB, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(map.shares().share(1, SharedMemory{placed.block, placed.address, kMiB}, &handle),
              CUDA_SUCCESS);
    ASSERT_EQ(map.shares().open(handle.token, 2, &opened), CUDA_SUCCESS);
    ASSERT_EQ(map.export_fd(opened.block, &exported), CUDA_SUCCESS);
    const std::function<void()> ends[] = {
        [&] {
          map.shares().let_go(placed.address);
          map.release(placed.block);
        },
        [&] { map.drop_mapping(second); },
        [&] { EXPECT_EQ(map.unmap(reservation), CUDA_SUCCESS); },
        [&] { map.shares().close(handle.token); },
        [&] { exported.reset(); },
    };
    for (const int holder : order) ends[holder]();
    map.unreserve(window, reservation, 2 * kMiB);
    expect_nothing_left();
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace tube::proxy

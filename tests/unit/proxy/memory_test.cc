#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "proxy/gpu/gpus.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/device_memory.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/ranges.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

TEST(AddressSpace, MergesWhatComesBack) {
  AddressSpace space(0x1000, 0x4000, 0x1000);
  const uint64_t a = space.allocate(0x1000);
  const uint64_t b = space.allocate(0x1000);
  const uint64_t c = space.allocate(0x2000);
  EXPECT_EQ(space.allocate(1), 0u);
  space.free(a, 0x1000);
  space.free(c, 0x2000);
  EXPECT_EQ(space.allocate(0x3000), 0u);
  space.free(b, 0x1000);
  EXPECT_EQ(space.allocate(0x4000), 0x1000u);
}

TEST(AddressSpace, StaysBelowABound) {
  AddressSpace space(0x1000, 0x4000, 0x1000);
  EXPECT_EQ(space.allocate(0x2000, 0, 0x3000), 0x1000u);
  EXPECT_EQ(space.allocate(0x1000, 0, 0x3000), 0u);
  EXPECT_EQ(space.allocate(0x1000), 0x3000u);
}

TEST(AddressSpace, HonoursAlignmentAndPlaces) {
  AddressSpace space(0x1000, 0x10000, 0x1000);
  EXPECT_EQ(space.allocate(0x1000, 0x8000), 0x8000u);
  EXPECT_TRUE(space.allocate_at(0x3000, 0x1000));
  EXPECT_FALSE(space.allocate_at(0x3000, 0x1000));
  EXPECT_FALSE(space.allocate_at(0x10000, 0x2000));
  EXPECT_EQ(space.allocate(~uint64_t{0}), 0u);
}

TEST(Ranges, CoversAdjoiningRangesAndNothingElse) {
  Ranges ranges;
  Range r;
  r.base = 0x1000;
  r.bytes = 0x100;
  ASSERT_TRUE(ranges.insert(r));
  r.base = 0x1100;
  ASSERT_TRUE(ranges.insert(r));
  EXPECT_FALSE(ranges.insert(r));
  EXPECT_TRUE(ranges.covers(0x1000, 0x200));
  EXPECT_TRUE(ranges.covers(0x10ff, 2));
  EXPECT_FALSE(ranges.covers(0x1000, 0x201));
  EXPECT_FALSE(ranges.covers(0xfff, 2));
  EXPECT_FALSE(ranges.covers(0x1000, ~uint64_t{0}));
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemoryTest()
      : driver(test::make_fake_driver()),
        gpus(driver),
        map(driver, gpus),
        account(map.budgets().open("test", policies::kNoMemoryLimit)),
        memory(map, ranges, 1, *account) {
    EXPECT_TRUE(gpus.open().ok());
    while (window < windows::kCandidates && !map.take_window(window)) ++window;
    memory.set_window(window);
  }
  uint64_t allocate(uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory.allocate(0, 1, bytes, &address), CUDA_SUCCESS);
    return address;
  }
  Driver driver;
  Gpus gpus;
  MemoryMap map;
  std::shared_ptr<MemoryAccount> account;
  Ranges ranges;
  DeviceMemory memory;
  uint32_t window = 0;
};

TEST_F(DeviceMemoryTest, SmallRequestsShareABlockAndLargeOnesDoNot) {
  const uint64_t a = allocate(100);
  const uint64_t b = allocate(1 << 20);
  EXPECT_EQ(map.blocks(), 1u);
  EXPECT_EQ(b % 512, 0u);
  allocate((1 << 20) + 1);
  EXPECT_EQ(map.blocks(), 2u);
  ASSERT_TRUE(map.owner(a).has_value());
  EXPECT_EQ(map.owner(a)->session, 1u);
  EXPECT_FALSE(map.owner(a + (uint64_t{64} << 20)).has_value());
}

TEST_F(DeviceMemoryTest, ACopyPastTheRequestedBytesIsRefused) {
  const uint64_t a = allocate(100);
  EXPECT_TRUE(ranges.covers(a, 100));
  EXPECT_FALSE(ranges.covers(a, 101));
}

TEST_F(DeviceMemoryTest, FreesOnlyTheStartOfAnAllocationAndOnlyOnce) {
  const uint64_t a = allocate(4096);
  EXPECT_EQ(memory.free(a + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory.free(a), CUDA_SUCCESS);
  EXPECT_EQ(memory.free(a), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceMemoryTest, EverythingGoesBack) {
  for (uint64_t bytes : {1ull, 5000ull, 900000ull, 3ull << 20, 100ull << 20}) allocate(bytes);
  memory.free_all(DeviceMemory::kAllContexts);
  EXPECT_EQ(map.blocks(), 0u);
  EXPECT_EQ(test::fake().live_memory, 0);
  EXPECT_EQ(memory.bytes(), 0u);
  EXPECT_EQ(memory.count(), 0u);
}

TEST_F(DeviceMemoryTest, ZeroAndAbsurdSizesAreRefused) {
  CUdeviceptr address = 0;
  EXPECT_EQ(memory.allocate(0, 1, 0, &address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory.allocate(0, 1, ~uint64_t{0}, &address), CUDA_ERROR_OUT_OF_MEMORY);
}

// ---- slabs that are leased to the client ----

class LeaseTest : public DeviceMemoryTest {
 protected:
  // The first piece of a slab that is leased from then on.
  uint64_t lease(uint64_t bytes) {
    CUdeviceptr address = 0;
    uint32_t offer = 0;
    bool leased = false;
    EXPECT_EQ(memory.allocate_leasing(0, 1, bytes, &address, &offer, &leased), CUDA_SUCCESS);
    EXPECT_TRUE(leased);
    return address;
  }
  bool cut(uint64_t address, uint64_t bytes, bool frees_wait = false) {
    return memory.cut(0, 1, address, bytes, frees_wait);
  }
};

TEST_F(LeaseTest, APieceIsWhereTheClientSaysIfThatPlaceIsFree) {
  const uint64_t slab = lease(1000);
  EXPECT_TRUE(cut(slab + 1024, 100));
  EXPECT_TRUE(ranges.covers(slab + 1024, 100));
  EXPECT_FALSE(ranges.covers(slab + 1024, 101));
  EXPECT_TRUE(cut(slab + (1 << 20), 1 << 20)) << "up to the end";
  EXPECT_EQ(map.blocks(), 1u);
  EXPECT_EQ(memory.free(slab + 1024), CUDA_SUCCESS);
  EXPECT_TRUE(cut(slab + 1024, 512));
}

TEST_F(LeaseTest, NoOtherPlaceCanBeCut) {
  const uint64_t slab = lease(1000);
  EXPECT_FALSE(cut(slab, 100)) << "taken";
  EXPECT_FALSE(cut(slab + 512, 100)) << "taken, to the end of its unit";
  EXPECT_FALSE(cut(slab + 1024 + 8, 100)) << "between units";
  EXPECT_FALSE(cut(slab + 1024, 0));
  EXPECT_FALSE(cut(slab + 1024, (1 << 20) + 1));
  EXPECT_FALSE(cut(slab + (2 << 20) - 512, 513)) << "beyond the slab";
  EXPECT_FALSE(cut(slab + (2 << 20), 512));
  EXPECT_FALSE(cut(slab - 512, 512));
  EXPECT_FALSE(cut(0, 512));
  EXPECT_FALSE(cut(~uint64_t{0}, 512));
  EXPECT_FALSE(memory.cut(1, 1, slab + 1024, 512, false)) << "of another GPU";
  const uint64_t block = allocate(2 << 20);
  EXPECT_FALSE(cut(block, 512)) << "no slab";
  EXPECT_TRUE(memory.end_lease(slab));
  EXPECT_FALSE(cut(slab + 1024, 512)) << "no longer leased";
  EXPECT_FALSE(memory.end_lease(slab));
  EXPECT_FALSE(memory.end_lease(block));
}

TEST_F(LeaseTest, OthersPiecesDoNotComeThere) {
  const uint64_t slab = lease(1000);
  const uint64_t other = allocate(1000);
  EXPECT_NE(other & ~uint64_t{(2 << 20) - 1}, slab);
  CUdeviceptr address = 0;
  uint32_t offer = 0;
  bool leased = false;
  EXPECT_EQ(memory.allocate_leasing(0, 1, 1000, &address, &offer, &leased), CUDA_SUCCESS);
  EXPECT_FALSE(leased) << "a slab with pieces that the client does not know of";
}

TEST_F(LeaseTest, AFreeThatIsKeptBackIsOverWhenItsPlaceIsCutAgain) {
  const uint64_t slab = lease(4096);
  ASSERT_TRUE(cut(slab + 4096, 4096));
  EXPECT_FALSE(cut(slab + 2048, 4096)) << "no free is kept back";
  ASSERT_TRUE(cut(slab + 2048, 4096, true)) << "over the two of before";
  EXPECT_FALSE(ranges.covers(slab, 1));
  EXPECT_EQ(memory.free(slab, true), CUDA_SUCCESS);
  EXPECT_EQ(memory.free(slab + 4096, true), CUDA_SUCCESS);
  EXPECT_TRUE(ranges.covers(slab + 2048, 4096)) << "is not what they free";
  EXPECT_EQ(memory.free(slab + 2048, true), CUDA_SUCCESS);
  EXPECT_EQ(memory.count(), 0u);
  EXPECT_EQ(memory.bytes(), 0u);
}

TEST_F(LeaseTest, ALeasedSlabStaysUntilTheLeaseEnds) {
  const uint64_t one = lease(1000), two = lease(1000);
  EXPECT_EQ(memory.free(one), CUDA_SUCCESS);
  EXPECT_EQ(memory.free(two), CUDA_SUCCESS);
  EXPECT_FALSE(memory.free_empty_slabs());
  EXPECT_EQ(map.blocks(), 2u);
  EXPECT_TRUE(memory.end_lease(one));
  EXPECT_EQ(map.blocks(), 1u) << "one empty slab waits";
  EXPECT_TRUE(memory.end_lease(two));
  EXPECT_EQ(map.blocks(), 1u);
  EXPECT_TRUE(memory.free_empty_slabs());
  EXPECT_EQ(map.blocks(), 0u);
}

TEST_F(LeaseTest, LeasesAreBoundedAndEndWithTheClient) {
  for (uint32_t i = 0; i < abi::kMostLeases; ++i) lease(1 << 20);
  CUdeviceptr address = 0;
  uint32_t offer = 0;
  bool leased = false;
  EXPECT_EQ(memory.allocate_leasing(0, 1, 1 << 20, &address, &offer, &leased), CUDA_SUCCESS);
  EXPECT_FALSE(leased);
  memory.free_all(DeviceMemory::kAllContexts);
  EXPECT_EQ(map.blocks(), 0u);
  EXPECT_EQ(test::fake().live_memory, 0);
}

// Random cuts, frees and leases against a plain model of taken units.
TEST_F(LeaseTest, RandomPiecesNeverOverlap) {
  std::mt19937 random(11);
  std::map<uint64_t, uint64_t> taken;  // base -> end, in units
  std::vector<uint64_t> slabs;
  for (int i = 0; i < 4; ++i) {
    slabs.push_back(lease(512));
    taken[slabs.back()] = slabs.back() + 512;
  }
  for (int step = 0; step < 20000; ++step) {
    if (random() % 3 == 0 && !taken.empty()) {
      auto it = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ASSERT_EQ(memory.free(it->first), CUDA_SUCCESS);
      taken.erase(it);
      continue;
    }
    const uint64_t base = slabs[random() % slabs.size()] + random() % 4096 * 512;
    const uint64_t bytes = 1 + random() % (64 << 10);
    const uint64_t end = base + (bytes + 511) / 512 * 512;
    const auto next = taken.lower_bound(base);
    const bool free = (next == taken.end() || next->first >= end) &&
                      (next == taken.begin() || std::prev(next)->second <= base) &&
                      (base & ((2 << 20) - 1)) + bytes <= 2 << 20;
    ASSERT_EQ(cut(base, bytes), free);
    if (free) taken[base] = end;
  }
  EXPECT_EQ(memory.count(), taken.size());
}

// ---- sharing with other processes ----

class SharesTest : public DeviceMemoryTest {
 protected:
  MemoryHandle share(uint64_t address) {
    MemoryHandle handle{};
    const Range* range = ranges.at(address);
    EXPECT_EQ(map.shares().share(
                  1, SharedMemory{memory.block_of(address), range->base, range->bytes}, &handle),
              CUDA_SUCCESS);
    return handle;
  }
  CUresult open(const MemoryHandle& handle, uint64_t session = 2) {
    SharedMemory found;
    return map.shares().open(handle.token, session, &found);
  }
};

TEST_F(SharesTest, OneHandlePerAllocation) {
  const uint64_t a = allocate(4096), b = allocate(4096);
  EXPECT_EQ(share(a).token, share(a).token);
  EXPECT_NE(share(a).token, share(b).token);
  EXPECT_EQ(memory.free(a), CUDA_SUCCESS);
  EXPECT_EQ(memory.free(b), CUDA_SUCCESS);
  EXPECT_EQ(map.shares().count(), 0u);
}

TEST_F(SharesTest, OnlyOthersOpenAndOnlyWhatIsOffered) {
  const uint64_t a = allocate(4096);
  const MemoryHandle handle = share(a);
  EXPECT_EQ(open(handle, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(open(handle), CUDA_SUCCESS);
  MemoryHandle wrong = handle;
  wrong.token.low ^= 1;
  EXPECT_EQ(open(wrong), CUDA_ERROR_INVALID_VALUE);
  map.shares().close(handle.token);
  EXPECT_EQ(memory.free(a), CUDA_SUCCESS);
  EXPECT_EQ(open(handle), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharesTest, AFreedBlockLivesUntilTheLastCloses) {
  const uint64_t a = allocate(8 << 20);
  const MemoryHandle handle = share(a);
  ASSERT_EQ(open(handle), CUDA_SUCCESS);
  ASSERT_EQ(open(handle, 3), CUDA_SUCCESS);
  EXPECT_EQ(memory.free(a), CUDA_SUCCESS);
  EXPECT_EQ(memory.bytes(), 0u);
  EXPECT_EQ(memory.free(a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(open(handle, 4), CUDA_ERROR_INVALID_VALUE);
  const uint32_t blocks = map.blocks();
  map.shares().close(handle.token);
  EXPECT_EQ(map.blocks(), blocks);
  map.shares().close(handle.token);
  EXPECT_EQ(map.blocks(), blocks - 1);
  EXPECT_EQ(map.shares().count(), 0u);
}

TEST_F(SharesTest, AFreedPieceOfASlabKeepsItsPlaceWhileOpen) {
  const uint64_t a = allocate(4096);
  const MemoryHandle handle = share(a);
  ASSERT_EQ(open(handle), CUDA_SUCCESS);
  EXPECT_EQ(memory.free(a), CUDA_SUCCESS);
  EXPECT_FALSE(ranges.covers(a, 1));
  EXPECT_EQ(memory.free(a), CUDA_ERROR_INVALID_VALUE);
  const uint64_t b = allocate(4096);
  EXPECT_NE(a, b);
  map.shares().close(handle.token);
  EXPECT_EQ(allocate(4096), a);  // its place came free with the close
  EXPECT_EQ(map.shares().count(), 0u);
}

TEST_F(SharesTest, ASlabOutlivesItsOwner) {
  const uint64_t a = allocate(4096);
  const uint64_t b = allocate(4096);
  const MemoryHandle open_one = share(a), idle_one = share(b);
  ASSERT_EQ(open(open_one), CUDA_SUCCESS);
  memory.free_all(DeviceMemory::kAllContexts);
  EXPECT_EQ(ranges.size(), 0u);
  EXPECT_EQ(map.blocks(), 1u);
  EXPECT_EQ(open(idle_one), CUDA_ERROR_INVALID_VALUE);
  map.shares().close(open_one.token);
  EXPECT_EQ(map.blocks(), 0u);
  EXPECT_EQ(map.shares().count(), 0u);
}

}  // namespace
}  // namespace tube::proxy

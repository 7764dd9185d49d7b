#include <gtest/gtest.h>

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

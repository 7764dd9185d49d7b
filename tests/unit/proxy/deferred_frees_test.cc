// Frees in stream order: what a look at them asks the driver, and when memory goes.
#include <gtest/gtest.h>

#include "proxy/gpu/gpus.h"
#include "proxy/memory/deferred_frees.h"
#include "proxy/memory/device_memory.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/ranges.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

class DeferredFreesTest : public ::testing::Test {
 protected:
  DeferredFreesTest()
      : driver(test::make_fake_driver()),
        gpus(driver),
        map(driver, gpus),
        account(map.budgets().open("test", policies::kNoMemoryLimit)),
        memory(map, ranges, 1, *account),
        frees(driver, memory) {
    EXPECT_TRUE(gpus.open().ok());
    uint32_t window = 0;
    while (window < windows::kCandidates && !map.take_window(window)) ++window;
    memory.set_window(window);
    test::fake().events_wait = true;
  }
  void expect_nothing_left() {
    EXPECT_EQ(frees.count(), 0u);
    EXPECT_EQ(map.blocks(), 0u);
    EXPECT_EQ(ranges.size(), 0u);
    EXPECT_EQ(test::fake().live_memory, 0);
    EXPECT_EQ(test::fake().live_events, 0);
  }
  uint64_t free_behind(uint64_t stream) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory.allocate(0, 1, 2 * kMiB, &address), CUDA_SUCCESS);
    EXPECT_EQ(frees.add(reinterpret_cast<CUstream>(stream), address), CUDA_SUCCESS);
    return address;
  }
  // The GPU has got to the free that was deferred as the nth.
  void reach(size_t n) { test::fake().reached.insert(test::fake().recorded.at(n)); }
  int queries_of_a_look() {
    test::fake().event_queries = 0;
    frees.collect();
    return test::fake().event_queries;
  }
  Driver driver;
  Gpus gpus;
  MemoryMap map;
  std::shared_ptr<MemoryAccount> account;
  Ranges ranges;
  DeviceMemory memory;
  DeferredFrees frees;
};

TEST_F(DeferredFreesTest, ALookAsksOnceForEachStreamThatIsNotThereYet) {
  for (int i = 0; i < 100; ++i) free_behind(0x10);
  for (int i = 0; i < 100; ++i) free_behind(0x20);
  EXPECT_EQ(frees.count(), 200u);
  EXPECT_EQ(queries_of_a_look(), 2);
  test::fake().event_queries = 0;
  free_behind(0x10);
  EXPECT_EQ(test::fake().event_queries, 2);
  frees.drop();
  memory.free_all(DeviceMemory::kAllContexts);
  expect_nothing_left();
}

TEST_F(DeferredFreesTest, MemoryGoesInTheOrderOfItsStream) {
  const uint64_t first = free_behind(0x10), second = free_behind(0x10);
  EXPECT_FALSE(ranges.covers(first, 1));
  EXPECT_EQ(map.blocks(), 2u);
  reach(0);
  EXPECT_EQ(queries_of_a_look(), 2);  // the one that is over, and the one behind it
  EXPECT_EQ(map.blocks(), 1u);
  EXPECT_EQ(ranges.at(first), nullptr);
  EXPECT_NE(ranges.at(second), nullptr);
  reach(1);
  EXPECT_EQ(queries_of_a_look(), 1);
  EXPECT_EQ(queries_of_a_look(), 0);
  expect_nothing_left();
}

TEST_F(DeferredFreesTest, AStreamThatIsBehindHoldsUpNoOther) {
  free_behind(0x10);
  const uint64_t other = free_behind(0x20);
  reach(1);
  EXPECT_EQ(queries_of_a_look(), 2);
  EXPECT_EQ(ranges.at(other), nullptr);
  EXPECT_EQ(frees.count(), 1u);
  frees.drop();
  memory.free_all(DeviceMemory::kAllContexts);
  expect_nothing_left();
}

TEST_F(DeferredFreesTest, OnlyTheStartOfAnAllocationIsFreed) {
  const uint64_t address = free_behind(0x10);
  for (const uint64_t wrong : {address, address + 8, uint64_t{0}})
    EXPECT_EQ(frees.add(reinterpret_cast<CUstream>(0x10), wrong), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(frees.count(), 1u);
  EXPECT_EQ(test::fake().live_events, 1);
  frees.drop();
  memory.free_all(DeviceMemory::kAllContexts);
  expect_nothing_left();
}

}  // namespace
}  // namespace tube::proxy

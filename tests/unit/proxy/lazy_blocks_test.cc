// Allocations that begin as promises: what the driver is asked, when, and what becomes of them.
#include <random>
#include <vector>

#include "policies/memory/lazy_backing.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class LazyBlocksTest : public SessionTest {
 protected:
  LazyBlocksTest() {
    shared.lazy_backing = true;
    restart();
  }
  ~LazyBlocksTest() override {
    session.reset();
    EXPECT_EQ(map.blocks(), 0u);
    EXPECT_EQ(map.regions(), 0u);
    EXPECT_EQ(map.promised().bytes(0), 0u);
    EXPECT_EQ(map.budgets().charged_bytes(0), 0u);
    EXPECT_EQ(test::fake().live_memory, 0);
    EXPECT_EQ(test::fake().mappings, 0);
  }
  CUresult allocate(uint64_t bytes, CUdeviceptr* address) {
    wire::tubeMemAlloc record{};
    record.bytes = bytes;
    wire::tubeMemAlloc_reply reply{};
    const CUresult result = call(record, &reply);
    *address = reply.dptr;
    return result;
  }
  CUdeviceptr allocated(uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(allocate(bytes, &address), CUDA_SUCCESS);
    return address;
  }
  void free(CUdeviceptr address) {
    wire::tubeMemFree record{};
    record.dptr = address;
    post(record);
  }
  // A record that may reach any memory.
  CUresult work() {
    wire::cuCtxResetPersistingL2Cache_reply none{};
    return call(wire::cuCtxResetPersistingL2Cache{}, &none);
  }
  uint64_t free_memory() {
    wire::tubeMemGetInfo_reply reply{};
    EXPECT_EQ(call(wire::tubeMemGetInfo{}, &reply), CUDA_SUCCESS);
    return reply.free;
  }
};

TEST_F(LazyBlocksTest, NothingIsMadeBeforeWork) {
  const CUdeviceptr large = allocated(100 * kMiB), small = allocated(512);
  EXPECT_NE(large, small);
  EXPECT_EQ(test::fake().live_memory, 0);
  EXPECT_EQ(map.promised().bytes(0), 102 * kMiB);
  EXPECT_EQ(session->account().now(0).held_bytes, 102 * kMiB);
  EXPECT_EQ(free_memory(), (1024 - 102) * kMiB) << "the driver has it, the function may not";
  work();
  EXPECT_EQ(test::fake().live_memory, 2);
  EXPECT_EQ(test::fake().mappings, 2);
  EXPECT_EQ(map.promised().bytes(0), 0u);
  EXPECT_EQ(free_memory(), (1024 - 102) * kMiB);
}

TEST_F(LazyBlocksTest, WhatIsFreedBeforeWorkCostsNothing) {
  test::fake().next_memory = CUDA_ERROR_UNKNOWN;  // the driver is not asked
  for (int i = 0; i < 1000; ++i) free(allocated(64 * kMiB));
  EXPECT_EQ(map.blocks(), 0u);
  work();
  test::fake().next_memory = CUDA_SUCCESS;
  EXPECT_EQ(session->residency().lazy().counts().ended.load(), 1000u);
  EXPECT_EQ(session->residency().lazy().counts().backed.load(), 0u);
}

TEST_F(LazyBlocksTest, WorkThatRunsMayReachWhatComesNext) {
  test::fake().stream_busy = true;
  wire::tubeStreamCreate stream{};
  stream.stream = make_id(9, 1);
  post(stream);
  allocated(4 * kMiB);
  EXPECT_EQ(test::fake().live_memory, 1) << "made at once";
  test::fake().stream_busy = false;
  allocated(4 * kMiB);
  EXPECT_EQ(test::fake().live_memory, 1);
}

TEST_F(LazyBlocksTest, MarksAndQuestionsBackNothing) {
  allocated(4 * kMiB);
  wire::tubeStreamCreate stream{};
  stream.stream = make_id(9, 1);
  post(stream);
  free_memory();
  EXPECT_EQ(test::fake().live_memory, 0);
}

TEST_F(LazyBlocksTest, PromisesLeaveHeadroomAndEndWhereMemoryEnds) {
  const uint64_t headroom = policies::promise_headroom(1ull << 30);
  std::vector<CUdeviceptr> held;
  CUdeviceptr address = 0;
  while (allocate(16 * kMiB, &address) == CUDA_SUCCESS) held.push_back(address);
  EXPECT_EQ(held.size(), 64u) << "as many as the driver would have given";
  EXPECT_EQ(map.promised().bytes(0), (1ull << 30) - headroom);
  EXPECT_EQ(test::fake().taken(), headroom);
  EXPECT_EQ(free_memory(), 0u);
  work();
  EXPECT_EQ(test::fake().taken(), 1ull << 30);
  for (const CUdeviceptr each : held) free(each);
}

TEST_F(LazyBlocksTest, OthersDoNotGetWhatWasPromised) {
  allocated(600 * kMiB);
  auto other = map.budgets().open("other", policies::kNoMemoryLimit);
  MemoryCharge charge;
  EXPECT_EQ(other->charge(0, 500 * kMiB, &charge), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(charge.bytes(), 0u);
  Placed placed;
  EXPECT_EQ(map.allocate(window, 2, 0, 500 * kMiB, *other, &placed), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(map.allocate(window, 2, 0, 424 * kMiB, *other, &placed), CUDA_SUCCESS);
  work();
  EXPECT_EQ(test::fake().taken(), 1024 * kMiB);
  map.release(placed.block);
}

TEST_F(LazyBlocksTest, WhatTheDriverRefusesAfterAllEndsThisClientAlone) {
  for (CUresult* fails :
       {&test::fake().next_memory, &test::fake().next_map, &test::fake().next_access}) {
    restart();
    const CUdeviceptr address = allocated(4 * kMiB);
    *fails = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(work(), CUDA_ERROR_OUT_OF_MEMORY);
    *fails = CUDA_SUCCESS;
    EXPECT_EQ(work(), CUDA_ERROR_OUT_OF_MEMORY) << "its launch was lost: it must not go on";
    EXPECT_EQ(shared::client_load_sticky_error(client_segment.header()),
              uint32_t{CUDA_ERROR_OUT_OF_MEMORY});
    EXPECT_EQ(test::fake().live_memory, 0);
    EXPECT_EQ(map.promised().bytes(0), 4 * kMiB);
    free(address);
    EXPECT_EQ(map.promised().bytes(0), 0u);
  }
}

TEST_F(LazyBlocksTest, AClientThatGoesTakesItsPromisesAlong) {
  allocated(4 * kMiB);
  allocated(100);
  restart();
  EXPECT_EQ(map.blocks(), 0u);
  EXPECT_EQ(map.promised().bytes(0), 0u);
}

TEST_F(LazyBlocksTest, WhatEndsDuringAnAllocationTakesNoOtherPromiseAlong) {
  const auto account = map.budgets().open("f", policies::kNoMemoryLimit);
  uint32_t window = 0;
  while (!map.take_window(window)) ++window;
  BlockId ends = BlockId::kNone;
  LazyBlocks* asking = nullptr;
  LazyBlocks lazy(map, [&] {  // a look for what the client is done with, as a session's
    if (ends != BlockId::kNone) asking->ended(ends), map.release(ends);
    ends = BlockId::kNone;
    return true;
  });
  asking = &lazy;
  lazy.open(77, true);
  lazy.set_by_address(true);
  Placed first, second;
  ASSERT_EQ(lazy.make(window, 0, 8 * kMiB, *account, &first), CUDA_SUCCESS);
  lazy.given(kMiB, uint64_t{1} << 60);  // it had every address before
  ends = first.block;
  ASSERT_EQ(lazy.make(window, 0, 8 * kMiB, *account, &second), CUDA_SUCCESS);
  EXPECT_EQ(ends, BlockId::kNone);
  EXPECT_EQ(lazy.wanted_bytes(0), 8 * kMiB);
  EXPECT_EQ(lazy.back(0), CUDA_SUCCESS);
  EXPECT_TRUE(map.has_memory(second.block));
  map.release(second.block);
}

// Against a model of who has what: charged, promised and made always add up.
TEST_F(LazyBlocksTest, RandomProgramsAddUp) {
  std::mt19937 chance(7);
  struct Held {
    CUdeviceptr address;
    uint64_t bytes;
    bool made;
  };
  std::vector<Held> held;
  for (int step = 0; step < 20'000; ++step) {
    const unsigned what = chance() % 16;
    if (what < 7 && held.size() < 40) {
      const uint64_t bytes = (2 + chance() % 12) * kMiB;
      const uint64_t size = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
      held.push_back({allocated(bytes), size, false});
    } else if (what < 13 && !held.empty()) {
      const size_t which = chance() % held.size();
      free(held[which].address);
      held[which] = held.back();
      held.pop_back();
    } else if (what == 13) {
      work();
      for (Held& each : held) each.made = true;
    }
    uint64_t made = 0, all = 0;
    for (const Held& each : held) {
      all += each.bytes;
      made += each.made ? each.bytes : 0;
    }
    ASSERT_EQ(test::fake().taken(), made);
    ASSERT_EQ(map.promised().bytes(0), all - made);
    ASSERT_EQ(session->account().now(0).held_bytes, all);
  }
}

}  // namespace
}  // namespace tube::proxy

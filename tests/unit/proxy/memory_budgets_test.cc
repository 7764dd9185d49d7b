// Who holds how much: counted before the driver is asked, and given back exactly once, whatever
// fails in between.
#include <thread>
#include <vector>

#include "proxy/calls/array_charge.h"
#include "proxy/memory/memory_budgets.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

using policies::kNoMemoryLimit;

TEST(MemoryBudgets, AChargeMovesAndGoesBackOnce) {
  MemoryBudgets budgets;
  const auto account = budgets.open("f", 4 * kMiB);
  MemoryCharge a, b;
  ASSERT_EQ(account->charge(0, 3 * kMiB, &a), CUDA_SUCCESS);
  EXPECT_EQ(account->charge(0, 2 * kMiB, &b), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(account->refusals(), 1u);
  EXPECT_EQ(b.bytes(), 0u);
  b = std::move(a);
  EXPECT_EQ(budgets.now(0).held_bytes, 3 * kMiB);
  ASSERT_EQ(account->charge(0, 4 * kMiB, &b), CUDA_SUCCESS) << "what it stood for goes back first";
  a = {};
  EXPECT_EQ(account->now(0).held_bytes, 4 * kMiB);
  b = {};
  EXPECT_EQ(account->now(0).held_bytes, 0u);
  EXPECT_EQ(budgets.now(0).held_bytes, 0u);
}

TEST(MemoryBudgets, TheWorkflowsLimitLeavesNoTraceInTheFunction) {
  MemoryBudgets budgets;
  const uint64_t limits[] = {4 * kMiB};
  budgets.set_limits(limits);
  const auto one = budgets.open("one", kNoMemoryLimit), two = budgets.open("two", kNoMemoryLimit);
  MemoryCharge a, b;
  ASSERT_EQ(one->charge(3, 3 * kMiB, &a), CUDA_SUCCESS);
  EXPECT_EQ(two->charge(3, 2 * kMiB, &b), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(two->now(3).held_bytes, 0u);
  EXPECT_EQ(two->room(3), kMiB);
  EXPECT_EQ(two->charge(4, 4 * kMiB, &b), CUDA_SUCCESS) << "another GPU";
  EXPECT_EQ(two->room(4), 0u);
}

TEST(MemoryBudgets, LimitsAreOneForAllGpusOrOneForEach) {
  MemoryBudgets budgets;
  const uint64_t each[] = {1, 2};
  budgets.set_limits(each);
  EXPECT_EQ(budgets.now(1).limit_bytes, 2u);
  EXPECT_EQ(budgets.now(2).limit_bytes, kNoMemoryLimit);
  budgets.set_limits({each, 1});
  EXPECT_EQ(budgets.now(31).limit_bytes, 1u);
  budgets.set_limits({});
  EXPECT_EQ(budgets.now(0).limit_bytes, kNoMemoryLimit);
}

TEST(MemoryBudgets, AnAccountOutlivesItsFunctionAsLongAsItHoldsSomething) {
  MemoryBudgets budgets;
  MemoryCharge left;
  {
    const auto account = budgets.open("f", kNoMemoryLimit);
    ASSERT_EQ(account->charge(0, kMiB, &left), CUDA_SUCCESS);
  }
  EXPECT_EQ(budgets.now(0).held_bytes, kMiB);
  left = {};
  EXPECT_EQ(budgets.now(0).held_bytes, 0u);
}

TEST(MemoryBudgets, NothingIsMadeAheadForWhomeverHasMemoryAway) {
  MemoryBudgets budgets;
  const auto account = budgets.open("f", kNoMemoryLimit);
  MemoryCharge held, ahead;
  ASSERT_EQ(account->charge(0, 3 * kMiB, &held), CUDA_SUCCESS);
  held.leave_gpu(kMiB);
  EXPECT_FALSE(account->charge_ahead(0, kMiB, &ahead));
  EXPECT_TRUE(account->charge_ahead(1, kMiB, &ahead)) << "another GPU";
  ASSERT_TRUE(held.return_to_gpu(kMiB, false));
  EXPECT_TRUE(account->charge_ahead(0, kMiB, &ahead));
}

TEST(MemoryBudgets, WhatAnEndlessKernelUsesStaysTaken) {
  MemoryBudgets budgets;
  {
    const auto account = budgets.open("f", kNoMemoryLimit);
    MemoryCharge charge;
    ASSERT_EQ(account->charge(0, kMiB, &charge), CUDA_SUCCESS);
    account->abandon();
  }
  EXPECT_EQ(budgets.now(0).held_bytes, kMiB);
}

TEST(MemoryBudgets, AbsurdRequestsAreTheDriversToRefuseAndHurtNobody) {
  MemoryBudgets budgets;
  const auto account = budgets.open("f", kNoMemoryLimit), other = budgets.open("g", kNoMemoryLimit);
  MemoryCharge charges[8], small;
  for (MemoryCharge& charge : charges)
    EXPECT_EQ(account->charge(0, UINT64_MAX, &charge), CUDA_SUCCESS);
  EXPECT_EQ(other->charge(0, kMiB, &small), CUDA_SUCCESS);
  EXPECT_EQ(account->charge(-1, 1, &small), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(account->charge(info::kMaxDevices, 1, &small), CUDA_ERROR_OUT_OF_MEMORY);
}

// A request that does not fit never makes another one fail that does.
TEST(MemoryBudgets, ManyThreadsTakeExactlyWhatThereIs) {
  MemoryBudgets budgets;
  constexpr int kThreads = 4, kRounds = 2000;
  budgets.set_limit(0, kThreads * kMiB);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto account = budgets.open("f", kNoMemoryLimit);
      for (int round = 0; round < kRounds; ++round) {
        MemoryCharge fits, does_not;
        if (account->charge(0, kMiB, &fits) != CUDA_SUCCESS) ++refused;
        EXPECT_NE(account->charge(0, kThreads * kMiB, &does_not), CUDA_SUCCESS);
        EXPECT_LE(budgets.now(0).held_bytes, kThreads * kMiB);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(budgets.now(0).held_bytes, 0u);
}

TEST(ArrayCharge, CountsElementsOfAllLevels) {
  const uint32_t number = CU_AD_FORMAT_FLOAT;
  EXPECT_EQ(array_bytes({100, 0, 0, number, 1, 0}, 1), 400u);
  EXPECT_EQ(array_bytes({100, 10, 0, number, 4, 0}, 1), 16000u);
  EXPECT_EQ(array_bytes({8, 8, 8, number, 1, 0}, 1), 2048u);
  EXPECT_EQ(array_bytes({8, 8, 8, number, 1, 0}, 4), 2048u + 256 + 32 + 4);
  EXPECT_EQ(array_bytes({8, 8, 8, number, 1, 0}, UINT32_MAX), 2048u + 256 + 32 + 4);
  EXPECT_EQ(array_bytes({8, 8, 6, number, 1, CUDA_ARRAY3D_CUBEMAP}, 2), 6 * (256u + 64));
  EXPECT_EQ(array_bytes({8, 8, 0, CU_AD_FORMAT_BC7_UNORM, 4, 0}, 1), 64u);
  EXPECT_EQ(array_bytes({8, 8, 0, 0xdead, 99, 0}, 1), 256u);
  EXPECT_EQ(array_bytes({1 << 20, 1 << 20, 0, number, 4, CUDA_ARRAY3D_SPARSE}, 1), 0u);
  EXPECT_EQ(array_bytes({1 << 20, 8, 0, number, 4, CUDA_ARRAY3D_DEFERRED_MAPPING}, 1), 0u);
  EXPECT_EQ(array_bytes({UINT64_MAX, UINT64_MAX, UINT64_MAX, number, 4, 0}, 64), UINT64_MAX);
}

// The same through a session's records, with failures of the driver at every step.
class SessionBudgetsTest : public SessionTest {
 protected:
  uint64_t held() { return session->account().now(0).held_bytes; }
  void expect_held(uint64_t bytes) {
    EXPECT_EQ(held(), bytes);
    EXPECT_EQ(map.budgets().now(0).held_bytes, bytes);
  }
  CUresult take(uint64_t bytes, uint64_t* address = nullptr) {
    wire::tubeMemAlloc alloc{};
    alloc.bytes = bytes;
    wire::tubeMemAlloc_reply reply{};
    const CUresult result = call(alloc, &reply);
    if (address != nullptr) *address = reply.dptr;
    return result;
  }
  CUresult create(uint64_t bytes, uint64_t id) {
    wire::cuMemCreate create{};
    create.handle = id;
    create.size = bytes;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    std::memcpy(create.prop, &prop, sizeof(prop));
    return call(create, static_cast<wire::cuMemCreate_reply*>(nullptr));
  }
  CUresult create_array(uint64_t id, uint64_t width) {
    wire::cuArray3DCreate_v2 create{};
    create.pHandle = id;
    const CUDA_ARRAY3D_DESCRIPTOR shape{width, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    std::memcpy(create.pAllocateArray, &shape, sizeof(shape));
    return call(create, static_cast<wire::cuArray3DCreate_v2_reply*>(nullptr));
  }
};

TEST_F(SessionBudgetsTest, EveryFailureInTheMiddleGivesBack) {
  for (CUresult* step :
       {&test::fake().next_memory, &test::fake().next_map, &test::fake().next_access}) {
    for (const CUresult error : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
      *step = error;
      EXPECT_EQ(take(4 * kMiB), error);
      EXPECT_EQ(take(4096), error) << "a slab";
      if (step == &test::fake().next_memory) {
        EXPECT_EQ(create(4 * kMiB, make_id(1, 1)), error);
        EXPECT_EQ(create_array(make_id(1, 1), 1024), error);
      }
      expect_held(0);
      EXPECT_EQ(test::fake().live_memory, 0);
      *step = CUDA_SUCCESS;
    }
  }
  EXPECT_EQ(session->account().refusals(), 0u) << "no limit was in the way";
}

TEST_F(SessionBudgetsTest, TheDriverIsNotAskedForWhatDoesNotFit) {
  session->account().set_limit(0, 8 * kMiB);
  EXPECT_EQ(take(5 * kMiB), CUDA_SUCCESS);
  expect_held(6 * kMiB);
  const int before = test::fake().live_memory;
  EXPECT_EQ(take(4 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(create(4 * kMiB, make_id(1, 1)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(create_array(make_id(1, 1), 1024), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(test::fake().live_memory, before);
  EXPECT_EQ(test::fake().live_arrays, 0);
  expect_held(6 * kMiB);
  EXPECT_EQ(create(2 * kMiB, make_id(1, 1)), CUDA_SUCCESS) << "the id is still free";
  EXPECT_EQ(session->account().refusals(), 3u);
}

TEST_F(SessionBudgetsTest, AnEmptySlabMakesRoom) {
  session->account().set_limit(0, 4 * kMiB);
  uint64_t small = 0;
  ASSERT_EQ(take(4096, &small), CUDA_SUCCESS);
  wire::tubeMemFree free{};
  free.dptr = small;
  post(free);
  expect_held(2 * kMiB);
  EXPECT_EQ(take(4 * kMiB), CUDA_SUCCESS);
  expect_held(4 * kMiB);
}

TEST_F(SessionBudgetsTest, TheEndGivesEverythingBack) {
  ASSERT_EQ(take(4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(take(4096), CUDA_SUCCESS);
  ASSERT_EQ(create(2 * kMiB, make_id(1, 1)), CUDA_SUCCESS);
  ASSERT_EQ(create_array(make_id(1, 1), 1024), CUDA_SUCCESS);
  ASSERT_EQ(create_array(make_id(2, 1), 512), CUDA_SUCCESS);
  expect_held(4 * kMiB + 2 * kMiB + 2 * kMiB + 4 * kMiB + 2 * kMiB);
  wire::cuArrayDestroy destroy{};
  destroy.hArray = make_id(2, 1);
  ASSERT_EQ(call(destroy, static_cast<wire::cuArrayDestroy_reply*>(nullptr)), CUDA_SUCCESS);
  expect_held(12 * kMiB);
  session->teardown_for_test();
  expect_held(0);
}

TEST_F(SessionBudgetsTest, WhatOthersHaveOpenStaysItsMakers) {
  uint64_t address = 0;
  ASSERT_EQ(take(4 * kMiB, &address), CUDA_SUCCESS);
  MemoryHandle handle;
  ASSERT_EQ(map.shares().share(
                1, SharedMemory{session->memory().block_of(address), address, 4 * kMiB}, &handle),
            CUDA_SUCCESS);
  SharedMemory opened;
  ASSERT_EQ(map.shares().open(handle.token, 2, &opened), CUDA_SUCCESS);
  session->teardown_for_test();
  session.reset();
  EXPECT_EQ(map.budgets().now(0).held_bytes, 4 * kMiB);
  map.shares().close(handle.token);
  EXPECT_EQ(map.budgets().now(0).held_bytes, 0u);
}

}  // namespace
}  // namespace tube::proxy

// What a shared context's limits become, with a driver that only keeps them.
#include "proxy/gpu/shared_limits.h"

#include <gtest/gtest.h>

#include <array>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/context_gate.h"

namespace tube::proxy {
namespace {

std::array<size_t, 10> g_limits;
int g_calls = 0;
CUresult g_answer = CUDA_SUCCESS;

CUresult get_limit(size_t* value, CUlimit limit) {
  *value = g_limits[static_cast<size_t>(limit)];
  return CUDA_SUCCESS;
}
CUresult set_limit(CUlimit limit, size_t value) {
  ++g_calls;
  if (g_answer == CUDA_SUCCESS) g_limits[static_cast<size_t>(limit)] = value;
  return g_answer;
}

class SharedLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    g_limits = {1024, 8650752, 8 << 20, 2, 2048, 64, 0, 0, 0, 0};
    g_calls = 0;
    g_answer = CUDA_SUCCESS;
    driver_.cuCtxGetLimit = get_limit;
    driver_.cuCtxSetLimit = set_limit;
    driver_.cuCtxGetDevice = [](CUdevice*) { return CUDA_ERROR_INVALID_CONTEXT; };
  }
  CUresult want(uint64_t session, CUlimit limit, uint64_t value, uint32_t context = 1) {
    return limits_.want(driver_, gate_, session, context, limit, value);
  }
  size_t now(CUlimit limit) { return g_limits[static_cast<size_t>(limit)]; }

  Driver driver_{};
  ContextGate gate_{driver_};
  SharedLimits limits_;
};

TEST_F(SharedLimitsTest, TheStackIsTheLargestWishOfThoseWhoAreThere) {
  EXPECT_EQ(want(1, CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS);
  EXPECT_EQ(want(2, CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_STACK_SIZE), 8192u);
  EXPECT_EQ(want(2, CU_LIMIT_STACK_SIZE, 512), CUDA_SUCCESS);
  EXPECT_EQ(g_calls, 1);
  EXPECT_EQ(want(2, CU_LIMIT_STACK_SIZE, 16384, 257), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_STACK_SIZE), 16384u);
  limits_.forget(driver_, gate_, 2, 257);
  EXPECT_EQ(now(CU_LIMIT_STACK_SIZE), 8192u);
  limits_.forget(driver_, gate_, 1, 1);
  EXPECT_EQ(now(CU_LIMIT_STACK_SIZE), 1024u);
}

TEST_F(SharedLimitsTest, AWishMayShrinkButTheContextWaitsForTheEnd) {
  EXPECT_EQ(want(1, CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS);
  EXPECT_EQ(want(1, CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_STACK_SIZE), 8192u);
}

TEST_F(SharedLimitsTest, TheHeapHoldsAllOfThem) {
  EXPECT_EQ(want(1, CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20), CUDA_SUCCESS);
  EXPECT_EQ(want(2, CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20), CUDA_SUCCESS);
  EXPECT_EQ(want(3, CU_LIMIT_MALLOC_HEAP_SIZE, 4 << 20), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_MALLOC_HEAP_SIZE), size_t{40} << 20);
}

TEST_F(SharedLimitsTest, ARefusalIsTheDriversOwnAndLeavesNoWish) {
  g_answer = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(want(1, CU_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY);
  g_answer = CUDA_SUCCESS;
  EXPECT_EQ(want(2, CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_STACK_SIZE), 2048u);
}

TEST_F(SharedLimitsTest, AHeapThatIsInUseServesWhomItIsLargeEnoughFor) {
  EXPECT_EQ(want(1, CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20), CUDA_SUCCESS);
  g_answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(want(2, CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20), CUDA_SUCCESS);
  EXPECT_EQ(want(2, CU_LIMIT_MALLOC_HEAP_SIZE, 128 << 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(want(2, CU_LIMIT_PRINTF_FIFO_SIZE, 128 << 20), CUDA_SUCCESS);
}

TEST_F(SharedLimitsTest, AHeapMadeLargeAtTheStartServesWishesAfterItsFirstUse) {
  EXPECT_EQ(limits_.reserve_heap(driver_, uint64_t{256} << 20), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_MALLOC_HEAP_SIZE), size_t{256} << 20);
  g_answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(want(1, CU_LIMIT_MALLOC_HEAP_SIZE, 128 << 20), CUDA_SUCCESS);
  EXPECT_EQ(want(2, CU_LIMIT_MALLOC_HEAP_SIZE, 128 << 20), CUDA_SUCCESS);
  EXPECT_EQ(g_calls, 1);
  EXPECT_EQ(want(3, CU_LIMIT_MALLOC_HEAP_SIZE, 512 << 20), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharedLimitsTest, AReserveNoLargerThanTheHeapChangesNothing) {
  EXPECT_EQ(limits_.reserve_heap(driver_, 4 << 20), CUDA_SUCCESS);
  EXPECT_EQ(g_calls, 0);
  g_answer = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(limits_.reserve_heap(driver_, uint64_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
  g_answer = CUDA_SUCCESS;
  EXPECT_EQ(want(1, CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_MALLOC_HEAP_SIZE), size_t{16} << 20);
}

TEST_F(SharedLimitsTest, ABufferThatIsInUseIsTheWish) {
  g_answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(want(1, CU_LIMIT_PRINTF_FIFO_SIZE, uint64_t{1} << 40), CUDA_SUCCESS);
  g_answer = CUDA_SUCCESS;
  EXPECT_EQ(want(2, CU_LIMIT_PRINTF_FIFO_SIZE, 16 << 20), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_PRINTF_FIFO_SIZE), size_t{16} << 20);
}

TEST_F(SharedLimitsTest, WhatNoMemoryHoldsIsNobodysWish) {
  g_answer = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(want(1, CU_LIMIT_PRINTF_FIFO_SIZE, uint64_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
  g_answer = CUDA_SUCCESS;
  EXPECT_EQ(want(2, CU_LIMIT_PRINTF_FIFO_SIZE, 16 << 20), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_PRINTF_FIFO_SIZE), size_t{16} << 20);
}

TEST_F(SharedLimitsTest, AHugeHeapDoesNotWrapAround) {
  EXPECT_EQ(want(1, CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20), CUDA_SUCCESS);
  g_answer = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(want(1, CU_LIMIT_MALLOC_HEAP_SIZE, ~uint64_t{0}, 2), CUDA_ERROR_OUT_OF_MEMORY);
  g_answer = CUDA_SUCCESS;
  EXPECT_EQ(want(2, CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20), CUDA_SUCCESS);
  EXPECT_EQ(now(CU_LIMIT_MALLOC_HEAP_SIZE), size_t{40} << 20);
}

TEST_F(SharedLimitsTest, HintsAreNotApplied) {
  EXPECT_EQ(want(1, CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128), CUDA_SUCCESS);
  EXPECT_EQ(want(1, CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20), CUDA_SUCCESS);
  EXPECT_EQ(g_calls, 0);
}

}  // namespace
}  // namespace tube::proxy

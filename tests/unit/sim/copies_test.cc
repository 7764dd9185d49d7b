// In which order the copies of one direction are served (sim/machine/copy_order.h), step by step.
// Run with TUBE_SIM_COPIES=engine and with TUBE_SIM_TIME=virtual: the order is the same.
#include "tests/unit/sim/copies.h"

#include <atomic>

namespace tube::sim::test {
namespace {

class Copies : public CopiesTest {
 protected:
  // A chain of copies to the device as a graph.
  CUgraphExec chain(int nodes, size_t bytes) {
    CUstream s = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < nodes; ++i) up(s, bytes);
    EXPECT_EQ(CUDA_SUCCESS, cuStreamEndCapture(s, &graph));
    EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiate(&exec, graph, 0));
    return exec;
  }
  // Past the engines.
  unsigned first_word() {
    unsigned* word = nullptr;
    EXPECT_EQ(CUDA_SUCCESS,
              cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(&word), 4, CU_MEM_ATTACH_GLOBAL));
    CUstream s = stream('-');
    EXPECT_EQ(CUDA_SUCCESS,
              cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(word), device_memory_, 4, s));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(s));
    return *word;
  }
};

TEST_F(Copies, OfAStreamWithTwoInFlightStarveTheOthers) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, 4 * kMiB);
  up(bulk, 4 * kMiB);
  up(victim, kMiB);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(1, tube_sim_step());
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(victim));
    up(bulk, 4 * kMiB);
  }
  EXPECT_EQ(3, steps(100));
  CU_OK(cuStreamQuery(victim));
  std::string expected(103, 'b');
  expected.back() = 'v';
  EXPECT_EQ(expected, order());
}

TEST_F(Copies, OfAStreamWithOneInFlightLetTheOthersIn) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, 4 * kMiB);
  for (int i = 0; i < 3; ++i) {
    up(victim, kMiB);
    ASSERT_EQ(1, tube_sim_step());
    up(bulk, 4 * kMiB);
    ASSERT_EQ(1, tube_sim_step());
    CU_OK(cuStreamQuery(victim));
  }
  EXPECT_EQ("bvbvbv", order());
}

TEST_F(Copies, BehindTheHolderAreServedInTheOrderOfTheirArrival) {
  CUstream a = stream('a'), b = stream('b'), c = stream('c');
  up(a, kMiB);
  up(c, kMiB);
  up(b, kMiB);
  up(c, kMiB);
  up(a, kMiB);
  steps(5);
  EXPECT_EQ("aaccb", order());
}

TEST_F(Copies, OfSmallSizesGoUpAnotherWay) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, 4 * kMiB);
  up(bulk, 4 * kMiB);
  EXPECT_FALSE(uses_engine([&] { up(victim, 24 * kKiB); }));
  EXPECT_FALSE(uses_engine([&] { pageable_up(victim, 64 * kKiB); }));
  CU_OK(cuStreamSynchronize(victim));
  EXPECT_TRUE(uses_engine([&] { up(victim, 24 * kKiB + 1); }));
  CUstream other = stream('o');
  EXPECT_TRUE(uses_engine([&] { pageable_up(other, 64 * kKiB + 1); }));
}

TEST_F(Copies, DownUseTheEngineInEverySize) {
  CUstream bulk = stream('b'), victim = stream('v');
  down(bulk, 4 * kMiB);
  down(bulk, 4 * kMiB);
  down(victim, kKiB);
  steps(1);
  down(bulk, 4 * kMiB);
  steps(1);
  CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(victim));
  steps(2);
  EXPECT_EQ("bbbv", order());
}

TEST_F(Copies, OfOneDirectionDoNotWaitForTheOther) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, 4 * kMiB);
  up(bulk, 4 * kMiB);
  down(victim, kMiB);
  EXPECT_EQ(1u, tube_sim_pending(0, 1));  // the second one is not ready before the first has ended
  EXPECT_EQ(1u, tube_sim_pending(0, 0));
  steps(2);
  CU_OK(cuStreamQuery(victim));
}

TEST_F(Copies, WithinTheDeviceFillsAndKernelsAreOutsideOfIt) {
  load();
  CUstream bulk = stream('b'), other = stream('o');
  up(bulk, 4 * kMiB);
  up(bulk, 4 * kMiB);
  CU_OK(cuMemcpyDtoDAsync(device_memory_, device_memory_ + kMiB, kMiB, other));
  CU_OK(cuMemsetD32Async(device_memory_, 1, 1024, other));
  CU_OK(launch_add(device_memory_, 4, 1, other));
  CU_OK(cuStreamSynchronize(other));
}

TEST_F(Copies, OfRowsCountAllTheirBytes) {
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, 4 * kMiB);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = pinned_;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = device_memory_;
  rows.srcPitch = rows.dstPitch = 2 * kKiB;
  rows.WidthInBytes = kKiB;
  rows.Height = 24;
  EXPECT_FALSE(uses_engine([&] { CU_OK(cuMemcpy2DAsync(&rows, victim)); }));
  CU_OK(cuStreamSynchronize(victim));
  rows.Height = 25;
  EXPECT_TRUE(uses_engine([&] { CU_OK(cuMemcpy2DAsync(&rows, victim)); }));
}

TEST_F(Copies, OfGraphsKeepTheEngineAsTheStreamDoes) {
  CUstream bulk = stream('g'), victim = stream('v');
  CUgraphExec graph = chain(3, kMiB);
  CU_OK(cuGraphLaunch(graph, bulk));
  CU_OK(cuGraphLaunch(graph, bulk));
  up(victim, kMiB);
  steps(3);
  CU_OK(cuGraphLaunch(graph, bulk));
  steps(100);
  EXPECT_EQ("gggggggggv", order());
}

TEST_F(Copies, OfAGraphStarveBesideAStream) {
  CUstream bulk = stream('b'), victim = stream('g');
  up(bulk, kMiB);
  up(bulk, kMiB);
  CU_OK(cuGraphLaunch(chain(2, kMiB), victim));
  steps(1);
  up(bulk, kMiB);
  steps(100);
  EXPECT_EQ("bbbgg", order());
}

TEST_F(Copies, OfAnotherContextTakeTurns) {
  CUstream bulk = stream('b'), victim = stream('v');
  for (int i = 0; i < 4; ++i) up(bulk, kMiB);
  up(victim, kMiB);
  CUcontext apart = nullptr;
  CU_OK(cuCtxCreate(&apart, nullptr, 0, device_));
  CUstream other = stream('o');
  CUdeviceptr p = 0;
  CU_OK(cuMemAlloc(&p, kMiB));
  for (int i = 0; i < 2; ++i) CU_OK(cuMemcpyHtoDAsync(p, pinned_, kMiB, other));
  steps(100);
  EXPECT_EQ("bobobbv", order());
  CU_OK(cuCtxDestroy(apart));
}

TEST_F(Copies, WithEventsAndWordsBetweenThemStayTwoInFlight) {
  CUstream bulk = stream('b'), victim = stream('v');
  CUevent event = nullptr;
  CU_OK(cuEventCreate(&event, 0));
  void* page = nullptr;
  CU_OK(cuMemHostAlloc(&page, 4096, 0));
  auto* word = static_cast<std::atomic<unsigned>*>(page);
  word->store(0);
  for (unsigned i = 1; i <= 3; ++i) {
    up(bulk, kMiB);
    CU_OK(cuStreamWriteValue32(bulk, reinterpret_cast<CUdeviceptr>(page), i, 0));
    CU_OK(cuEventRecord(event, bulk));
  }
  up(victim, kMiB);
  for (unsigned i = 1; i <= 3; ++i) {
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    steps(1);
    EXPECT_EQ(i, word->load());  // nothing to wait for: it came with the copy's end
  }
  CU_OK(cuEventQuery(event));
  steps(1);
  EXPECT_EQ("bbbv", order());
}

TEST_F(Copies, AWordBehindACopyThatHasEndedWaitsAsACopyWould) {
  CUstream bulk = stream('b'), victim = stream('v'), led = stream('l');
  void* page = nullptr;
  CU_OK(cuMemHostAlloc(&page, 4096, 0));
  auto* words = static_cast<std::atomic<unsigned>*>(page);
  const auto at = reinterpret_cast<CUdeviceptr>(page);
  words[0] = words[1] = 0;
  up(victim, kMiB);
  up(led, kMiB);
  steps(2);
  CU_OK(cuMemsetD32Async(device_memory_, 0, 1, led));
  CU_OK(cuStreamSynchronize(led));
  for (int i = 0; i < 3; ++i) up(bulk, kMiB);
  CU_OK(cuStreamWriteValue32(victim, at, 1, 0));
  CU_OK(cuStreamWriteValue32(led, at + 4, 1, 0));
  EXPECT_EQ(1u, words[1].load()) << "a memset led it to another queue";
  for (int i = 0; i < 2; ++i) {
    steps(1);
    EXPECT_EQ(0u, words[0].load());
  }
  steps(1);
  EXPECT_EQ(1u, words[0].load());
}

TEST_F(Copies, WithAKernelBetweenThemAreOneInFlight) {
  load();
  CUstream bulk = stream('b'), victim = stream('v');
  up(bulk, kMiB);
  CU_OK(launch_add(device_memory_, 4, 1, bulk));
  up(bulk, kMiB);
  up(victim, kMiB);
  steps(1);
  tube_sim_wait_for_pending(2);
  steps(2);
  EXPECT_EQ("bvb", order());
}

TEST_F(Copies, OfPageableMemoryKeepNobodyWaiting) {
  CUstream bulk = stream('p'), victim = stream('v');
  pageable_up(bulk, kMiB);
  pageable_up(bulk, kMiB);
  up(victim, kMiB);
  steps(3);
  EXPECT_EQ("pvp", order());
}

TEST_F(Copies, AStreamThatWaitsForAWordIsReleasedWithTheCopyThatWritesIt) {
  CUstream first = stream('f'), second = stream('s');
  void* page = nullptr;
  CU_OK(cuMemHostAlloc(&page, 4096, 0));
  std::memset(page, 0, 4096);
  const auto word = reinterpret_cast<CUdeviceptr>(page);
  up(first, kMiB);
  CU_OK(cuStreamWriteValue32(first, word, 1, 0));
  CU_OK(cuStreamWaitValue32(second, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  up(second, kMiB);
  EXPECT_EQ(1u, tube_sim_pending(0, 1));
  steps(1);
  EXPECT_EQ(1u, tube_sim_pending(0, 1));
  steps(1);
  EXPECT_EQ("fs", order());
}

TEST_F(Copies, BytesArriveAtTheEnd) {
  CUstream s = stream('s');
  CU_OK(cuMemsetD8(device_memory_, 1, kMiB));
  CU_OK(cuCtxSynchronize());
  std::memset(pinned_, 2, kMiB);
  up(s, kMiB);
  EXPECT_EQ(0x01010101u, first_word());
  std::memset(pinned_, 3, kMiB);  // a program's mistake shows
  steps(1);
  EXPECT_EQ(0x03030303u, first_word());
}

TEST_F(Copies, GoOnByThemselvesWhenLetGo) {
  CUstream bulk = stream('b'), victim = stream('v');
  for (int i = 0; i < 5; ++i) up(bulk, kMiB);
  up(victim, kMiB);
  for (int i = 0; i < 5; ++i) up(bulk, kMiB);
  tube_sim_hold(0);
  CU_OK(cuCtxSynchronize());
  EXPECT_EQ("bbbbbbbbbbv", order());
  EXPECT_EQ(0, tube_sim_step());  // not held
}

TEST_F(Copies, OfAFailedContextEndToo) {
  load();
  CUstream bulk = stream('b'), faults = stream('f');
  up(bulk, kMiB);
  up(bulk, kMiB);
  CU_OK(launch_one(store_, 64, faults));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(faults));
  EXPECT_EQ(2, steps(100));
}

}  // namespace
}  // namespace tube::sim::test

#include "tests/unit/sim/support.h"

#include <atomic>
#include <thread>

namespace tube::sim::test {
namespace {

class StreamTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    load();
    CU_OK(cuMemHostAlloc(&flag_page_, 4096, 0));
    flag_ = static_cast<std::atomic<unsigned>*>(flag_page_);
    flag_->store(0);
  }
  CUdeviceptr flag() { return reinterpret_cast<CUdeviceptr>(flag_page_); }
  void* flag_page_ = nullptr;
  std::atomic<unsigned>* flag_ = nullptr;
};

TEST_F(StreamTest, ABlockedKernelDoesNotBlockOtherStreams) {
  CUstream stuck, free_one;
  CU_OK(cuStreamCreate(&stuck, CU_STREAM_NON_BLOCKING));
  CU_OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
  CU_OK(launch_one(spin_, flag(), stuck));
  CUdeviceptr p;
  CU_OK(cuMemAlloc(&p, 4));
  CU_OK(launch_one(store_, p, free_one));
  CU_OK(cuStreamSynchronize(free_one));
  CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stuck));
  flag_->store(1);
  CU_OK(cuStreamSynchronize(stuck));
  EXPECT_EQ(1u, read(p));
}

TEST_F(StreamTest, LegacyStreamOrdersBlockingStreamsOnly) {
  CUstream blocking, apart;
  CU_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CU_OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
  CUdeviceptr p;
  CU_OK(cuMemAlloc(&p, 8));
  CU_OK(cuMemsetD32(p, 0, 2));
  CU_OK(cuCtxSynchronize());
  CU_OK(launch_one(spin_, flag(), blocking));
  CU_OK(launch_one(store_, p));             // legacy: behind `blocking`
  CU_OK(launch_one(store_, p + 4, apart));  // free
  CU_OK(cuStreamSynchronize(apart));
  CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
  unsigned first = 1;
  CU_OK(cuMemcpyDtoHAsync(&first, p, 4, apart));
  EXPECT_EQ(0u, first);
  flag_->store(1);
  CU_OK(cuStreamSynchronize(nullptr));
  EXPECT_EQ(1u, read(p));
}

TEST_F(StreamTest, EventsOrderStreams) {
  CUstream a, b;
  CUevent event;
  CU_OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CU_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CU_OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CU_IS(CUDA_SUCCESS, cuEventQuery(event));  // never recorded
  CU_OK(launch_one(spin_, flag(), a));
  CU_OK(cuEventRecord(event, a));
  CU_OK(cuStreamWaitEvent(b, event, 0));
  CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
  flag_->store(1);
  CU_OK(cuStreamSynchronize(b));
  CU_IS(CUDA_SUCCESS, cuEventQuery(event));
  float ms = -1;
  CU_OK(cuEventElapsedTime(&ms, event, event));
  EXPECT_EQ(0.0f, ms);
}

TEST_F(StreamTest, TimingNeedsTwoTimedRecordedEvents) {
  CUevent timed, untimed;
  float ms;
  CU_OK(cuEventCreate(&timed, 0));
  CU_OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed, timed));
  CU_OK(cuEventRecord(timed, nullptr));
  CU_OK(cuEventRecord(untimed, nullptr));
  CU_OK(cuEventSynchronize(untimed));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, timed, untimed));
  CU_OK(cuEventDestroy(untimed));
  CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(untimed));
}

TEST_F(StreamTest, WaitsForAndWritesWords) {
  CUstream a, b;
  CU_OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CU_OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CU_OK(cuStreamWaitValue32(a, flag(), 5, CU_STREAM_WAIT_VALUE_GEQ));
  CU_OK(cuStreamWriteValue64(a, flag() + 64, 77, 0));
  CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
  CU_OK(cuStreamWriteValue32(b, flag(), 6, 0));
  CU_OK(cuStreamSynchronize(a));
  uint64_t word = 0;
  std::memcpy(&word, static_cast<char*>(flag_page_) + 64, 8);
  EXPECT_EQ(77u, word);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, flag() + 1, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(a, 0x1000, 0, 0));
}

TEST_F(StreamTest, HostFunctionsRunInOrderAndMayNotCallCuda) {
  struct Seen {
    CUresult inside = CUDA_SUCCESS;
    unsigned value = 0;
    const unsigned* source;
  };
  unsigned out = 0;
  void* pinned;
  CU_OK(cuMemHostAlloc(&pinned, 4, 0));
  CUdeviceptr p;
  CU_OK(cuMemAlloc(&p, 4));
  Seen seen;
  seen.source = static_cast<unsigned*>(pinned);
  CUstream s;
  CU_OK(cuStreamCreate(&s, 0));
  CU_OK(cuMemsetD32Async(p, 21, 1, s));
  CU_OK(cuMemcpyDtoHAsync(pinned, p, 4, s));
  CU_OK(cuLaunchHostFunc(
      s,
      [](void* data) {
        auto* x = static_cast<Seen*>(data);
        x->value = *x->source;
        x->inside = cuCtxSynchronize();
      },
      &seen));
  CU_OK(cuStreamSynchronize(s));
  EXPECT_EQ(21u, seen.value);
  EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, seen.inside);
  (void)out;
}

TEST_F(StreamTest, APageableSourceMayChangeAfterTheCall) {
  CUstream s;
  CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr p;
  CU_OK(cuMemAlloc(&p, 4));
  CU_OK(launch_one(spin_, flag(), s));
  unsigned value = 1234;
  CU_OK(cuMemcpyHtoDAsync(p, &value, 4, s));
  value = 0;
  flag_->store(1);
  CU_OK(cuStreamSynchronize(s));
  EXPECT_EQ(1234u, read(p));
}

TEST_F(StreamTest, DestroyReturnsWhileWorkGoesOn) {
  CUstream s;
  CUdeviceptr p;
  CU_OK(cuMemAlloc(&p, 4));
  CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CU_OK(launch_one(spin_, flag(), s));
  CU_OK(launch_one(store_, p, s));
  CU_OK(cuStreamDestroy(s));
  flag_->store(1);
  CU_OK(cuCtxSynchronize());
  EXPECT_EQ(1u, read(p));
}

TEST_F(StreamTest, ThreadsShareTheDevice) {
  constexpr int kThreads = 4, kLaunches = 50;
  CUdeviceptr p;
  CU_OK(cuMemAlloc(&p, kThreads * 4));
  CU_OK(cuMemsetD32(p, 0, kThreads));
  CU_OK(cuCtxSynchronize());
  std::vector<std::thread> threads;
  std::atomic<int> bad{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (cuCtxSetCurrent(context_) != CUDA_SUCCESS) ++bad;
      for (int i = 0; i < kLaunches; ++i)
        if (launch_add(p + static_cast<unsigned>(t) * 4, 1, 1, CU_STREAM_PER_THREAD) !=
            CUDA_SUCCESS)
          ++bad;
      if (cuStreamSynchronize(CU_STREAM_PER_THREAD) != CUDA_SUCCESS) ++bad;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(0, bad.load());
  for (unsigned t = 0; t < kThreads; ++t)
    EXPECT_EQ(static_cast<unsigned>(kLaunches), read(p + t * 4));
}

}  // namespace
}  // namespace tube::sim::test

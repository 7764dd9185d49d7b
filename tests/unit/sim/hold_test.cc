// Beside a stream that waits for a value: which calls let everything behind them stand, or stand
// themselves.
#include "tests/unit/sim/support.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace tube::sim::test {
namespace {

constexpr char kPrints[] = R"(
.version 8.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .global .align 1 .b8 text[3] = {104, 10, 0};
.visible .entry say() {
  .reg .b64 %d<2>; .reg .b32 %r<2>;
  cvta.global.u64 %d0, text; mov.u64 %d1, 0;
  { .param .b64 a; .param .b64 b; .param .b32 c;
    st.param.b64 [a], %d0; st.param.b64 [b], %d1;
    call.uni (c), vprintf, (a, b); ld.param.b32 %r1, [c]; }
  ret;
}
)";

constexpr char kLocal[] = R"(
.version 8.0
.target sm_70
.address_size 64
.visible .entry local() { .local .align 8 .b8 l[4096]; .reg .b64 %d<2>; mov.u64 %d1, l; st.local.u64 [%d1], %d1; ret; }
)";

class HoldTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    load();
    CU_OK(cuMemHostAlloc(&page_, 4096, 0));
    word_ = static_cast<std::atomic<unsigned>*>(page_);
    word_->store(0);
    CU_OK(cuMemAlloc(&p_, 64));
    CU_OK(cuStreamCreate(&held_, CU_STREAM_NON_BLOCKING));
    CU_OK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    CU_OK(launch_one(store_, p_, other_));
    CU_OK(cuCtxSynchronize());
  }
  void TearDown() override {
    open();
    SimTest::TearDown();
  }
  void stop() {
    CU_OK(cuStreamWaitValue32(held_, reinterpret_cast<CUdeviceptr>(page_), 1,
                              CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { word_->store(1); }
  void let_go() {
    open();
    CU_OK(cuCtxSynchronize());
    word_->store(0);
  }
  // A fill that is held is never done, so looking for a moment suffices; that one is not held shows
  // when it is done.
  bool stands(CUstream stream) {
    fill(stream);
    return !done_within(stream, kMoment);
  }
  bool goes_on(CUstream stream) {
    fill(stream);
    return done_within(stream, kLong);
  }
  // Whether the call returns only after the stream was let go, and the other way round.
  template <class Call>
  bool blocks(Call call) {
    return !returns_within(kMoment, call);
  }
  template <class Call>
  bool returns(Call call) {
    return returns_within(kLong, call);
  }
  CUfunction function(const char* image, const char* name) {
    CUmodule module = nullptr;
    CUfunction f = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, image));
    EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&f, module, name));
    return f;
  }
  CUresult launch(CUfunction f) {
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, other_, nullptr, nullptr);
  }
  CUgraph graph_of(CUfunction f) {
    CUgraph graph = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(other_, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(CUDA_SUCCESS, launch(f));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamEndCapture(other_, &graph));
    return graph;
  }

  static constexpr std::chrono::milliseconds kMoment{100};
  static constexpr std::chrono::seconds kLong{60};
  void fill(CUstream stream) { EXPECT_EQ(CUDA_SUCCESS, cuMemsetD32Async(p_ + 32, 5, 1, stream)); }
  static bool done_within(CUstream stream, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      if (cuStreamQuery(stream) == CUDA_SUCCESS) return true;
      std::this_thread::yield();
    }
    return false;
  }
  template <class Call>
  bool returns_within(std::chrono::milliseconds limit, Call call) {
    stop();
    auto returned = std::async(std::launch::async, [&] {
      EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(context_));
      EXPECT_EQ(CUDA_SUCCESS, call());
    });
    const bool early = returned.wait_for(limit) == std::future_status::ready;
    open();
    returned.get();
    let_go();
    return early;
  }

  void* page_ = nullptr;
  std::atomic<unsigned>* word_ = nullptr;
  CUdeviceptr p_ = 0;
  CUstream held_ = nullptr, other_ = nullptr;
};

TEST_F(HoldTest, ANewFunctionHoldsStreamsMadeLaterToo) {
  CUmodule module = nullptr;
  CUfunction f = nullptr;
  CU_OK(cuModuleLoadData(&module, kKernels));
  stop();
  CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, module, "nothing"));
  EXPECT_TRUE(goes_on(other_));
  CU_OK(cuModuleGetFunction(&f, module, "add"));
  CUstream later = nullptr;
  CU_OK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
  EXPECT_TRUE(stands(later));
  let_go();
  stop();
  CU_OK(cuModuleGetFunction(&f, module, "add"));
  EXPECT_TRUE(goes_on(later));
}

TEST_F(HoldTest, TheNextLaunchAfterAnotherStackLimitHolds) {
  CU_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));  // as it is
  stop();
  CU_OK(launch_one(store_, p_, other_));
  EXPECT_TRUE(goes_on(other_));
  let_go();
  CU_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  stop();
  EXPECT_TRUE(goes_on(other_)) << "a fill does not hold";
  CU_OK(launch_one(store_, p_, other_));
  EXPECT_TRUE(stands(other_));
}

TEST_F(HoldTest, CodeThatNeedsMoreHoldsAtTheNextLaunchOfAnyKernel) {
  function(kLocal, "local");
  stop();
  CU_OK(launch_one(store_, p_, other_));
  EXPECT_TRUE(stands(other_));
  let_go();
  function(kLocal, "local");
  stop();
  CU_OK(launch_one(store_, p_, other_));
  EXPECT_TRUE(goes_on(other_)) << "no more than before";
}

TEST_F(HoldTest, TheFirstPrintingKernelHoldsWhereAnInstanceIsMadeAndOnce) {
  CUfunction say = function(kPrints, "say");
  CU_OK(launch_one(store_, p_, other_));  // settles
  CUgraph graph = graph_of(say);
  EXPECT_TRUE(blocks([&] {  // more local memory than before: calls have frames here
    CUgraphExec exec = nullptr;
    return cuGraphInstantiate(&exec, graph, 0);
  }));
  stop();
  CU_OK(launch(say));
  EXPECT_TRUE(goes_on(other_));
}

TEST_F(HoldTest, MoreLocalMemoryBlocksALaunchAndAnInstanceOnce) {
  CUfunction local = function(kLocal, "local");
  CU_OK(launch_one(store_, p_, other_));
  CUgraph graph = graph_of(local);
  CUgraphExec exec = nullptr;
  EXPECT_TRUE(blocks([&] { return cuGraphInstantiate(&exec, graph, 0); }));
  EXPECT_TRUE(returns([&] { return launch(local); }));
  EXPECT_TRUE(returns([&] { return cuGraphLaunch(exec, other_); }));
}

TEST_F(HoldTest, RoomForStreamsIsMadeInBlocks) {
  CUstream more = nullptr;
  for (int i = 2; i < 36; ++i) CU_OK(cuStreamCreate(&more, CU_STREAM_NON_BLOCKING));
  CU_OK(cuStreamDestroy(more));
  EXPECT_TRUE(returns([&] { return cuStreamCreate(&more, CU_STREAM_NON_BLOCKING); }));
  EXPECT_TRUE(blocks([&] { return cuStreamCreate(&more, CU_STREAM_NON_BLOCKING); }));
  for (int i = 37; i < 36 + 86; ++i) CU_OK(cuStreamCreate(&more, CU_STREAM_NON_BLOCKING));
  EXPECT_TRUE(blocks([&] { return cuStreamCreate(&more, CU_STREAM_NON_BLOCKING); }));
}

TEST_F(HoldTest, AGreenContextIsMadeInAnIdleContext) {
  CUgreenCtx green = nullptr;
  EXPECT_TRUE(blocks(
      [&] { return cuGreenCtxCreate(&green, nullptr, device_, CU_GREEN_CTX_DEFAULT_STREAM); }));
  CU_OK(cuGreenCtxDestroy(green));
}

}  // namespace
}  // namespace tube::sim::test

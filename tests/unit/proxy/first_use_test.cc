// Which launches pass the context gate because they are the first on a GPU that print, assert or
// allocate: through a session, while a stream of another program waits.
//
// With no patience, passing the gate is a look at the event behind the other's wait.
#include <algorithm>
#include <thread>

#include "proxy/gpu/driver_wrappers.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kLibrary = make_id(1, 1), kKernel = make_id(1, 1), kGraph = make_id(1, 1),
                   kExec = make_id(1, 1);

class FirstUse : public SessionTest {
 protected:
  FirstUse() {
    looks = 0;
    over = false;
    ran.clear();
    driver.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
    driver.cuCtxGetCurrent = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    driver.cuKernelSetAttribute = [](CUfunction_attribute, int, CUkernel, CUdevice) {
      return CUDA_SUCCESS;
    };
    driver.cuStreamWaitValue32_v2 = [](CUstream, CUdeviceptr, cuuint32_t, unsigned) {
      return CUDA_SUCCESS;
    };
    driver.cuEventQuery = [](CUevent) {
      ++looks;
      return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    driver.cuLaunchKernel = [](CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                               unsigned int, unsigned int, unsigned int, CUstream stream, void**,
                               void**) {
      ran.push_back(stream);
      return test::fake().next_launch;
    };
    driver.cuGraphLaunch = [](CUgraphExec, CUstream) { return test::fake().next_launch; };
    driver.cuGraphInstantiateWithParams = [](CUgraphExec* exec, CUgraph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS*) {
      return *exec = reinterpret_cast<CUgraphExec>(0x70), CUDA_SUCCESS;
    };
    driver.cuGraphGetNodes = [](CUgraph, CUgraphNode*, size_t* count) {
      return *count = 0, CUDA_SUCCESS;
    };
    driver.cuGraphExecUpdate_v2 = [](CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*) {
      return CUDA_SUCCESS;
    };
    driver.cuGraphDestroy = [](CUgraph) { return CUDA_SUCCESS; };
    driver.cuGraphExecDestroy = [](CUgraphExec) { return CUDA_SUCCESS; };
    wrap_driver(driver, gpus.gate());
    gpus.gate().set_patience(0);
  }
  ~FirstUse() override {
    over = true;
    session.reset();
    this_caller() = {};
  }

  void another_program_waits() {
    std::thread([this] {
      this_caller().owner = 2;
      EXPECT_EQ(driver.cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
    }).join();
  }
  template <class Call>
  bool looked_during(Call call) {
    const int before = looks;
    call();
    return looks != before;
  }
  bool passes_the_gate(uint64_t kernel = kKernel) {
    return looked_during([&] { launch(kernel); });
  }
  bool making_an_instance_passes_the_gate() {
    wire::tubeGraphInstantiate make{};
    make.graph = kGraph;
    make.exec = kExec;
    wire::tubeGraphInstantiate_reply reply{};
    return looked_during([&] { EXPECT_EQ(call(make, &reply), CUDA_SUCCESS); });
  }
  bool updating_it_passes_the_gate() {
    wire::tubeGraphExecUpdate update{};
    update.graph = kGraph;
    update.exec = kExec;
    wire::tubeGraphExecUpdate_reply reply{};
    return looked_during([&] { EXPECT_EQ(call(update, &reply), CUDA_SUCCESS); });
  }
  bool launching_it_passes_the_gate() {
    wire::cuGraphLaunch one{};
    one.hGraph = kExec;
    return looked_during([&] { post(one); });
  }

  const std::string plain = ".version 8.0\n.entry k() { ret; }\n.entry other() { ret; }\n";
  const std::string prints = plain + ".extern .func (.param .b32 r) vprintf(.param .b64 f);\n";
  const std::string allocates = plain + ".extern .func (.param .b64 r) malloc(.param .b64 f);\n";
  static inline int looks = 0;
  static inline bool over = false;
  static inline std::vector<CUstream> ran;
};

TEST_F(FirstUse, APlainKernelNeverPasses) {
  load(plain);
  another_program_waits();
  EXPECT_FALSE(passes_the_gate());
  EXPECT_EQ(ran.size(), 1u);
}

TEST_F(FirstUse, OfWhatOnlyTheImageTellsIsEachKernels) {
  for (const std::string& text : {prints, allocates}) {
    load(text);
    look_up(kLibrary, make_id(2, 1), "other");
    another_program_waits();
    EXPECT_TRUE(passes_the_gate());
    EXPECT_FALSE(passes_the_gate());
    EXPECT_TRUE(passes_the_gate(make_id(2, 1))) << "which of them it is is not known";
    EXPECT_FALSE(passes_the_gate(make_id(2, 1)));
    over = true;
    restart();
    over = false;
  }
}

TEST_F(FirstUse, OfWhatIsCertainIsTheFirstByWhomever) {
  gpus[0].runtime_used = wire::kKernelPrints;
  load(prints);
  another_program_waits();
  EXPECT_FALSE(passes_the_gate());
  load(allocates, make_id(2, 1), make_id(2, 1));
  EXPECT_TRUE(passes_the_gate(make_id(2, 1))) << "allocating is another";
}

TEST_F(FirstUse, GoesWithAModuleOfOnesOwn) {
  load(prints);
  another_program_waits();
  EXPECT_TRUE(passes_the_gate());
  wire::tubeKernelSetAttribute leave{};
  leave.kernel = kKernel;
  leave.attribute = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
  leave.value = 1;
  post(leave);
  ASSERT_EQ(async_error(), 0u);
  EXPECT_FALSE(passes_the_gate());
}

TEST_F(FirstUse, ThatFailsIsNone) {
  load(prints);
  another_program_waits();
  test::fake().next_launch = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_TRUE(passes_the_gate());
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
  test::fake().next_launch = CUDA_SUCCESS;
  EXPECT_TRUE(passes_the_gate());
  EXPECT_FALSE(passes_the_gate());
}

TEST_F(FirstUse, OfAnInstanceIsItsMaking) {
  ASSERT_EQ(session->objects().insert(Kind::kGraph, kGraph, reinterpret_cast<CUgraph>(0x60), 1),
            CUDA_SUCCESS);
  another_program_waits();
  EXPECT_TRUE(making_an_instance_passes_the_gate());
  EXPECT_FALSE(launching_it_passes_the_gate());
  EXPECT_FALSE(updating_it_passes_the_gate()) << "no kernel came since";
}

TEST_F(FirstUse, OfACapturedKernelIsAnInstances) {
  ASSERT_EQ(session->objects().insert(Kind::kGraph, kGraph, reinterpret_cast<CUgraph>(0x60), 1),
            CUDA_SUCCESS);
  load(plain);
  load(prints, make_id(2, 1), make_id(2, 1), "other");
  const uint64_t stream = make_id(1, 1);
  create_stream(stream, CU_STREAM_NON_BLOCKING);
  another_program_waits();
  ASSERT_TRUE(making_an_instance_passes_the_gate());
  launch(kKernel, stream);
  session->contexts().capture_started();
  test::fake().capturing = ran.back();
  launch(kKernel, stream);
  EXPECT_FALSE(updating_it_passes_the_gate()) << "the kernel does not print";
  const int before = looks;
  launch(make_id(2, 1), stream);
  EXPECT_EQ(looks, before) << "a captured launch does not pass";
  test::fake().capturing = nullptr;
  session->contexts().capture_ended();
  EXPECT_TRUE(updating_it_passes_the_gate());
  EXPECT_FALSE(updating_it_passes_the_gate());
  EXPECT_TRUE(passes_the_gate(make_id(2, 1))) << "captured is not launched";
}

// Another program may wait for just these, and only this thread can make them.
TEST_F(FirstUse, GoesBehindWhatIsHeldForOtherStreams) {
  constexpr uint32_t kRun = 16;
  shared.coalesce_ns = 1;
  load(plain);
  load(prints, make_id(2, 1), make_id(2, 1), "other");
  const uint64_t held = make_id(1, 1), free = make_id(2, 1);
  for (const uint64_t stream : {held, free}) create_stream(stream, CU_STREAM_NON_BLOCKING);
  uint32_t made = 2;
  drains = false;
  for (int i = 0; i < 3; ++i) {  // then the run is known, and held
    for (uint32_t n = 0; n < kRun; ++n) launch(kKernel, held);
    create_stream(make_id(++made, 1), CU_STREAM_NON_BLOCKING);
  }
  session->drain_for_test();
  ran.clear();
  for (uint32_t n = 0; n < kRun / 2; ++n) launch(kKernel, held);
  launch(make_id(2, 1), free);
  session->drain_for_test();
  ASSERT_EQ(ran.size(), kRun / 2 + 1);
  EXPECT_EQ(std::count(ran.begin(), ran.end() - 1, ran.front()), kRun / 2);
  EXPECT_NE(ran.back(), ran.front());
}

}  // namespace
}  // namespace tube::proxy

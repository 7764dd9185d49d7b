// Which launches count as the first ones of code on a GPU: through a session, while a stream of
// another program waits.
//
// A program of its own, because the turns of a process belong to one driver. With no patience a
// turn is one look at the event behind the other's wait.
#include <algorithm>
#include <thread>

#include "proxy/gpu/quiet_calls.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kLibrary = make_id(1, 1), kKernel = make_id(1, 1), kGraph = make_id(1, 1),
                   kExec = make_id(1, 1);

class FirstLaunch : public SessionTest {
 protected:
  FirstLaunch() {
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
    driver.cuGraphExecUpdate_v2 = [](CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*) {
      return CUDA_SUCCESS;
    };
    driver.cuGraphDestroy = [](CUgraph) { return CUDA_SUCCESS; };
    driver.cuGraphExecDestroy = [](CUgraphExec) { return CUDA_SUCCESS; };
    install_quiet_calls(driver);
    set_quiet_patience(0);
    set_launch_patience(0);
  }
  ~FirstLaunch() override {
    over = true;
    session.reset();
  }

  void another_program_waits() {
    std::thread([this] {
      EXPECT_EQ(driver.cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
    }).join();
  }
  template <class Call>
  bool looked_during(Call call) {
    const int before = looks;
    call();
    return looks != before;
  }
  bool takes_a_turn(uint64_t kernel = kKernel) {
    return looked_during([&] { launch(kernel); });
  }
  bool making_an_instance_takes_a_turn() {
    wire::tubeGraphInstantiate make{};
    make.graph = kGraph;
    make.exec = kExec;
    wire::tubeGraphInstantiate_reply reply{};
    return looked_during([&] { EXPECT_EQ(call(make, &reply), CUDA_SUCCESS); });
  }
  bool updating_it_takes_a_turn() {
    wire::tubeGraphExecUpdate update{};
    update.graph = kGraph;
    update.exec = kExec;
    wire::tubeGraphExecUpdate_reply reply{};
    return looked_during([&] { EXPECT_EQ(call(update, &reply), CUDA_SUCCESS); });
  }
  bool launching_it_takes_a_turn() {
    wire::cuGraphLaunch one{};
    one.hGraph = kExec;
    return looked_during([&] { post(one); });
  }

  const std::string two_kernels = ".version 8.0\n.entry k() { ret; }\n.entry other() { ret; }\n";
  static inline int looks = 0;
  static inline bool over = false;
  static inline std::vector<CUstream> ran;
};

TEST_F(FirstLaunch, OfAKernelTakesATurn) {
  load(two_kernels);
  look_up(kLibrary, make_id(2, 1), "other");
  another_program_waits();
  EXPECT_TRUE(takes_a_turn());
  EXPECT_FALSE(takes_a_turn());
  EXPECT_TRUE(takes_a_turn(make_id(2, 1))) << "another kernel of the same library";
  EXPECT_EQ(ran.size(), 3u);
}

TEST_F(FirstLaunch, IsTheFirstByWhomever) {
  load(two_kernels);
  another_program_waits();
  EXPECT_TRUE(takes_a_turn());
  restart();
  load(two_kernels);
  EXPECT_FALSE(takes_a_turn()) << "the same module, which another client launched from";
  load(two_kernels, make_id(2, 1), make_id(2, 1));
  EXPECT_TRUE(takes_a_turn(make_id(2, 1))) << "loaded once more";
}

TEST_F(FirstLaunch, OfAModuleOfOnesOwnIsAnother) {
  load(two_kernels);
  another_program_waits();
  EXPECT_TRUE(takes_a_turn());
  wire::tubeKernelSetAttribute leave{};
  leave.kernel = kKernel;
  leave.attribute = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
  leave.value = 1;
  post(leave);
  ASSERT_EQ(async_error(), 0u);
  EXPECT_TRUE(takes_a_turn());
  EXPECT_FALSE(takes_a_turn());
}

TEST_F(FirstLaunch, ThatFailsIsNone) {
  load(two_kernels);
  another_program_waits();
  test::fake().next_launch = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_TRUE(takes_a_turn());
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_OUT_OF_MEMORY));
  test::fake().next_launch = CUDA_SUCCESS;
  EXPECT_TRUE(takes_a_turn());
  EXPECT_FALSE(takes_a_turn());
}

TEST_F(FirstLaunch, OfAnInstanceIsItsMaking) {
  ASSERT_EQ(session->objects().insert(Kind::kGraph, kGraph, reinterpret_cast<CUgraph>(0x60), 1),
            CUDA_SUCCESS);
  another_program_waits();
  EXPECT_TRUE(making_an_instance_takes_a_turn());
  EXPECT_FALSE(launching_it_takes_a_turn());
  EXPECT_FALSE(updating_it_takes_a_turn()) << "no kernel came since";
}

TEST_F(FirstLaunch, OfACapturedKernelIsAnInstances) {
  ASSERT_EQ(session->objects().insert(Kind::kGraph, kGraph, reinterpret_cast<CUgraph>(0x60), 1),
            CUDA_SUCCESS);
  load(two_kernels);
  const uint64_t stream = make_id(1, 1);
  create_stream(stream, CU_STREAM_NON_BLOCKING);
  another_program_waits();
  ASSERT_TRUE(making_an_instance_takes_a_turn());
  launch(kKernel, stream);
  session->contexts().capture_started();
  test::fake().capturing = ran.back();
  const int before = looks;
  launch(kKernel, stream);
  EXPECT_FALSE(updating_it_takes_a_turn()) << "the kernel was launched before";
  look_up(kLibrary, make_id(2, 1), "other");
  const int after_lookup = looks;
  launch(make_id(2, 1), stream);
  EXPECT_EQ(looks, after_lookup) << "a captured launch takes none";
  EXPECT_GE(after_lookup, before);
  test::fake().capturing = nullptr;
  session->contexts().capture_ended();
  EXPECT_TRUE(updating_it_takes_a_turn());
  EXPECT_FALSE(updating_it_takes_a_turn());
  EXPECT_TRUE(takes_a_turn(make_id(2, 1))) << "captured is not launched";
}

// Another program may wait for just these, and only this thread can make them.
TEST_F(FirstLaunch, GoesBehindWhatIsHeldForOtherStreams) {
  constexpr uint32_t kRun = 16;
  shared.coalesce_ns = 1;
  load(two_kernels);
  look_up(kLibrary, make_id(2, 1), "other");
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

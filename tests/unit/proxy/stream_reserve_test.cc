// What the driver defers is run behind the calls that defer it, and streams find slots that were
// made ahead: through the table of the driver's entry points.
#include "proxy/gpu/stream_reserve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/driver_wrappers.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

const auto kContext = reinterpret_cast<CUcontext>(0x10);
const auto kEmpty = reinterpret_cast<CUfunction>(0x20);

struct Calls {
  CUcontext current = kContext;
  CUdevice device = 0;
  bool over = true;           // the stream's wait has passed
  bool behind = false;        // the empty kernels do not run
  int streams = 0, most = 0;  // alive now, and at once since
  CUresult load = CUDA_SUCCESS, destroy = CUDA_SUCCESS;
  uint64_t next_stream = 0x100;
  std::vector<CUfunction> launches;
  std::vector<CUcontext> launched_in;
  std::vector<CUcontext> pushed;
} g;

CUresult one_more(CUstream* stream) {
  *stream = reinterpret_cast<CUstream>(++g.next_stream);
  g.most = std::max(g.most, ++g.streams);
  return CUDA_SUCCESS;
}

Driver make_driver() {
  Driver d = test::make_fake_driver();
  d.cuCtxGetDevice = [](CUdevice* device) { return *device = g.device, CUDA_SUCCESS; };
  d.cuCtxGetCurrent = [](CUcontext* context) { return *context = g.current, CUDA_SUCCESS; };
  d.cuCtxPushCurrent_v2 = [](CUcontext context) {
    return g.pushed.push_back(g.current), g.current = context, CUDA_SUCCESS;
  };
  d.cuCtxPopCurrent_v2 = [](CUcontext*) {
    return g.current = g.pushed.back(), g.pushed.pop_back(), CUDA_SUCCESS;
  };
  d.cuModuleLoadData = [](CUmodule* module, const void*) {
    return *module = reinterpret_cast<CUmodule>(8), g.load;
  };
  d.cuLibraryLoadData = [](CUlibrary*, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) { return CUDA_SUCCESS; };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    return *function = kEmpty, CUDA_SUCCESS;
  };
  d.cuCtxSetLimit = [](CUlimit, size_t value) {
    return value == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  d.cuMemFree_v2 = [](CUdeviceptr) { return CUDA_SUCCESS; };
  d.cuStreamCreate = [](CUstream* stream, unsigned) { return one_more(stream); };
  d.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) { return one_more(stream); };
  d.cuStreamDestroy_v2 = [](CUstream) { return g.streams -= g.destroy == CUDA_SUCCESS, g.destroy; };
  d.cuStreamQuery = [](CUstream) { return g.behind ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
  d.cuStreamWaitValue32_v2 = [](CUstream, CUdeviceptr, cuuint32_t, unsigned) {
    return CUDA_SUCCESS;
  };
  d.cuEventQuery = [](CUevent) { return g.over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; };
  d.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, unsigned, CUstream, void**, void**) {
    g.launches.push_back(function);
    g.launched_in.push_back(g.current);
    return CUDA_SUCCESS;
  };
  return d;
}

class DeferredSetupTest : public ::testing::Test {
 protected:
  DeferredSetupTest() {
    g = {};
    this_caller() = {};
    this_caller().owner = 1;
    wrap_driver(driver, gate);
    gate.set_patience(0);
  }
  ~DeferredSetupTest() override { this_caller() = {}; }
  Driver driver = make_driver();
  ContextGate gate{driver};
  CUmodule module = nullptr;
};

TEST_F(DeferredSetupTest, IsPreparedWithALaunchAndAReserve) {
  EXPECT_EQ(gate.prepare(0, kContext), CUDA_SUCCESS);
  EXPECT_EQ(g.launches, std::vector<CUfunction>{kEmpty});
  EXPECT_EQ(g.streams, 1) << "its own; those of the reserve are gone";
}

TEST_F(DeferredSetupTest, RunsBehindLoadsAndLimits) {
  ASSERT_EQ(gate.prepare(0, kContext), CUDA_SUCCESS);
  g.launches.clear();
  EXPECT_EQ(driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_EQ(g.launches.size(), 1u);
  EXPECT_EQ(driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  EXPECT_EQ(g.launches.size(), 2u);
  EXPECT_EQ(driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemFree_v2(1), CUDA_SUCCESS);
  EXPECT_EQ(g.launches.size(), 2u) << "nothing was deferred";
  EXPECT_EQ(gate.context_wide_deferring(this_caller(), "a call", [] { return CUDA_SUCCESS; }),
            CUDA_SUCCESS);
  EXPECT_EQ(g.launches.size(), 3u);
}

TEST_F(DeferredSetupTest, RunsInTheGpusContextFromAGreenOne) {
  ASSERT_EQ(gate.prepare(0, kContext), CUDA_SUCCESS);
  g.launched_in.clear();
  const auto green = reinterpret_cast<CUcontext>(0x99);
  g.current = green;
  EXPECT_EQ(driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_EQ(g.launched_in, std::vector<CUcontext>{kContext});
  EXPECT_EQ(g.current, green);
}

// On another one a call may stand behind a kernel that waits for this program, and a launch behind
// the call.
TEST_F(DeferredSetupTest, LeavesOtherGpusAlone) {
  const auto second = reinterpret_cast<CUcontext>(0x11);
  ASSERT_EQ(gate.prepare(0, kContext), CUDA_SUCCESS);
  ASSERT_EQ(gate.prepare(1, second), CUDA_SUCCESS);
  g.launched_in.clear();
  g.device = 1;
  g.current = second;
  CUlibrary library = nullptr;
  EXPECT_EQ(driver.cuLibraryLoadData(&library, "", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_EQ(g.launched_in, std::vector<CUcontext>{second}) << "a library's code comes later";
}

TEST_F(DeferredSetupTest, AKernelThatCannotBeLoadedIsNotLaunched) {
  g.load = CUDA_ERROR_NO_BINARY_FOR_GPU;
  EXPECT_EQ(gate.prepare(0, kContext), CUDA_ERROR_NO_BINARY_FOR_GPU);
  g.load = CUDA_SUCCESS;
  EXPECT_EQ(driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_TRUE(g.launches.empty());
}

// The launch after a thousand that have not run would stand in the driver, in the turn.
TEST_F(DeferredSetupTest, LaunchesNoMoreThanTheStreamTakes) {
  ASSERT_EQ(gate.prepare(0, kContext), CUDA_SUCCESS);
  g.behind = true;
  for (int i = 0; i < 900; ++i) ASSERT_EQ(driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_LT(g.launches.size(), 300u);
  g.behind = false;
  g.launches.clear();
  ASSERT_EQ(driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
  EXPECT_EQ(g.launches.size(), 1u);
}

class StreamReserveTest : public DeferredSetupTest {
 protected:
  StreamReserveTest() {
    EXPECT_EQ(gate.prepare(0, kContext), CUDA_SUCCESS);
    g.most = g.streams;
  }
  void make(size_t count) {
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(driver.cuStreamCreate(&streams.emplace_back(), CU_STREAM_NON_BLOCKING),
                CUDA_SUCCESS);
  }
  bool was_made() const { return g.most > static_cast<int>(streams.size()) + 1; }
  void another_waits() {
    std::thread([this] {
      this_caller().owner = 2;
      wait();
    }).join();
  }
  void wait() { ASSERT_EQ(driver.cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS); }
  std::vector<CUstream> streams;
};

TEST_F(StreamReserveTest, IsMadeAheadWhenNobodyWaits) {
  make(100);
  EXPECT_FALSE(was_made());
  make(100);
  EXPECT_TRUE(was_made());
}

TEST_F(StreamReserveTest, IsLeftByWhatGoes) {
  make(100);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(driver.cuStreamDestroy_v2(streams.back()), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuStreamCreateWithPriority(&streams.back(), CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
  }
  EXPECT_FALSE(was_made());
}

// The driver would wait for that stream, and this thread is the one that goes on with its program.
TEST_F(StreamReserveTest, IsNotMadeBesideAWaitOfOnesOwn) {
  g.over = false;
  wait();
  make(250);
  EXPECT_FALSE(was_made());
  g.over = true;
  make(1);
  EXPECT_TRUE(was_made());
}

TEST_F(StreamReserveTest, IsNotMadeBesideAnothersWait) {
  g.over = false;
  another_waits();
  make(250);
  EXPECT_FALSE(was_made());
}

TEST_F(StreamReserveTest, IsMadeAllTheSameWhenNoneIsLeft) {
  g.over = false;
  another_waits();
  make(257);
  EXPECT_TRUE(was_made());
}

TEST_F(StreamReserveTest, OfSomethingThatIsNotDestroyedStaysTaken) {
  g.over = false;
  wait();
  make(256);
  g.destroy = CUDA_ERROR_INVALID_HANDLE;
  for (CUstream stream : streams)
    EXPECT_EQ(driver.cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_FALSE(was_made());
  g.destroy = CUDA_SUCCESS;
  make(1);
  EXPECT_TRUE(was_made());
}

}  // namespace
}  // namespace tube::proxy

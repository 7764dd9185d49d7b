// Who may launch kernels that print, and what the others may do meanwhile.
#include "proxy/gpu/device_output.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

class DeviceOutputTest : public ::testing::Test {
 protected:
  DeviceOutputTest() : driver(test::make_fake_driver()), gpus(driver) {
    EXPECT_TRUE(gpus.open().ok());
    busy = false;
    looks = 0;
    // Two threads call these.
    driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuCtxPopCurrent_v2 = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    driver.cuStreamCreate = [](CUstream* stream, unsigned) {
      return *stream = reinterpret_cast<CUstream>(++handles), CUDA_SUCCESS;
    };
    driver.cuEventCreate = [](CUevent* event, unsigned) {
      return *event = reinterpret_cast<CUevent>(++handles), CUDA_SUCCESS;
    };
    driver.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    driver.cuStreamWaitEvent = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
    driver.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    driver.cuStreamQuery = [](CUstream) {
      ++looks;
      return busy.load() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
  }

  void launch(uint64_t client) {
    DeviceOutput::Turn turn(output, client);
    turn.launched(0, nullptr, &event);
  }
  bool outstanding(uint64_t client) {
    bool more = false, running = false;
    EXPECT_EQ(output.collect(client, 100, &running, &more), "");
    return running;
  }

  static inline std::atomic<bool> busy{false};  // kernels that may print run
  static inline std::atomic<int> looks{0};
  static inline std::atomic<uintptr_t> handles{0};
  Driver driver;
  Gpus gpus;
  ProcessOutput process;
  DeviceOutput output{driver, gpus, process, 600'000};
  CUevent event = nullptr;
};

TEST_F(DeviceOutputTest, TheOwnerLaunchesAndCollectsWithoutWaiting) {
  busy = true;
  launch(1);
  launch(1);
  EXPECT_TRUE(outstanding(1));
  busy = false;
  EXPECT_FALSE(outstanding(1));
}

// The owner's kernel may wait for what its program does once it has seen the text of an earlier
// one.
TEST_F(DeviceOutputTest, TheOwnerCollectsWhileAnotherWaitsForItsKernels) {
  launch(1);
  busy = true;
  std::atomic<bool> has_turn{false};
  std::thread other([&] {
    launch(2);
    has_turn = true;
  });
  while (looks == 0) std::this_thread::yield();
  EXPECT_TRUE(outstanding(1));
  launch(1);  // late, but it comes
  EXPECT_TRUE(outstanding(1));
  EXPECT_FALSE(has_turn);
  busy = false;
  other.join();
  EXPECT_FALSE(outstanding(2));
}

// For who may not wait, holding what the owner's program may need.
TEST_F(DeviceOutputTest, WhoIsNotTheOwnerCanAskWithoutWaiting) {
  using Turn = DeviceOutput::Turn;
  EXPECT_FALSE(Turn(output, 1, Turn::IfOwner{})) << "nobody is";
  launch(1);
  busy = true;
  looks = 0;
  EXPECT_FALSE(Turn(output, 2, Turn::IfOwner{}));
  EXPECT_TRUE(Turn(output, 1, Turn::IfOwner{}));
  EXPECT_EQ(looks, 0);
}

TEST_F(DeviceOutputTest, TheTurnIsFreeWhenItsOwnerIsGone) {
  launch(1);
  busy = true;
  std::thread other([&] { launch(2); });
  while (looks == 0) std::this_thread::yield();
  output.forget(1);
  other.join();
  EXPECT_TRUE(outstanding(2));
}

}  // namespace
}  // namespace tube::proxy

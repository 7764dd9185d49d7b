// The thread that paces lanes, on a driver of plain functions: it sends everything, with cores to
// spare and without.
#include "proxy/copy/copy_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "proxy/gpu/gpus.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

struct Paced {
  std::atomic<uint64_t> bytes{0}, events{0};
  std::atomic<bool> stands{false};      // what is under way
  std::atomic<uint64_t> held_bytes{0};  // who submits so many stays in the call, until it is 0
  std::atomic<bool> held{false};        // somebody is there
} paced;

CUresult paced_copy(CUdeviceptr, CUdeviceptr, size_t bytes, CUstream) {
  while (paced.held_bytes == bytes) {
    paced.held = true;
    std::this_thread::yield();
  }
  paced.bytes += bytes;
  return CUDA_SUCCESS;
}

// Two threads call these.
Driver make_paced_driver() {
  static const auto kContext = reinterpret_cast<CUcontext>(0x40);  // every thread's
  Driver d = test::make_fake_driver();
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return *context = kContext, CUDA_SUCCESS;
  };
  d.cuCtxGetCurrent = [](CUcontext* context) { return *context = kContext, CUDA_SUCCESS; };
  d.cuStreamCreate = [](CUstream* stream, unsigned) {
    return *stream = reinterpret_cast<CUstream>(0x30), CUDA_SUCCESS;
  };
  d.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  d.cuEventCreate = [](CUevent* event, unsigned) {
    return *event = reinterpret_cast<CUevent>(++paced.events), CUDA_SUCCESS;
  };
  d.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  d.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  d.cuEventQuery = [](CUevent) { return paced.stands ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
  d.cuMemcpyAsync = paced_copy;
  return d;
}

class CopyEngineTest : public testing::TestWithParam<bool> {
 protected:
  CopyEngineTest() {
    paced.bytes = 0;
    paced.stands = true;
    paced.held = false;
    EXPECT_TRUE(open);
  }
  std::shared_ptr<LaneJob> send(uint64_t function) {
    auto job = engine.link(0, true).add(
        {.dst = 0x1000, .src = 0x2000, .bytes = 20 * kMiB, .function = function});
    EXPECT_TRUE(engine.send(engine.link(0, true)));
    return job;
  }
  static void wait_for(uint64_t bytes) {
    while (paced.bytes < bytes) std::this_thread::yield();
  }

  Driver driver = make_paced_driver();
  Gpus gpus{driver};
  const bool open = gpus.open().ok();
  CopyEngine engine{driver,
                    gpus,
                    {.use = policies::LaneUse::kAuto,
                     .links_path = "",
                     .workflow = "",
                     .many_cores = GetParam()}};
};

TEST_P(CopyEngineTest, CopiesThatComeWhileOthersStandAreSentWhenTheseGoOn) {
  const auto first = send(1);
  wait_for(8 * kMiB);  // a piece: the second one may have to wait for the lane's pause
  const auto second = send(2);
  EXPECT_FALSE(first->over());
  paced.stands = false;
  wait_for(40 * kMiB);
  engine.link(0, true).take_back(*first);
  engine.link(0, true).take_back(*second);
  EXPECT_EQ(paced.bytes, 40 * kMiB);
  const auto third = send(1);  // whether the thread sleeps by now or not
  wait_for(60 * kMiB);
  engine.link(0, true).take_back(*third);
}

TEST_P(CopyEngineTest, WhoeverWaitsStandsInForAThreadThatIsElsewhere) {
  constexpr uint64_t kHeld = 4096;
  paced.stands = false;
  paced.held_bytes = kHeld;
  CopyLink& down = engine.link(0, false);
  const auto held = down.add({.dst = 0x1000, .src = 0x2000, .bytes = kHeld, .function = 1});
  ASSERT_TRUE(engine.wake());
  while (!paced.held) std::this_thread::yield();
  CopyLink& up = engine.link(0, true);
  const auto copy = up.add({.dst = 0x1000, .src = 0x2000, .bytes = 20 * kMiB, .function = 2});
  ASSERT_TRUE(engine.wake());
  while (!copy->over()) engine.stand_in();  // without end where nobody does
  EXPECT_EQ(paced.bytes, 20 * kMiB);
  EXPECT_FALSE(held->over());
  paced.held_bytes = 0;
  up.take_back(*copy);
  down.take_back(*held);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutManyCores, CopyEngineTest, testing::Bool());

}  // namespace
}  // namespace tube::proxy

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
  std::atomic<bool> stands{false};  // what is under way
} paced;

// Two threads call these.
Driver make_paced_driver() {
  Driver d = test::make_fake_driver();
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
  d.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, size_t bytes, CUstream) {
    return paced.bytes += bytes, CUDA_SUCCESS;
  };
  return d;
}

class CopyEngineTest : public testing::TestWithParam<bool> {
 protected:
  CopyEngineTest() {
    paced.bytes = 0;
    paced.stands = true;
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

INSTANTIATE_TEST_SUITE_P(WithAndWithoutManyCores, CopyEngineTest, testing::Bool());

}  // namespace
}  // namespace tube::proxy

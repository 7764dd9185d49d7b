// The thread that gives back what functions left: when it begins, what holds it back, how one knows
// that it is through.
#include "proxy/gpu/janitor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>
#include <thread>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kLong = 60'000;  // milliseconds; nothing here takes that long

class JanitorTest : public ::testing::Test {
 protected:
  JanitorTest() : driver(test::make_fake_driver()), gpus(driver) {
    EXPECT_TRUE(gpus.open().ok());
    busy = false;
    destroyed = 0;
    // The janitor's thread calls them too.
    driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuStreamQuery = [](CUstream) {
      return ++looks, busy.load() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    };
    driver.cuStreamDestroy_v2 = [](CUstream) { return ++destroyed, CUDA_SUCCESS; };
  }

  static inline std::atomic<bool> busy{false};
  static inline std::atomic<int> destroyed{0}, looks{0};
  Driver driver;
  Gpus gpus;
  std::atomic<int> worked{0}, told{0};
};

const CUstream kStream = reinterpret_cast<CUstream>(0x10);

TEST_F(JanitorTest, WorksOnAThreadOfItsOwn) {
  std::thread::id worker;
  Janitor janitor(driver, gpus,
                  {{}, [&] { worker = std::this_thread::get_id(); }, [&] { ++told; }});
  EXPECT_EQ(janitor.state(), Janitor::State::kIdle);
  EXPECT_TRUE(janitor.finish(kLong));
  EXPECT_NE(worker, std::thread::id());
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_GE(told.load(), 1);
  EXPECT_EQ(janitor.state(), Janitor::State::kIdle);
}

TEST_F(JanitorTest, CollectsBeforeItsTurnAndTellsBehindIt) {
  std::string order;
  Janitor janitor(driver, gpus,
                  {[&] { order += 'c'; }, [&] { order += 'w'; }, [&] { order += 't'; }});
  EXPECT_TRUE(janitor.finish(kLong));
  EXPECT_EQ(order, "cwt");
}

TEST_F(JanitorTest, GoesOnWhenADutyThrows) {
  int left = 3;
  Janitor janitor(driver, gpus,
                  {[&] {
                     if (left-- > 0) throw std::bad_alloc();
                   },
                   [this] { ++worked; }, [this] { ++told; }});
  EXPECT_TRUE(janitor.finish(kLong, Janitor::Refused::kWaitOn));
  EXPECT_GE(worked.load(), 1);
  EXPECT_GE(told.load(), 1);
}

TEST_F(JanitorTest, StandsBehindWorkThatIsLeft) {
  busy = true;
  Janitor janitor(driver, gpus, {{}, [this] { ++worked; }, [this] { ++told; }});
  janitor.stand_behind({kStream, kStream});
  janitor.wake();
  while (janitor.state() != Janitor::State::kHeldBack) std::this_thread::yield();
  EXPECT_FALSE(janitor.finish(kLong)) << "it says so at once";
  EXPECT_EQ(worked.load(), 0);
  EXPECT_EQ(told.load(), 0);
  EXPECT_EQ(destroyed.load(), 0);
  busy = false;
  while (janitor.state() != Janitor::State::kIdle) std::this_thread::yield();
  EXPECT_GE(worked.load(), 1);
  EXPECT_EQ(destroyed.load(), 2);
}

// Or everybody might stand for good; what a stream that waits may cost is told in
// context_gate_test.cc.
TEST_F(JanitorTest, NoNeedIsWorthWorkThatNeverEnds) {
  busy = true;
  gpus.gate().set_patience(0);
  Janitor janitor(driver, gpus, {{}, [this] { ++worked; }, {}});
  janitor.stand_behind({kStream});
  janitor.wake(Janitor::Need::kNow);
  for (const int before = looks; looks < before + 20;) std::this_thread::yield();
  EXPECT_EQ(worked.load(), 0);
  EXPECT_EQ(janitor.state(), Janitor::State::kHeldBack);
  busy = false;
  while (janitor.state() != Janitor::State::kIdle) std::this_thread::yield();
  EXPECT_EQ(worked.load(), 1);
}

TEST_F(JanitorTest, HurryingForNothingDoesNothing) {
  Janitor janitor(driver, gpus, {{}, [this] { ++worked; }, {}});
  janitor.hurry(Janitor::Need::kNow);
  EXPECT_EQ(janitor.state(), Janitor::State::kIdle);
  EXPECT_TRUE(janitor.finish(kLong));
  EXPECT_EQ(worked.load(), 1);
}

TEST_F(JanitorTest, AnEndWhileItIsHeldBackDoesNothingMore) {
  busy = true;
  {
    Janitor janitor(driver, gpus, {{}, [this] { ++worked; }, {}});
    janitor.stand_behind({kStream});
    EXPECT_FALSE(janitor.finish(kLong));
  }
  EXPECT_EQ(worked.load(), 0);
}

TEST_F(JanitorTest, NobodyWaitsForWorkThatDoesNotEnd) {
  std::atomic<bool> over{false};
  Janitor janitor(driver, gpus, {{}, [&] { over.wait(false); }, {}});
  janitor.wake();
  EXPECT_EQ(janitor.state(), Janitor::State::kWorking);
  janitor.wake();
  janitor.stand_behind({kStream});
  EXPECT_FALSE(janitor.finish(1));
  EXPECT_EQ(janitor.state(), Janitor::State::kWorking);
  over = true;
  over.notify_all();
  EXPECT_TRUE(janitor.finish(kLong));
}

}  // namespace
}  // namespace tube::proxy

// Turns between calls that wait for the context and streams that wait for a program: against a
// driver of a few functions.
//
// Each thread is a session. That one stands in a call shows in its looks at the event behind the
// wait: that nothing has happened by then is no luck.
#include "proxy/gpu/quiet_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/module_cache.h"
#include "proxy/gpu/gpus.h"
#include "proxy/gpu/janitor.h"
#include "tests/unit/proxy/quiet_calls_driver.h"

namespace tube::proxy {
namespace {

class QuietCallsTest : public ::testing::Test {
 protected:
  QuietCallsTest() {
    g_over = g_capturing = false;
    g_unloads = g_waits = g_loads = g_limit = 0;
    g_context = 1;
    g_looks.clear();
    set_quiet_patience(600'000);
    set_launch_patience(600'000);
  }
  // Every test's waits are over when it ends.
  ~QuietCallsTest() override {
    g_over = true;
    set_quiet_patience(600'000);
    EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  }
  static Driver& driver() {
    static Driver d = make_driver();
    return d;
  }
  static CUresult wait() { return driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0); }
  static CUresult wait_on(CUdevice device) {
    t_device = device;
    const CUresult error = wait();
    t_device = 0;
    return error;
  }
  // From inside a turn: until `waiter` stands before it, which shows in calls that let it go first,
  // or has gone through.
  static void until_it_stands(CUdevice device = 0) {
    bool refused = false;
    while (!refused && g_waits == 0)
      std::thread([&] { t_device = device, refused = !quietly_if_nobody_waits([] {}); }).join();
  }
  // `in_turn` runs what it is given in a turn: a wait that comes meanwhile is submitted behind it.
  template <class InTurn>
  static void expect_a_wait_stands_behind(InTurn in_turn, CUdevice device = 0) {
    std::thread waiter;
    in_turn([&waiter, device] {
      waiter = std::thread([device] { wait_on(device); });
      until_it_stands(device);
      EXPECT_EQ(g_waits, 0);
      return CUDA_SUCCESS;
    });
    waiter.join();
    EXPECT_EQ(g_waits, 1);
  }
};

TEST_F(QuietCallsTest, CallsGoOnWhenNothingWaits) {
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(quietly([] { return CUDA_ERROR_UNKNOWN; }), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(QuietCallsTest, ACallBeginsWhenTheWaitIsOver) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  std::thread unloader([] { driver().cuModuleUnload(nullptr); });
  std::thread other([] { quietly([] { return count(g_unloads); }); });
  g_looks.wait_for(2, [] { return g_unloads != 0; });
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  unloader.join();
  other.join();
  EXPECT_EQ(g_unloads, 2);
}

TEST_F(QuietCallsTest, AWaitIsSubmittedWhenTheCallHasReturned) {
  expect_a_wait_stands_behind([](const auto& call) { return quietly(call); });
}

TEST_F(QuietCallsTest, CallsThatHaveNotBegunLetAWaitGoFirst) {
  std::thread waiter, caller;
  int seen = -1;
  quietly([&] {
    waiter = std::thread([] { wait(); });
    until_it_stands();
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    caller = std::thread([&] { quietly([&] { return seen = g_waits, CUDA_SUCCESS; }); });
    g_looks.wait_for(1, [] { return false; });  // it stands for the wait above
    g_over = true;                              // and now only for the one that has come
    for (int i = 0; i < 100; ++i)
      std::thread([] { EXPECT_FALSE(quietly_if_nobody_waits([] {})); }).join();
    return CUDA_SUCCESS;
  });
  waiter.join();
  caller.join();
  EXPECT_EQ(seen, 2);
}

// Otherwise the inner ones would stand behind what stands behind the outer one.
TEST_F(QuietCallsTest, TurnsLieInsideEachOther) {
  std::thread waiter;
  quietly([&waiter] {
    waiter = std::thread([] { wait(); });
    until_it_stands();
    EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(quietly_if_nobody_waits([] { quietly([] { return count(g_unloads); }); }));
    return CUDA_SUCCESS;
  });
  waiter.join();
  EXPECT_EQ(g_unloads, 2);
  g_over = true;
  EXPECT_EQ(quietly([] { return wait(); }), CUDA_SUCCESS)
      << "a wait of one's own does not stand before one's own turn";
}

TEST_F(QuietCallsTest, WhoCanDoWithoutDoesNotWait) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_FALSE(quietly_if_nobody_waits([] { ++g_unloads; })) << "not even for one's own";
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  EXPECT_TRUE(quietly_if_nobody_waits([] { ++g_unloads; }));
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(QuietCallsTest, EventsBelongToAContext) {
  g_over = true;
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  ASSERT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  const int before = g_events, destroyed = g_destroyed;
  g_context = 2;
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_EQ(g_events, before + 1);
  EXPECT_EQ(driver().cuGreenCtxDestroy(reinterpret_cast<CUgreenCtx>(2)), CUDA_SUCCESS);
  EXPECT_EQ(g_destroyed, destroyed + 1);
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_EQ(g_events, before + 2) << "another context at the same address";
  g_context = 1;
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_EQ(g_events, before + 2);
  EXPECT_EQ(driver().cuGreenCtxDestroy(reinterpret_cast<CUgreenCtx>(2)), CUDA_SUCCESS);
}

TEST_F(QuietCallsTest, RefusedAndCapturedWaitsHoldNothingUp) {
  EXPECT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  g_capturing = true;
  EXPECT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_unloads, 1);
}

// Natively it would only wait where the driver does, and its program could not release the stream
// either.
TEST_F(QuietCallsTest, OnesOwnWaitsHoldNothingUp) {
  ASSERT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(QuietCallsTest, WaitsWithoutCallsDoNotPileUp) {
  g_over = true;
  const int before = g_events;
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
  EXPECT_LE(g_events - before, 32);
}

TEST_F(QuietCallsTest, PatienceEnds) {
  std::thread([] { driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0); }).join();
  set_quiet_patience(1);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_unloads, 1);
}

// ---- several GPUs ----

class SeveralGpusTest : public QuietCallsTest {
 protected:
  SeveralGpusTest() { g_gpus = 2; }
  ~SeveralGpusTest() override {
    g_gpus = 1;
    t_device = 0;
  }
  static CUresult unload() { return driver().cuModuleUnload(nullptr); }
  // Of this thread, which has stood before `call` by the time that it returns.
  template <class Call>
  static void expect_standing(Call call) {
    std::thread caller([call] { EXPECT_EQ(call(), CUDA_SUCCESS); });
    g_looks.wait_for(1, [] { return g_unloads != 0; });
    EXPECT_EQ(g_unloads, 0);
    EXPECT_EQ(wait_on(1), CUDA_SUCCESS) << "who waits for a turn keeps no wait out";
    g_over = true;
    caller.join();
    EXPECT_EQ(g_unloads, 1);
  }
};

TEST_F(SeveralGpusTest, ACallMindsTheWaitsOfItsOwn) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  std::thread([] {
    EXPECT_EQ(unload(), CUDA_SUCCESS);
    EXPECT_EQ(launch_in_turn(LaunchTurn::kFirst, [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_ERROR_UNKNOWN);
    EXPECT_TRUE(quietly_if_nobody_waits([] {}));
    EXPECT_FALSE(quietly_if_nobody_waits([] {}, QuietOn::kAllGpus));
  }).join();
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(SeveralGpusTest, ACallOfAllMindsTheWaitsOfAll) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  expect_standing([] { return quietly(unload, QuietOn::kAllGpus); });
}

// It may be for memory of the other one.
TEST_F(SeveralGpusTest, ACallMindsTheWaitsOfAllThatItsSessionWorksOn) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  expect_standing([] {
    session_works_on(0);
    session_works_on(1);
    return unload();
  });
}

// The call may stand behind a kernel that waits for what this program does next.
TEST_F(SeveralGpusTest, AWaitGoesOnBesideAnotherGpusCall) {
  const auto wait_meanwhile = [] {
    std::thread([] { EXPECT_EQ(wait_on(1), CUDA_SUCCESS); }).join();
    return CUDA_SUCCESS;
  };
  quietly(wait_meanwhile);
  launch_in_turn(LaunchTurn::kFirst, wait_meanwhile);
  EXPECT_EQ(g_waits, 2);
}

TEST_F(SeveralGpusTest, AWaitStandsBehindACallOfAllNotWithoutEnd) {
  set_launch_patience(1);
  set_quiet_patience(1);
  for (const CUdevice device : {0, 1}) {
    const auto wait_meanwhile = [device] {
      std::thread([device] { EXPECT_EQ(wait_on(device), CUDA_SUCCESS); }).join();
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(quietly(wait_meanwhile, QuietOn::kAllGpus), CUDA_SUCCESS);
    EXPECT_EQ(g_waits, device + 1);
  }
}

TEST_F(SeveralGpusTest, AWaitStandsBehindACallOfAll) {
  expect_a_wait_stands_behind([](const auto& call) { return quietly(call, QuietOn::kAllGpus); }, 1);
}

TEST_F(SeveralGpusTest, AWaitStandsBehindItsGpusCallBesideOneOfAllThatEnds) {
  expect_a_wait_stands_behind([](const auto& call) {
    return quietly([&call] {
      EXPECT_EQ(quietly(unload, QuietOn::kAllGpus), CUDA_SUCCESS);
      return call();
    });
  });
}

TEST_F(SeveralGpusTest, InATurnOfAllTheCallsOnEachGoStraightOn) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  std::thread([] {
    const auto unload_on_both = [] {
      for (t_device = 2; t_device-- != 0;) EXPECT_EQ(unload(), CUDA_SUCCESS);
      t_device = 0;
    };
    quietly_all_the_same(unload_on_both);
  }).join();
  EXPECT_EQ(g_unloads, 2);
}

TEST_F(SeveralGpusTest, InATurnOfOneACallOfAllTakesTheOthers) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  expect_standing([] { return quietly([] { return quietly(unload, QuietOn::kAllGpus); }); });
}

// ---- the first launch of code ----

TEST_F(QuietCallsTest, AFirstLaunchWaitsForTheStreamsOfOthers) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  std::atomic<int> launches{0};
  std::thread other([&] {
    EXPECT_EQ(launch_in_turn(LaunchTurn::kFirst, [&] { return count(launches); }), CUDA_SUCCESS);
  });
  g_looks.wait_for(1, [&] { return launches != 0; });
  EXPECT_EQ(launches, 0);
  EXPECT_EQ(launch_in_turn(LaunchTurn::kFirst, [] { return CUDA_ERROR_UNKNOWN; }),
            CUDA_ERROR_UNKNOWN)
      << "its own waits do not count";
  std::thread([] {
    EXPECT_EQ(launch_in_turn(LaunchTurn::kNone, [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_ERROR_UNKNOWN);
  }).join();
  g_over = true;
  other.join();
  EXPECT_EQ(launches, 1);
}

// Nor does that tell the next call, which waits for the driver, anything.
TEST_F(QuietCallsTest, AWaitThatHasStoodForLongDoesNotHoldAFirstLaunchUp) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  for (const uint64_t begin = now_ns(); now_ns() - begin < 2'000'000;) {
  }
  set_launch_patience(1);
  std::thread([] {
    EXPECT_EQ(launch_in_turn(LaunchTurn::kFirst, [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(g_looks.of_this_thread(), 1);
  }).join();
  std::thread unloader([] { driver().cuModuleUnload(nullptr); });
  g_looks.wait_for(1, [] { return g_unloads != 0; });
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  unloader.join();
}

// One that has come stands behind a call in the driver, here for as long as the first launch takes
// to lose its patience: once.
TEST_F(QuietCallsTest, AFirstLaunchLosesItsPatience) {
  std::thread waiter;
  quietly([&waiter] {
    waiter = std::thread([] { wait(); });
    until_it_stands();
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    std::thread([] {
      const auto launch = [] {
        return launch_in_turn(LaunchTurn::kFirst, [] { return CUDA_ERROR_UNKNOWN; });
      };
      set_launch_patience(1);
      EXPECT_EQ(launch(), CUDA_ERROR_UNKNOWN);
      set_launch_patience(600'000);
      const int before = g_looks.of_this_thread();
      EXPECT_EQ(launch(), CUDA_ERROR_UNKNOWN);
      EXPECT_EQ(g_looks.of_this_thread(), before + 1) << "a program has hundreds of first launches";
    }).join();
    EXPECT_EQ(g_waits, 1);
    return CUDA_SUCCESS;
  });
  waiter.join();
}

// Its stream may have no room until its program has done something else.
TEST_F(QuietCallsTest, AWaitStandsBehindAFirstLaunchNotWithoutEnd) {
  set_launch_patience(1);
  launch_in_turn(LaunchTurn::kFirst, [] {
    std::thread([] { wait(); }).join();
    EXPECT_EQ(g_waits, 1);
    return CUDA_SUCCESS;
  });
}

TEST_F(QuietCallsTest, NoWaitIsSubmittedDuringAFirstLaunch) {
  expect_a_wait_stands_behind(
      [](const auto& launch) { return launch_in_turn(LaunchTurn::kFirst, launch); });
}

// ---- who stands behind another's wait holds no lock ----

// This thread is the program whose stream waits; the other is one that shares a module and the
// context's limits with it.
class SharingTest : public QuietCallsTest {
 protected:
  SharingTest() : gpus_(driver()), cache_(driver(), gpus_, true) { EXPECT_TRUE(gpus_.open().ok()); }

  std::shared_ptr<LoadedModule> get(uint64_t session) {
    const std::string text = ".version 8.0\n.entry k() { ret; }\n";
    const auto load = [](std::shared_ptr<const Image>*, uint64_t* raw) {
      CUlibrary library = nullptr;
      const CUresult error =
          driver().cuLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0);
      *raw = reinterpret_cast<uint64_t>(library);
      return error;
    };
    std::shared_ptr<LoadedModule> module;
    bool fresh = false;
    EXPECT_EQ(
        cache_.get({session, true, 0, true}, *images_.from_bytes(std::as_bytes(std::span(text))),
                   load, &module, &fresh),
        CUDA_SUCCESS);
    return module;
  }
  LoadedKernel* kernel(LoadedModule& module, const char* name) {
    LoadedKernel* found = nullptr;
    bool fresh = false;
    EXPECT_EQ(module.kernel(driver(), images_, gpus_, 0, name, &found, &fresh), CUDA_SUCCESS);
    return found;
  }
  // Does `what` in another program, and comes back when that stands behind this one's wait.
  template <class What>
  std::thread start(What what) {
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    std::thread other([this, what] {
      what();
      ended_ = true;
      g_looks.something_happened();
    });
    g_looks.wait_for(1, [this] { return ended_.load(); });
    EXPECT_FALSE(ended_);
    return other;
  }

  std::atomic<bool> ended_{false};
  Gpus gpus_;
  ImageStore images_;
  ModuleCache cache_;
};

TEST_F(SharingTest, ALookUpOfAnothersKernel) {
  const auto module = get(1);
  LoadedKernel* mine = kernel(*module, "mine");
  std::thread other = start([&] { (void)kernel(*get(2), "theirs"); });
  EXPECT_EQ(module->raise_limit(driver(), *mine, 0, 0, 100), CUDA_SUCCESS);
  EXPECT_EQ(module->limit(*mine, 0), 100);
  EXPECT_FALSE(module->table(0, gpus_.capabilities(), 16000).empty());
  EXPECT_EQ(kernel(*module, "mine"), mine);
  EXPECT_NE(kernel(*module, "theirs"), nullptr) << "its own waits do not count";
  g_over = true;
  other.join();
}

TEST_F(SharingTest, ALaunchByAnyProgramIsTheFirst) {
  const auto module = get(1);
  LoadedKernel* mine = kernel(*module, "k");
  EXPECT_FALSE(module->seen(*mine, 0)->launched);
  module->note_launch(*mine, 0);
  module->note_launch(*mine, 1);  // where nobody looked it up
  LoadedKernel* theirs = kernel(*get(2), "k");
  EXPECT_TRUE(get(3)->seen(*theirs, 0)->launched);
  EXPECT_FALSE(module->seen(*mine, 1).has_value());
}

TEST_F(SharingTest, ALoadOfTheSameImage) {
  std::thread other = start([&] { (void)get(2); });
  (void)get(1);
  EXPECT_EQ(g_loads, 1);
  g_over = true;
  other.join();
  EXPECT_EQ(g_loads, 1) << "the other one shares it";
}

TEST_F(SharingTest, ALargerStack) {
  SharedLimits limits;
  EXPECT_EQ(limits.want(driver(), 1, 1, CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  std::thread other = start(
      [&] { EXPECT_EQ(limits.want(driver(), 2, 1, CU_LIMIT_STACK_SIZE, 8192), CUDA_SUCCESS); });
  EXPECT_EQ(limits.want(driver(), 1, 1, CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  EXPECT_EQ(limits.want(driver(), 1, 2, CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS)
      << "its own waits do not count";
  EXPECT_EQ(g_limit, 4096);
  limits.forget(driver(), 1, 2);
  EXPECT_EQ(g_limit, 1024);
  g_over = true;
  other.join();
  EXPECT_EQ(g_limit, 8192);
}

// An allocation that fails never waits for a program.
TEST_F(SharingTest, RoomIsMadeWhenNobodyWaits) {
  cache_.give_back(1, get(1));
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_FALSE(cache_.make_room(0));
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  EXPECT_TRUE(cache_.make_room(0));
  EXPECT_EQ(g_unloads, 1);
}

// ---- the janitor beside a stream that waits ----

class WaitedForTest : public SharingTest {
 protected:
  WaitedForTest() {
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    janitor_.wake();
    while (janitor_.state() != Janitor::State::kHeldBack) std::this_thread::yield();
  }
  // Until the janitor has looked often; `kOften` of these may lie a second apart, so only where it
  // is in a hurry.
  void held_back() {
    g_looks.clear();
    g_looks.wait_for(1, [this] { return worked_ != 0; });
    EXPECT_EQ(worked_, 0);
  }
  void through() {
    while (janitor_.state() != Janitor::State::kIdle) std::this_thread::yield();
    EXPECT_EQ(worked_, 1);
  }

  std::atomic<int> worked_{0};
  Janitor janitor_{driver(), gpus_, {{}, [this] { ++worked_; }, {}}};
};

TEST_F(WaitedForTest, BeginsWhenNothingWaits) {
  janitor_.hurry(Janitor::Need::kSoon);
  set_quiet_patience(0);
  held_back();
  g_over = true;
  through();
}

TEST_F(WaitedForTest, HasPatienceForWhoNeedsItNow) {
  janitor_.hurry(Janitor::Need::kNow);
  held_back();
  g_over = true;
  through();
}

TEST_F(WaitedForTest, BeginsForWhoNeedsItNowWhenPatienceEnds) {
  janitor_.hurry(Janitor::Need::kNow);
  held_back();
  set_quiet_patience(1);
  through();
  EXPECT_FALSE(g_over);
  janitor_.wake();
  EXPECT_FALSE(janitor_.finish(600'000)) << "the next wish is nobody's need";
  EXPECT_EQ(worked_, 1);
}

}  // namespace
}  // namespace tube::proxy

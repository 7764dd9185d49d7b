// The context gate, through the table of the driver's entry points: against a driver of a few
// functions.
//
// Each thread is a session. That one stands at the gate shows in its looks at the event behind the
// wait: that nothing has happened by then is no luck.
#include "proxy/gpu/context_gate.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "tests/unit/proxy/gate_driver.h"

namespace tube::proxy {
namespace {

TEST_F(ContextGateTest, CallsGoOnWhenNothingWaits) {
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(context_wide([] { return CUDA_ERROR_UNKNOWN; }), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(ContextGateTest, ACallBeginsWhenTheWaitIsOver) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  std::thread unloader([] { driver().cuModuleUnload(nullptr); });
  std::thread other([] { context_wide([] { return count(g_unloads); }); });
  g_looks.wait_for(2, [] { return g_unloads != 0; });
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  unloader.join();
  other.join();
  EXPECT_EQ(g_unloads, 2);
}

TEST_F(ContextGateTest, AWaitIsSubmittedWhenTheCallHasReturned) {
  expect_a_wait_stands_behind([](const auto& call) { return context_wide(call); });
}

TEST_F(ContextGateTest, CallsThatHaveNotBegunLetAWaitGoFirst) {
  std::thread waiter, caller;
  int seen = -1;
  context_wide([&] {
    waiter = std::thread([] { wait(); });
    until_it_stands();
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    caller = std::thread([&] { context_wide([&] { return seen = g_waits, CUDA_SUCCESS; }); });
    g_looks.wait_for(1, [] { return false; });  // it stands for the wait above
    g_over = true;                              // and now only for the one that has come
    for (int i = 0; i < 100; ++i) std::thread([] { EXPECT_FALSE(if_open([] {})); }).join();
    return CUDA_SUCCESS;
  });
  waiter.join();
  caller.join();
  EXPECT_EQ(seen, 2);
}

// Otherwise the inner ones would stand behind what stands behind the outer one.
TEST_F(ContextGateTest, CallsInsideTheGatePassAtOnce) {
  std::thread waiter;
  context_wide([&waiter] {
    waiter = std::thread([] { wait(); });
    until_it_stands();
    EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(if_open([] { context_wide([] { return count(g_unloads); }); }));
    return CUDA_SUCCESS;
  });
  waiter.join();
  EXPECT_EQ(g_unloads, 2);
  g_over = true;
  EXPECT_EQ(context_wide([] { return wait(); }), CUDA_SUCCESS)
      << "a wait of one's own does not stand behind one's own call";
}

TEST_F(ContextGateTest, WhoCanDoWithoutDoesNotWait) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  EXPECT_FALSE(if_open([] { ++g_unloads; })) << "not even for one's own";
  EXPECT_EQ(g_unloads, 0);
  g_over = true;
  EXPECT_TRUE(if_open([] { ++g_unloads; }));
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(ContextGateTest, EventsBelongToAContext) {
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

TEST_F(ContextGateTest, RefusedAndCapturedWaitsHoldNothingUp) {
  EXPECT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  g_capturing = true;
  EXPECT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_unloads, 1);
}

// Natively it would only wait where the driver does, and its program could not release the stream
// either.
TEST_F(ContextGateTest, OnesOwnWaitsHoldNothingUp) {
  ASSERT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(ContextGateTest, WaitsWithoutCallsDoNotPileUp) {
  g_over = true;
  const int before = g_events;
  for (int i = 0; i < 1000; ++i)
    ASSERT_EQ(driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0), CUDA_SUCCESS);
  EXPECT_LE(g_events - before, 32);
}

TEST_F(ContextGateTest, PatienceEnds) {
  std::thread([] { driver().cuStreamWaitValue32_v2(nullptr, 8, 1, 0); }).join();
  gate().set_patience(1);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_unloads, 1);
}

// ---- several GPUs ----

class SeveralGpusTest : public ContextGateTest {
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
    EXPECT_EQ(wait_on(1), CUDA_SUCCESS) << "what stands at the gate keeps no wait out";
    g_over = true;
    caller.join();
    EXPECT_EQ(g_unloads, 1);
  }
};

TEST_F(SeveralGpusTest, ACallMindsTheWaitsOfItsOwn) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  std::thread([] {
    EXPECT_EQ(unload(), CUDA_SUCCESS);
    EXPECT_EQ(first_use([] { return CUDA_ERROR_UNKNOWN; }), CUDA_ERROR_UNKNOWN);
    EXPECT_TRUE(if_open([] {}));
    EXPECT_FALSE(if_open([] {}, GateSpan::kAllGpus));
  }).join();
  EXPECT_EQ(g_unloads, 1);
}

TEST_F(SeveralGpusTest, ACallOfAllMindsTheWaitsOfAll) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  expect_standing([] { return context_wide(unload, GateSpan::kAllGpus); });
}

// It may be for memory of the other one.
TEST_F(SeveralGpusTest, ACallMindsTheWaitsOfAllThatItsSessionWorksOn) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  expect_standing([] {
    this_caller().works_on(0);
    this_caller().works_on(1);
    return unload();
  });
}

// The call may stand behind a kernel that waits for what this program does next.
TEST_F(SeveralGpusTest, AWaitGoesOnBesideAnotherGpusCall) {
  const auto wait_meanwhile = [] {
    std::thread([] { EXPECT_EQ(wait_on(1), CUDA_SUCCESS); }).join();
    return CUDA_SUCCESS;
  };
  context_wide(wait_meanwhile);
  first_use(wait_meanwhile);
  EXPECT_EQ(g_waits, 2);
}

TEST_F(SeveralGpusTest, AWaitStandsBehindACallOfAllNotWithoutEnd) {
  gate().set_patience(1);
  for (const CUdevice device : {0, 1}) {
    const auto wait_meanwhile = [device] {
      std::thread([device] { EXPECT_EQ(wait_on(device), CUDA_SUCCESS); }).join();
      return CUDA_SUCCESS;
    };
    EXPECT_EQ(context_wide(wait_meanwhile, GateSpan::kAllGpus), CUDA_SUCCESS);
    EXPECT_EQ(g_waits, device + 1);
  }
}

TEST_F(SeveralGpusTest, AWaitStandsBehindACallOfAll) {
  expect_a_wait_stands_behind(
      [](const auto& call) { return context_wide(call, GateSpan::kAllGpus); }, 1);
}

TEST_F(SeveralGpusTest, AWaitStandsBehindItsGpusCallBesideOneOfAllThatEnds) {
  expect_a_wait_stands_behind([](const auto& call) {
    return context_wide([&call] {
      EXPECT_EQ(context_wide(unload, GateSpan::kAllGpus), CUDA_SUCCESS);
      return call();
    });
  });
}

TEST_F(SeveralGpusTest, InsideTheGatesOfAllTheCallsOnEachGoStraightOn) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  std::thread([] {
    const auto unload_on_both = [] {
      for (t_device = 2; t_device-- != 0;) EXPECT_EQ(unload(), CUDA_SUCCESS);
      t_device = 0;
    };
    gate().beside_waits(this_caller(), "a batch", unload_on_both);
  }).join();
  EXPECT_EQ(g_unloads, 2);
}

TEST_F(SeveralGpusTest, InsideOneACallOfAllTakesTheOthers) {
  ASSERT_EQ(wait_on(1), CUDA_SUCCESS);
  expect_standing(
      [] { return context_wide([] { return context_wide(unload, GateSpan::kAllGpus); }); });
}

// ---- the first launch of code ----

TEST_F(ContextGateTest, AFirstLaunchWaitsForTheStreamsOfOthers) {
  ASSERT_EQ(wait(), CUDA_SUCCESS);
  std::atomic<int> launches{0};
  std::thread other([&] { EXPECT_EQ(first_use([&] { return count(launches); }), CUDA_SUCCESS); });
  g_looks.wait_for(1, [&] { return launches != 0; });
  EXPECT_EQ(launches, 0);
  EXPECT_EQ(first_use([] { return CUDA_ERROR_UNKNOWN; }), CUDA_ERROR_UNKNOWN)
      << "its own waits do not count";
  std::thread([] {
    EXPECT_EQ(gate().launch(this_caller(), LaunchGate::kNone, [] { return CUDA_ERROR_UNKNOWN; }),
              CUDA_ERROR_UNKNOWN);
  }).join();
  g_over = true;
  other.join();
  EXPECT_EQ(launches, 1);
}

// Its stream may have no room until its program has done something else.
TEST_F(ContextGateTest, AWaitStandsBehindAFirstLaunchNotWithoutEnd) {
  gate().set_patience(1);
  first_use([] {
    std::thread([] { wait(); }).join();
    EXPECT_EQ(g_waits, 1);
    return CUDA_SUCCESS;
  });
}

TEST_F(ContextGateTest, NoWaitIsSubmittedDuringAFirstLaunch) {
  expect_a_wait_stands_behind([](const auto& launch) { return first_use(launch); });
}

// ---- waits of the proxy itself

// A copy that is on its way: it ends by itself, whatever any program does.
TEST_F(ContextGateTest, AWaitOfTheProxysOwnKeepsNobodyOut) {
  std::thread([] {
    const ProxyWaits own;
    EXPECT_EQ(wait(), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(if_open([] { ++g_unloads; })) << "also for what can be left undone";
  EXPECT_EQ(g_unloads, 2);
}

TEST_F(ContextGateTest, AWaitOfTheProxysOwnStandsBehindNoCall) {
  context_wide([] {
    std::thread([] {
      const ProxyWaits own;
      EXPECT_EQ(wait(), CUDA_SUCCESS);
    }).join();
    EXPECT_EQ(g_waits, 1);
    return CUDA_SUCCESS;
  });
}

TEST_F(ContextGateTest, AProgramsWaitBehindOneOfTheProxysCounts) {
  std::thread([] {
    {
      const ProxyWaits own;
      EXPECT_EQ(wait(), CUDA_SUCCESS);
    }
    EXPECT_EQ(wait(), CUDA_SUCCESS);
  }).join();
  EXPECT_FALSE(if_open([] {}));
}

// ---- who stands for whom

class StandingTest : public ContextGateTest {
 protected:
  // A program that has a stream which waits; stopped or not.
  StandingTest() {
    program_ = fork();
    if (program_ == 0) {
      while (true) pause();
    }
    std::thread([this] {
      EXPECT_EQ(wait(), CUDA_SUCCESS);
      owner_ = this_caller().owner;
    }).join();
    gate().joined(owner_, "waits", program_);
    g_waits = 0;
  }
  ~StandingTest() override {
    kill(program_, SIGKILL);
    waitpid(program_, nullptr, 0);
  }
  void stop() {
    ASSERT_EQ(kill(program_, SIGSTOP), 0);
    ASSERT_EQ(waitpid(program_, nullptr, WUNTRACED), program_);
  }
  // Another program's call, until it stands.
  std::thread unload() {
    std::thread unloader([] { EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS); });
    g_looks.wait_for(1, [] { return g_unloads != 0; });
    return unloader;
  }
  pid_t program_ = 0;
  uint64_t owner_ = 0;
};

TEST_F(StandingTest, ACallAtTheGateIsListedWithWhomItStandsFor) {
  EXPECT_TRUE(gate().standing().empty());
  std::thread unloader = unload();
  const auto list = gate().standing();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_STREQ(list[0].what, "cuModuleUnload");
  EXPECT_FALSE(list[0].in_driver);
  EXPECT_EQ(list[0].behind, owner_);
  EXPECT_EQ(list[0].behind_what, nullptr) << "its stream waits";
  g_over = true;
  unloader.join();
  EXPECT_TRUE(gate().standing().empty());
}

TEST_F(StandingTest, ACallMadeBesideAWaitIsListedAndTold) {
  gate().set_patience(0);
  int told = 0;
  gate().on_standing([&told] { ++told; });
  std::thread([] {
    EXPECT_EQ(context_wide([] {
                const auto list = gate().standing();
                EXPECT_EQ(list.size(), 1u);
                for (const GateStanding& one : list) EXPECT_TRUE(one.in_driver);
                return CUDA_SUCCESS;
              }),
              CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(told, 1);
}

TEST_F(StandingTest, AWaitIsListedBehindTheCallInTheDriver) {
  g_over = true;
  std::thread waiter;
  context_wide([&waiter] {
    waiter = std::thread([] { wait(); });
    until_it_stands();
    std::vector<GateStanding> list = gate().standing();
    EXPECT_EQ(list.size(), 1u);
    for (const GateStanding& one : list) EXPECT_STREQ(one.behind_what, "a call");
    return CUDA_SUCCESS;
  });
  waiter.join();
}

// In the driver everybody would stand with it.
TEST_F(StandingTest, ACallStaysOutOfTheDriverForAStoppedProgram) {
  stop();
  gate().set_patience(0);
  std::thread unloader = unload();
  EXPECT_EQ(g_unloads, 0);
  ASSERT_EQ(kill(program_, SIGCONT), 0);
  unloader.join();
  EXPECT_FALSE(g_over);
  EXPECT_EQ(g_unloads, 1) << "a program that runs is waited for with patience only";
}

TEST_F(StandingTest, NotEvenForAStoppedProgramWithoutEnd) {
  stop();
  gate().set_patience(0);
  gate().set_stopped_patience(1);
  EXPECT_EQ(driver().cuModuleUnload(nullptr), CUDA_SUCCESS);
}

TEST_F(StandingTest, ProcessesAreSeenToBeStopped) {
  EXPECT_FALSE(process_is_stopped(program_));
  stop();
  EXPECT_TRUE(process_is_stopped(program_));
  EXPECT_FALSE(process_is_stopped(0));
}

}  // namespace
}  // namespace tube::proxy

// The wait helper: how long it spins, and that no kind of wait outlives the process it waits for.
#include <sys/prctl.h>

#include <csignal>
#include <thread>

#include "base/clock.h"
#include "sharedmem/accessors.h"
#include "tests/unit/sharedmem/support.h"

namespace tube::shared {
namespace {

Sleep never_woken(uint32_t* word) {
  Sleep sleep;
  sleep.word = word;
  sleep.announce = [](void* w) {
    atomic(*static_cast<uint32_t*>(w)).store(1);
    return true;
  };
  sleep.context = word;
  return sleep;
}

TEST(Spin, NeverExceedsItsLimit) {
  Waiter waiter(50);
  EXPECT_LE(waiter.spin_budget_ns(WaitReason::kReply), 50'000u);
  waiter.set_spin_us(0);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kReply), 0u);
}

TEST(Spin, ShrinksForAReasonWhoseWaitsAreLongAndOnlyForIt) {
  Waiter waiter(10);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kReply), 10'000u);
  for (int i = 0; i < 20; ++i) {
    const uint64_t start_ns = now_ns();
    EXPECT_EQ(waiter.until_polled(WaitReason::kReply, Peer{}, Probe{},
                                  [&] { return now_ns() - start_ns > 30'000; }),
              WaitResult::kDone);
  }
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kReply), policies::kLeastSpinNs);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kRecord), 10'000u);
}

TEST(Spin, IsLongForWhatTheGpuWritesAndNoneForAFullRing) {
  Waiter waiter(10);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kWord), 1'280'000u);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kCallback), 80'000u);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kRingSpace), 0u);
  waiter.set_spin_us(~0u);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kWord), policies::kLongestGpuSpinNs);
}

TEST(Spin, DoesNotPayInWaitsThatAPostEnds) {
  Waiter waiter(100);
  uint32_t posts = 0;
  Probe probe;
  probe.posts = &posts;
  for (int i = 0; i < 20; ++i) {
    const uint64_t start_ns = now_ns();
    EXPECT_EQ(waiter.until_polled(WaitReason::kCallback, Peer{}, probe,
                                  [&] {
                                    if (now_ns() - start_ns > 20'000) ++posts;
                                    return posts != probe.seen;
                                  }),
              WaitResult::kDone);
    probe.seen = posts;
  }
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kCallback), policies::kLeastSpinNs);
}

TEST(Spin, FollowsTheHintOfTheOtherSide) {
  uint32_t hint = 50;
  Waiter waiter(0);
  waiter.follow(&hint);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kReply), 50'000u);
  atomic(hint).store(0);
  EXPECT_EQ(waiter.spin_budget_ns(WaitReason::kReply), 0u);
}

TEST(Wait, SatisfiedConditionAsksOnceAndTouchesNothing) {
  Waiter waiter(0);
  int asked = 0;
  const WaitResult result =
      waiter.until_polled(WaitReason::kWord, Peer{-1, nullptr, nullptr}, Probe{}, [&] {
        ++asked;
        return true;
      });
  EXPECT_EQ(result, WaitResult::kDone);
  EXPECT_EQ(asked, 1);
}

TEST(Wait, CountsHowItEndedByReasonUnlessItWasDoneAtOnce) {
  abi::WaitCounters counters{};
  Waiter waiter(1'000'000);  // so long that a short wait cannot outlast the spin
  waiter.count_into(&counters);
  int asked = 0;
  EXPECT_EQ(waiter.until_polled(WaitReason::kWord, Peer{}, Probe{}, [] { return true; }),
            WaitResult::kDone);
  EXPECT_EQ(waiter.until_polled(WaitReason::kWord, Peer{}, Probe{}, [&] { return ++asked > 2; }),
            WaitResult::kDone);
  waiter.set_spin_us(0);
  asked = 0;
  EXPECT_EQ(waiter.until_polled(WaitReason::kChunk, Peer{}, Probe{}, [&] { return ++asked > 10; }),
            WaitResult::kDone);
  const auto at = [](WaitReason reason) { return static_cast<uint32_t>(reason); };
  EXPECT_EQ(counters.spun[at(WaitReason::kWord)], 1u);
  EXPECT_EQ(counters.slept[at(WaitReason::kWord)], 0u);
  EXPECT_EQ(counters.spun[at(WaitReason::kChunk)], 0u);
  EXPECT_EQ(counters.slept[at(WaitReason::kChunk)], 1u);
}

TEST(Wait, AnnouncementThatFindsItDoneDoesNotSleep) {
  Waiter waiter(0);
  bool done = false;
  Sleep sleep;
  uint32_t word = 1;
  sleep.word = &word;
  sleep.announce = [](void* d) {
    *static_cast<bool*>(d) = true;
    return false;
  };
  sleep.context = &done;
  EXPECT_EQ(waiter.until(WaitReason::kReply, Peer{}, sleep, [&] { return done; }),
            WaitResult::kDone);
}

TEST(Wait, TimeToWatchThatIsPastIsSleptThrough) {
  struct Sleeper {
    int announced = 0, withdrawn = 0, looks = 0;
  } sleeper;
  Waiter waiter(0);
  uint32_t word = 0;
  Sleep sleep;
  sleep.word = &word;
  sleep.asleep_value = 1;  // never so: each sleep ends at once
  sleep.announce = [](void* s) { return ++static_cast<Sleeper*>(s)->announced > 0; };
  sleep.withdraw = [](void* s) { ++static_cast<Sleeper*>(s)->withdrawn; };
  sleep.context = &sleeper;
  Peer peer{};
  peer.watch_from_ns = 1;
  peer.watch_until_ns = 2;
  uint64_t watched_ns = 0;
  peer.watched_ns = &watched_ns;
  EXPECT_EQ(waiter.until(WaitReason::kRecord, peer, sleep,
                         [&] { return sleeper.announced > 0 && ++sleeper.looks > 2; }),
            WaitResult::kDone);
  EXPECT_EQ(sleeper.withdrawn, 1);
  EXPECT_EQ(watched_ns, 0u);
}

// Nothing comes: woken by its own clock, it says when that was, and sleeps again behind the end.
TEST(Wait, SaysWhenItWokeToWatch) {
  Waiter waiter(0);
  uint32_t word = 0;
  uint64_t watched_ns = 0;
  Peer peer{};
  peer.watch_from_ns = now_ns() + 1'000'000;
  peer.watch_until_ns = ~uint64_t{0};
  peer.watched_ns = &watched_ns;
  EXPECT_EQ(
      waiter.until(WaitReason::kRecord, peer, never_woken(&word), [&] { return watched_ns != 0; }),
      WaitResult::kDone);
  EXPECT_GE(watched_ns, peer.watch_from_ns);
}

TEST(Wait, StopFlagEndsEveryKindOfWait) {
  Waiter waiter(0);
  std::atomic<bool> stop{true};
  const Peer peer{-1, nullptr, &stop};
  uint32_t word = 0;
  EXPECT_EQ(waiter.until(WaitReason::kReply, peer, never_woken(&word), [] { return false; }),
            WaitResult::kPeerDead);
  EXPECT_EQ(waiter.until_polled(WaitReason::kChunk, peer, Probe{}, [] { return false; }),
            WaitResult::kPeerDead);
}

TEST(Wait, GivesTheThreadsTimerSlackBack) {
  const int before = ::prctl(PR_GET_TIMERSLACK);
  Waiter waiter(0);
  int asked = 0;
  EXPECT_EQ(waiter.until_polled(WaitReason::kWord, Peer{}, Probe{}, [&] { return ++asked > 8; }),
            WaitResult::kDone);
  EXPECT_EQ(::prctl(PR_GET_TIMERSLACK), before);
}

TEST(Wait, KeepsErrno) {
  Waiter waiter(0);
  std::atomic<bool> stop{true};
  errno = 77;
  (void)waiter.until_polled(WaitReason::kChunk, Peer{0, nullptr, &stop}, Probe{},
                            [] { return false; });
  EXPECT_EQ(errno, 77);
}

TEST(Wait, EveryResultHasAText) {
  for (WaitResult r :
       {WaitResult::kDone, WaitResult::kPeerDead, WaitResult::kStopping, WaitResult::kSticky}) {
    EXPECT_STRNE(wait_result_text(r), "unknown");
  }
}

// A real process dies by SIGKILL while we sleep in each kind of wait.
class DeathDuringWait : public Pair, public ::testing::WithParamInterface<WaitReason> {};

TEST_P(DeathDuringWait, IsNoticed) {
  const pid_t child = in_child([&] {
    client_socket.reset();
    for (;;) ::pause();
    return 0;
  });
  proxy_socket.reset();  // only the child holds the proxy's end now
  waiter.set_spin_us(0);
  bool asleep_once = false;
  uint32_t word = 0;
  const auto ready = [&] {
    if (!asleep_once) {
      asleep_once = true;
      ::kill(child, SIGKILL);
    }
    return false;
  };
  const bool polled = GetParam() == WaitReason::kWord || GetParam() == WaitReason::kChunk ||
                      GetParam() == WaitReason::kCallback;
  const WaitResult result = polled ? waiter.until_polled(GetParam(), peer, Probe{}, ready)
                                   : waiter.until(GetParam(), peer, never_woken(&word), ready);
  EXPECT_EQ(result, WaitResult::kPeerDead);
  EXPECT_EQ(exit_code(child), 1000 + SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Reasons, DeathDuringWait,
                         ::testing::Values(WaitReason::kRingSpace, WaitReason::kReply,
                                           WaitReason::kWord, WaitReason::kChunk,
                                           WaitReason::kCallback));

}  // namespace
}  // namespace tube::shared

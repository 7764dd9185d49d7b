// A light function beside others that always have a long launch, in steps of virtual time; and
// calls that need a quiet moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "policies/arrival_period.h"
#include "policies/launch_admission.h"
#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr uint64_t kTick = kMs / 50;

struct Light {
  uint64_t step_ns = kMs / 2;              // on a GPU that is free
  std::function<uint64_t(uint64_t)> next;  // mark behind this one
  bool told = true;                        // its marks are learnt
  uint64_t mark = 50 * kMs, began = 0, left = 0;
  std::vector<uint64_t> times;
  ArrivalPeriod period;

  void begin(uint64_t now) {
    if (now < mark) return;
    if (left == 0) {
      began = now;
      left = step_ns;
      period.began(now);
    }
    while (mark <= now) mark = next(mark);
  }
  void runs(uint64_t now) {
    if (left == 0) return;
    left -= std::min(left, kTick);
    if (left == 0) times.push_back(now + kTick - began);
  }
  ShortWork work(uint64_t now) const {
    ShortWork work{left != 0, 0, 0};
    if (!told || period.period_ns() == 0) return work;
    work.next_ns = ArrivalPeriod::next_ns(period.anchor_ns(), period.period_ns(), now);
    work.until_ns = work.next_ns + ArrivalPeriod::slack_ns(period.period_ns());
    return work;
  }
  double p99_ms() {
    std::sort(times.begin(), times.end());
    return double(times[times.size() * 99 / 100]) / double(kMs);
  }
};

// Four functions with kernels of so many nanoseconds. Which part of the time these had.
double run(Light& light, uint64_t kernel_ns, uint64_t until_ns) {
  LaunchAdmission admission({});
  uint64_t numbers = 0, running = 0, ends = 0, worked = 0;
  std::vector<uint64_t> wants{1, 2, 3, 4};  // functions that ask
  std::vector<uint64_t> who(1);             // of each number
  for (uint64_t now = 0; now < until_ns; now += kTick) {
    if (running != 0 && now >= ends) {
      admission.ended(running, kernel_ns);
      wants.push_back(who[running]);
      running = 0;
    }
    light.begin(now);
    admission.short_work(light.work(now));
    const auto went = [&](uint64_t number) {
      EXPECT_EQ(running, 0u);
      running = number;
      ends = now + kernel_ns;
    };
    for (const uint64_t function : wants) {
      who.push_back(function);
      if (admission.ask({++numbers, function, function, kernel_ns}, now, true)) went(numbers);
    }
    wants.clear();
    while (const auto turn = admission.next(now, true)) went(turn->number);
    if (running != 0) worked += kTick;
    else light.runs(now);
  }
  return double(worked) / double(until_ns);
}

uint64_t every_10_ms(uint64_t mark) { return mark + 10 * kMs; }

TEST(LaunchRests, AStepThatIsExpectedFindsNoLongLaunchThatHasJustBegun) {
  Light told{.next = every_10_ms, .times = {}, .period = {}};
  Light untold{.next = every_10_ms, .told = false, .times = {}, .period = {}};
  const double with = run(told, 20 * kMs, 20'000 * kMs);
  const double without = run(untold, 20 * kMs, 20'000 * kMs);
  EXPECT_GT(untold.p99_ms(), 19.5);
  EXPECT_LT(told.p99_ms(), 17);
  EXPECT_GT(with, 0.92);
  EXPECT_GT(with, without - 0.03);
  EXPECT_GE(told.times.size(), untold.times.size());
}

// ResNet-50 takes 3.5 ms on an H200. Each of its steps waits for one long launch, and none for two.
TEST(LaunchRests, LongerStepsWaitForOneLongLaunch) {
  Light light{.step_ns = 7 * kMs / 2, .next = every_10_ms, .times = {}, .period = {}};
  EXPECT_GT(run(light, 20 * kMs, 10'000 * kMs), 0.84);
  EXPECT_LT(light.p99_ms(), 24);
}

TEST(LaunchRests, StepsThatComeByChanceCostNoMoreThanBefore) {
  for (const bool tells : {true, false}) {
    auto random = std::make_shared<std::mt19937>(3);
    const auto next = [random](uint64_t mark) {
      return mark + kMs +
             static_cast<uint64_t>(std::exponential_distribution<double>(1 / 10e6)(*random));
    };
    Light light{.next = next, .told = tells, .times = {}, .period = {}};
    EXPECT_GT(run(light, 20 * kMs, 10'000 * kMs), 0.95) << tells;
  }
}

TEST(LaunchRests, ALaunchThatEndsBeforeTheStepGoes) {
  LaunchAdmission admission({.rest_part = 12});
  EXPECT_TRUE(admission.ask({1, 1, 1, 40 * kMs}, 0, true));
  admission.ended(1, 40 * kMs);  // three milliseconds are saved
  admission.short_work({false, 43 * kMs, 43 * kMs});
  EXPECT_TRUE(admission.ask({2, 2, 2, 2 * kMs}, 40 * kMs, true));
  admission.ended(2, 2 * kMs);
  EXPECT_FALSE(admission.ask({3, 2, 2, 20 * kMs}, 42 * kMs, true)) << "it would be in the way";
  EXPECT_FALSE(admission.next(43 * kMs - 1, true).has_value());
  admission.short_work({true, 0, 0});
  EXPECT_FALSE(admission.next(44 * kMs, true).has_value()) << "the step came";
  admission.short_work({});
  EXPECT_EQ(admission.next(45 * kMs, true)->number, 3u);
  EXPECT_EQ(admission.use(2).held_for[size_t(HoldReason::kExpectedStep)], 1u);
  EXPECT_EQ(admission.use(2).held_for[size_t(HoldReason::kShortWork)], 1u);
  admission.ended(3, 20 * kMs);
  admission.short_work({false, 70 * kMs, 70 * kMs});
  EXPECT_TRUE(admission.ask({4, 2, 2, 20 * kMs}, 65 * kMs, true)) << "so much is not saved";
}

// It lasts for longer than was left, and the next one comes before that is earned.
TEST(LaunchRests, AStepBehindOneThatWasAwaitedFindsARest) {
  LaunchAdmission admission({.rest_part = 12});
  EXPECT_TRUE(admission.ask({1, 1, 1, 40 * kMs}, 0, true));
  admission.ended(1, 40 * kMs);  // three milliseconds are saved
  admission.short_work({false, 43 * kMs, 43 * kMs});
  EXPECT_FALSE(admission.ask({2, 2, 2, 20 * kMs}, 40 * kMs, true));
  admission.short_work({true, 0, 0});
  EXPECT_FALSE(admission.next(43 * kMs, true).has_value());
  admission.short_work({});
  EXPECT_EQ(admission.next(46 * kMs, true)->number, 2u);
  admission.ended(2, 20 * kMs);  // one is owed still
  admission.short_work({true, 0, 0});
  EXPECT_FALSE(admission.ask({3, 2, 2, 20 * kMs}, 66 * kMs, true));
  EXPECT_EQ(admission.next(70 * kMs, true)->number, 3u) << "no longer than any";
  admission.ended(3, 20 * kMs);  // this time none was waited for
  EXPECT_TRUE(admission.ask({4, 2, 2, 20 * kMs}, 90 * kMs, true));
}

// ---- quiet moments

LongLaunch quiet(uint64_t number, uint64_t function) {
  return {number, function, 0, 5 * kMs, true};
}

TEST(QuietMoments, ComeBeforeLongLaunchesWhenTheOneInFlightHasEnded) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({2, 2, 2, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask(quiet(3, 9), kMs, true));
  EXPECT_FALSE(admission.next(19 * kMs, true).has_value());
  admission.ended(1, 20 * kMs);
  EXPECT_EQ(admission.next(20 * kMs, true)->number, 3u);
  EXPECT_FALSE(admission.next(21 * kMs, true).has_value()) << "it lasts";
  admission.quiet_ended(3, 22 * kMs);
  EXPECT_FALSE(admission.next(22 * kMs, true).has_value()) << "another one may come";
  EXPECT_TRUE(admission.ask(quiet(4, 9), 22'500'000, true));
  admission.quiet_ended(4, 23 * kMs);
  EXPECT_EQ(admission.next(24 * kMs, true)->number, 2u);
  EXPECT_EQ(admission.use(9).quiet, 2u);
  EXPECT_EQ(admission.use(2).held_for[size_t(HoldReason::kQuiet)], 1u);
  EXPECT_EQ(admission.use(9).held, 0u);
}

TEST(QuietMoments, ShareTheTimeWithLongLaunches) {
  LaunchAdmission admission({});
  uint64_t now = 0, numbers = 0, loads = 0, quiet_time = 0;
  EXPECT_TRUE(admission.ask({++numbers, 1, 1, 20 * kMs}, now, true));
  uint64_t in_flight = numbers, ends = 20 * kMs, kernels = 0;
  EXPECT_FALSE(admission.ask({++numbers, 2, 2, 20 * kMs}, now, true));
  // A program loads 200 times, a millisecond each.
  uint64_t load = 0;
  for (; loads < 200; now += kTick) {
    if (in_flight != 0 && now >= ends) {
      admission.ended(in_flight, 20 * kMs);
      EXPECT_FALSE(admission.ask({++numbers, 1 + kernels % 2, kernels % 2, 20 * kMs}, now, true));
      ++kernels;
      in_flight = 0;
    }
    const auto goes = [&](uint64_t number) {
      EXPECT_EQ(in_flight, 0u);
      in_flight = number;
      ends = now + 20 * kMs;
    };
    if (load == 0) {
      load = ++numbers;
      const bool now_quiet = admission.ask(quiet(load, 9), now, true);
      if (!now_quiet) {
        while (true) {
          if (in_flight != 0 && now >= ends) {
            admission.ended(in_flight, 20 * kMs);
            in_flight = 0;
            ++kernels;
            EXPECT_FALSE(admission.ask({++numbers, 1 + kernels % 2, 1, 20 * kMs}, now, true));
          }
          const auto turn = admission.next(now, true);
          if (turn && turn->number == load) break;
          if (turn) goes(turn->number);
          now += kTick;
        }
      }
      now += kMs;
      quiet_time += kMs;
      admission.quiet_ended(load, now);
      load = 0;
      ++loads;
    }
    while (const auto turn = admission.next(now, true)) goes(turn->number);
  }
  EXPECT_GT(kernels, 8u) << "long launches go on meanwhile";
  EXPECT_LT(now, 2 * quiet_time + 60 * kMs) << "and leave half of the time";
}

TEST(QuietMoments, WaitNoLongerThanAnyHoldAndKeepNobodyBackForLong) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 10 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask(quiet(2, 9), 0, true));
  EXPECT_FALSE(admission.next(39 * kMs, true).has_value());
  EXPECT_EQ(admission.next(40 * kMs, true)->number, 2u);
  EXPECT_FALSE(admission.ask({3, 3, 3, 10 * kMs}, 41 * kMs, true));
  EXPECT_EQ(admission.next(60 * kMs, true)->number, 3u) << "the call stands somewhere else";
}

// A session that waits for one could not make its own launch.
TEST(QuietMoments, ComeBeforeTheLaunchesOfTheSameFunction) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({2, 9, 2, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask(quiet(3, 9), 0, true));
  admission.ended(1, 20 * kMs);
  EXPECT_EQ(admission.next(20 * kMs, true)->number, 3u);
  admission.quiet_ended(3, 45 * kMs);  // longer than the launch that waits
  EXPECT_FALSE(admission.ask(quiet(4, 9), 45 * kMs, true)) << "that has its turn first";
  EXPECT_EQ(admission.next(45 * kMs, true)->number, 4u) << "but that cannot have it";
  admission.quiet_ended(4, 46 * kMs);
  EXPECT_EQ(admission.next(47 * kMs, true)->number, 2u);
}

TEST(QuietMoments, AreThereAtOnceForAFunctionAlone) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, false));
  EXPECT_TRUE(admission.ask(quiet(2, 1), 0, false));
  admission.quiet_ended(2, kMs);
  EXPECT_EQ(admission.seen().size(), 1u);
}

}  // namespace
}  // namespace tube::policies

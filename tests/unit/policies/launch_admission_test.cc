// Turns of long launches, on virtual time: functions that always have a launch for each of their
// streams, a GPU on which what is in flight runs in its order.
#include "policies/launch_admission.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

struct Stream {
  uint64_t function;
  uint64_t stream;
  uint64_t took_ns;
  uint64_t pause_ns = 0;  // between the end of a launch and the next one
};

// One kernel runs at a time, in the order in which they went out.
class VirtualGpu {
 public:
  explicit VirtualGpu(LaunchAdmission::Options options, bool shared = true)
      : admission(options), shared_(shared) {}

  void run(const std::vector<Stream>& streams, uint64_t until_ns) {
    std::map<uint64_t, size_t> owner;  // launch -> stream
    std::deque<uint64_t> running;
    std::vector<uint64_t> comes(streams.size(), now);
    uint64_t ends = 0;
    const auto went = [&](uint64_t number) {
      if (running.empty()) ends = now + streams[owner[number]].took_ns;
      running.push_back(number);
      most_in_flight = std::max(most_in_flight, running.size());
    };
    while (now < until_ns) {
      for (size_t i = 0; i < streams.size(); ++i) {
        if (comes[i] > now) continue;
        comes[i] = UINT64_MAX;
        const uint64_t number = ++numbers;
        owner[number] = i;
        if (admission.ask({number, streams[i].function, streams[i].stream, streams[i].took_ns}, now,
                          shared_))
          went(number);
      }
      while (const auto turn = admission.next(now, shared_)) went(turn->number);
      now = std::min(running.empty() ? UINT64_MAX : ends,
                     *std::min_element(comes.begin(), comes.end()));
      if (running.empty() || now < ends) continue;
      const size_t i = owner[running.front()];
      admission.ended(running.front(), streams[i].took_ns);
      used[streams[i].function] += streams[i].took_ns;
      order.push_back(streams[i].function);
      running.pop_front();
      comes[i] = now + streams[i].pause_ns;
      if (!running.empty()) ends = now + streams[owner[running.front()]].took_ns;
    }
  }

  LaunchAdmission admission;
  uint64_t now = 0;
  uint64_t numbers = 0;
  size_t most_in_flight = 0;
  std::map<uint64_t, uint64_t> used;
  std::vector<uint64_t> order;  // functions, by the ends of their launches

 private:
  const bool shared_;
};

LaunchAdmission::Options with(LaunchOrder order) { return {.order = order}; }

TEST(LaunchAdmission, NamesAreReadBack) {
  for (const LaunchOrder order : kLaunchOrders)
    EXPECT_EQ(parse_launch_order(launch_order_name(order)), order);
  EXPECT_FALSE(parse_launch_order("first").has_value());
}

TEST(LaunchAdmission, OneLongLaunchIsInFlightWhileFunctionsShareTheGpu) {
  for (const LaunchOrder order : kLaunchOrders) {
    VirtualGpu gpu(with(order));
    gpu.run({{1, 1, 20 * kMs}, {2, 2, 20 * kMs}, {3, 3, 20 * kMs}}, 2000 * kMs);
    EXPECT_EQ(gpu.most_in_flight, order == LaunchOrder::kNative ? 3u : 1u);
    EXPECT_EQ(gpu.admission.use(1).ran_out, 0u);
  }
}

TEST(LaunchAdmission, AFunctionAloneIsNeverHeld) {
  VirtualGpu gpu({}, false);
  gpu.run({{1, 1, 20 * kMs}, {1, 2, 20 * kMs}, {1, 3, 20 * kMs}}, 500 * kMs);
  EXPECT_EQ(gpu.admission.use(1).held, 0u);
  EXPECT_EQ(gpu.most_in_flight, 3u);
}

TEST(LaunchAdmission, AStreamHasTwoSubmittedWhileNobodyElseWaits) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, true));
  EXPECT_TRUE(admission.ask({2, 1, 1, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({3, 1, 1, 20 * kMs}, 0, true));
  admission.ended(1, 20 * kMs);
  EXPECT_EQ(admission.next(20 * kMs, true)->number, 3u);
  EXPECT_FALSE(admission.ask({4, 2, 9, 20 * kMs}, 21 * kMs, true));
  EXPECT_FALSE(admission.ask({5, 1, 1, 20 * kMs}, 22 * kMs, true));
  admission.ended(2, 20 * kMs);
  EXPECT_FALSE(admission.next(40 * kMs, true).has_value());
  admission.ended(3, 20 * kMs);
  EXPECT_EQ(admission.next(60 * kMs, true)->number, 4u);
  EXPECT_FALSE(admission.next(60 * kMs, true).has_value());
}

TEST(LaunchAdmission, TheGpuRestsForShortWork) {
  LaunchAdmission admission({.rest_part = 12});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({2, 2, 2, 20 * kMs}, 0, true));
  admission.short_work({.outstanding = true});
  EXPECT_FALSE(admission.ask({3, 1, 1, 20 * kMs}, 0, true)) << "no lead over short work";
  admission.ended(1, 24 * kMs);  // two milliseconds of rest
  EXPECT_FALSE(admission.next(24 * kMs, true).has_value());
  EXPECT_FALSE(admission.next(25 * kMs, true).has_value());
  admission.short_work({});
  EXPECT_EQ(admission.next(25 * kMs, true)->number, 2u) << "it is done";
  admission.short_work({.outstanding = true});
  admission.ended(2, 12 * kMs);  // and what was left: two again
  EXPECT_FALSE(admission.next(40 * kMs, true).has_value());
  EXPECT_FALSE(admission.next(43 * kMs, true).has_value()) << "on credit";
  EXPECT_EQ(admission.next(44 * kMs, true)->number, 3u) << "no longer than that";
  EXPECT_FALSE(admission.ask({4, 2, 2, 20 * kMs}, 44 * kMs, true));
  admission.ended(3, 24 * kMs);  // which pays what is owed, and no more
  EXPECT_EQ(admission.next(64 * kMs, true)->number, 4u);
  EXPECT_EQ(admission.use(1).ran_out + admission.use(2).ran_out, 0u);
}

// A light function that comes now and then finds no second long launch of a stream in its way.
TEST(LaunchAdmission, NoLeadSoonAfterShortWork) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, true));
  admission.short_work({.outstanding = true});
  EXPECT_FALSE(admission.ask({2, 1, 1, 20 * kMs}, 1 * kMs, true));
  admission.short_work({});
  EXPECT_FALSE(admission.next(2 * kMs, true).has_value());
  admission.ended(1, 20 * kMs);
  EXPECT_EQ(admission.next(20 * kMs, true)->number, 2u);
  EXPECT_TRUE(admission.ask({3, 1, 1, 20 * kMs}, 102 * kMs, true)) << "none came for 100 ms";
}

// Eight functions with kernels of 20 ms: each waits for seven others and its own, 160 ms, and none
// of the waits means that somebody stands.
TEST(LaunchAdmission, HoldsDoNotRunOutInALongQueue) {
  VirtualGpu gpu({});
  std::vector<Stream> streams;
  for (uint64_t id = 1; id <= 8; ++id) streams.push_back({id, id, 20 * kMs});
  gpu.run(streams, 2000 * kMs);
  EXPECT_EQ(gpu.most_in_flight, 1u);
  for (uint64_t id = 1; id <= 8; ++id) EXPECT_EQ(gpu.admission.use(id).ran_out, 0u);
}

// How long 1,000 launches of 20 ms are held by work that never ends, `functions` having one each.
uint64_t rested_ns(uint64_t functions) {
  LaunchAdmission admission({.longest_hold_ns = 1'000 * kMs});
  admission.short_work({.outstanding = true});
  uint64_t now = 0, rested = 0;
  for (uint64_t number = 1; number < functions; ++number)
    (void)admission.ask({number, number, number, 20 * kMs}, now, true);
  for (uint64_t number = functions, going = 1; going <= 1000; ++number) {
    (void)admission.ask({number, number % functions + 1, number % functions, 20 * kMs}, now, true);
    now += 20 * kMs;
    admission.ended(going, 20 * kMs);
    const uint64_t ended = now;
    auto turn = admission.next(now, true);
    for (; !turn; turn = admission.next(now, true)) now += kMs / 10;
    EXPECT_LE(now - ended, 4 * kMs);
    rested += now - ended;
    going = turn->number;
  }
  return rested;
}

// A fifth of their time, or what is one function's part of the whole.
TEST(LaunchAdmission, RestsAreBounded) {
  constexpr uint64_t kTime = 1000 * 20 * kMs;
  EXPECT_LE(rested_ns(2), kTime / 5);
  EXPECT_GE(rested_ns(2), kTime / 6);
  EXPECT_LE(rested_ns(10), kTime / 9);
  EXPECT_GE(rested_ns(10), kTime / 12);
}

TEST(LaunchAdmission, EqualFunctionsGetEqualTime) {
  for (const LaunchOrder order : {LaunchOrder::kFair, LaunchOrder::kFeedback}) {
    VirtualGpu gpu(with(order));
    std::vector<Stream> streams;
    for (uint64_t id = 1; id <= 5; ++id) streams.push_back({id, id, 15 * kMs});
    gpu.run(streams, 3000 * kMs);
    for (uint64_t id = 2; id <= 5; ++id) {
      EXPECT_LE(gpu.used[id], gpu.used[1] * 11 / 10) << launch_order_name(order);
      EXPECT_GE(gpu.used[id], gpu.used[1] * 9 / 10) << launch_order_name(order);
    }
  }
}

TEST(LaunchAdmission, FairTimeDoesNotDependOnStreamsOrLengths) {
  VirtualGpu gpu({.order = LaunchOrder::kFair, .hold_factor = 50, .longest_hold_ns = 1000 * kMs});
  gpu.run({{1, 1, 5 * kMs}, {2, 2, 20 * kMs}, {2, 3, 20 * kMs}, {2, 4, 20 * kMs}}, 4000 * kMs);
  EXPECT_LE(gpu.used[2], gpu.used[1] * 11 / 10);
  EXPECT_GE(gpu.used[2], gpu.used[1] * 9 / 10);
}

TEST(LaunchAdmission, WhoUsedLittleLatelyGoesFirst) {
  VirtualGpu gpu({});
  gpu.run({{1, 1, 20 * kMs}, {2, 2, 20 * kMs}, {3, 3, 20 * kMs}, {4, 4, 2 * kMs, 50 * kMs}},
          4000 * kMs);
  // It waits for the one in flight, hardly ever for another one.
  const LaunchUse use = gpu.admission.use(4);
  ASSERT_GT(use.held, 20u);
  EXPECT_LE(use.held_ns / use.held, 21 * kMs);
}

// A step of 3 ms every 10 ms is 0.18 of the GPU beside four that fill it, each of them 0.2: their
// levels are the same at times, and it waited for all four.
TEST(LaunchAdmission, AStepWaitsForOneLongLaunchAlsoWhereItUsesAsMuch) {
  for (const uint64_t took : {3 * kMs, 5 * kMs}) {
    VirtualGpu gpu(with(LaunchOrder::kFeedback));
    gpu.run({{1, 1, 20 * kMs},
             {2, 2, 20 * kMs},
             {3, 3, 20 * kMs},
             {4, 4, 20 * kMs},
             {5, 5, took, 10 * kMs}},
            20'000 * kMs);
    gpu.order.erase(gpu.order.begin(), gpu.order.begin() + 50);  // nothing was known of anybody
    size_t longest = 0, between = 0;
    for (const uint64_t function : gpu.order) {
      between = function == 5 ? 0 : between + 1;
      longest = std::max(longest, between);
    }
    EXPECT_LE(longest, 2u);
    for (const uint64_t heavy : {1, 2, 3, 4}) EXPECT_GT(gpu.used[heavy], 3'500 * kMs);
  }
}

TEST(LaunchAdmission, DeadlinesComeFirstAndNobodyStarves) {
  for (const LaunchOrder order :
       {LaunchOrder::kDeadlines, LaunchOrder::kFeedback, LaunchOrder::kPriority}) {
    VirtualGpu gpu(with(order));
    gpu.admission.needs(2, 30 * kMs);
    gpu.run({{1, 1, 10 * kMs}, {2, 2, 10 * kMs}, {2, 3, 10 * kMs}, {3, 4, 10 * kMs}}, 3000 * kMs);
    EXPECT_GT(gpu.used[2], gpu.used[1] * 3 / 2) << launch_order_name(order);
    EXPECT_GT(gpu.used[1], 100 * kMs) << launch_order_name(order);
    EXPECT_GT(gpu.used[3], 100 * kMs) << launch_order_name(order);
    EXPECT_LE(gpu.admission.use(1).longest_ns, 80 * kMs) << launch_order_name(order);
  }
}

TEST(LaunchAdmission, AHoldIsBoundedByFourExpectedDurations) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 5 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({2, 2, 2, 2 * kMs}, kMs, true));
  // The first waits for something that only the second brings: neither of them ends.
  EXPECT_FALSE(admission.next(20 * kMs - 1, true).has_value());
  const auto turn = admission.next(21 * kMs, true);
  ASSERT_TRUE(turn.has_value());
  EXPECT_EQ(turn->number, 2u);
}

TEST(LaunchAdmission, AHoldIsBoundedByTheLongestHold) {
  LaunchAdmission admission({.longest_hold_ns = 100 * kMs});
  EXPECT_TRUE(admission.ask({1, 1, 1, 900 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({2, 2, 2, 900 * kMs}, 10 * kMs, true));
  EXPECT_FALSE(admission.ask({3, 3, 3, 900 * kMs}, 20 * kMs, true));
  EXPECT_FALSE(admission.next(99 * kMs, true).has_value());
  // The one in flight keeps nobody back any more; behind it they take turns again.
  EXPECT_EQ(admission.next(100 * kMs, true)->number, 2u);
  EXPECT_FALSE(admission.next(101 * kMs, true).has_value());
  const auto last = admission.next(170 * kMs, true);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->number, 3u);
  EXPECT_TRUE(last->ran_out);
  EXPECT_EQ(admission.use(3).ran_out, 1u);
  EXPECT_EQ(admission.use(3).longest_ns, 150 * kMs);
}

TEST(LaunchAdmission, WhoIsGoneKeepsNobodyBack) {
  LaunchAdmission admission({});
  EXPECT_TRUE(admission.ask({1, 1, 1, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({2, 2, 2, 20 * kMs}, 0, true));
  EXPECT_FALSE(admission.ask({3, 3, 3, 20 * kMs}, 0, true));
  admission.forget(2);
  admission.remove(1);
  EXPECT_EQ(admission.next(kMs, true)->number, 3u);
  EXPECT_FALSE(admission.waits());
}

TEST(LaunchAdmission, ATightSloMakesShorterLaunchesLong) {
  LaunchAdmission admission({});
  EXPECT_EQ(admission.long_ns(), kMs);
  admission.needs(1, 50 * kMs);
  EXPECT_EQ(admission.long_ns(), kMs);
  admission.needs(2, kMs);
  EXPECT_EQ(admission.long_ns(), kMs / 2);
  admission.forget(2);
  EXPECT_EQ(admission.long_ns(), kMs);
}

}  // namespace
}  // namespace tube::policies

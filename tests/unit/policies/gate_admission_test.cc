// When calls and waits may pass the context gate: values in, decisions out.
#include "policies/gate_admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace tube::policies {
namespace {

constexpr uint64_t kMe = 1, kOther = 2, kThird = 3;
constexpr uint64_t kPatience = 100, kStopped = 1000;

GateCall call_at(uint64_t since, GateGpus gpus = 1) {
  return {kMe, gpus, since, kPatience, kStopped};
}

GateVerdict verdict(const std::vector<GateWait>& waits, uint64_t now, const GateCall& call) {
  return admit_call(call, waits, false, now).verdict;
}

TEST(GateAdmission, ACallBeginsWhenNothingWaits) {
  EXPECT_EQ(verdict({}, 500, call_at(500)), GateVerdict::kBegin);
}

TEST(GateAdmission, ACallStandsForAnotherProgramsWait) {
  const std::vector<GateWait> waits{{kThird, 1, 490}, {kOther, 1, 480}};
  const GateDecision decision = admit_call(call_at(500), waits, false, 500);
  EXPECT_EQ(decision.verdict, GateVerdict::kStand);
  ASSERT_NE(decision.in_the_way, nullptr);
  EXPECT_EQ(decision.in_the_way->owner, kOther) << "the oldest";
}

TEST(GateAdmission, OnesOwnWaitsAndTheProxysAreInNobodysWay) {
  const std::vector<GateWait> waits{{kMe, 1, 490}, {kGateProxy, 1, 490}};
  EXPECT_EQ(verdict(waits, 500, call_at(500)), GateVerdict::kBegin);
}

TEST(GateAdmission, OtherGpusWaitsAreInNobodysWay) {
  EXPECT_EQ(verdict({{kOther, 2, 490}}, 500, call_at(500, 1)), GateVerdict::kBegin);
  EXPECT_EQ(verdict({{kOther, 2, 490}}, 500, call_at(500, 3)), GateVerdict::kStand);
}

TEST(GateAdmission, PatienceEnds) {
  const std::vector<GateWait> waits{{kOther, 1, 490}};
  EXPECT_EQ(verdict(waits, 589, call_at(500)), GateVerdict::kStand);
  const GateDecision decision = admit_call(call_at(500), waits, false, 600);
  EXPECT_EQ(decision.verdict, GateVerdict::kBeginBesideWaits);
  ASSERT_NE(decision.in_the_way, nullptr);
  EXPECT_EQ(decision.in_the_way->owner, kOther);
}

TEST(GateAdmission, AWaitOlderThanThePatienceIsNotWaitedForAgain) {
  EXPECT_EQ(verdict({{kOther, 1, 400}}, 500, call_at(500)), GateVerdict::kBeginBesideWaits);
}

TEST(GateAdmission, AStoppedProgramsWaitIsWaitedForLonger) {
  const std::vector<GateWait> waits{{kOther, 1, 100, true}};
  EXPECT_EQ(verdict(waits, 500, call_at(500)), GateVerdict::kStand);
  EXPECT_EQ(verdict(waits, 1499, call_at(500)), GateVerdict::kStand);
  EXPECT_EQ(verdict(waits, 1500, call_at(500)), GateVerdict::kBeginBesideWaits);
}

TEST(GateAdmission, WaitsOnTheirWayGoFirstWithinThePatience) {
  EXPECT_EQ(admit_call(call_at(500), {}, true, 500).verdict, GateVerdict::kStand);
  EXPECT_EQ(admit_call(call_at(500), {}, true, 600).verdict, GateVerdict::kBeginBesideWaits);
}

TEST(GateAdmission, WhatCanBeLeftUndoneMindsItsOwnWaitsButNotTheProxys) {
  EXPECT_TRUE(admit_call_now(call_at(500), {}, false));
  EXPECT_FALSE(admit_call_now(call_at(500), {}, true));
  EXPECT_FALSE(admit_call_now(call_at(500), std::vector<GateWait>{{kMe, 1, 1}}, false));
  EXPECT_TRUE(admit_call_now(call_at(500), std::vector<GateWait>{{kGateProxy, 1, 1}}, false));
  EXPECT_TRUE(admit_call_now(call_at(500), std::vector<GateWait>{{kOther, 2, 1}}, false));
}

TEST(GateAdmission, AWaitStandsBehindACallWithoutEnd) {
  uint64_t until = 0;
  EXPECT_TRUE(admit_wait({}, kPatience, &until, 500));
  EXPECT_FALSE(admit_wait({.calls = 1}, kPatience, &until, 5'000'000));
  EXPECT_EQ(until, UINT64_MAX);
}

TEST(GateAdmission, AWaitStandsBehindABoundedCallForItsPatience) {
  const GateTraffic traffic{.bounded_calls = 2, .bounded_since_ns = 450};
  uint64_t until = 0;
  EXPECT_FALSE(admit_wait(traffic, kPatience, &until, 500));
  EXPECT_EQ(until, 550u);
  EXPECT_TRUE(admit_wait(traffic, kPatience, &until, 550));
  const GateTraffic both{.calls = 1, .bounded_calls = 1, .bounded_since_ns = 0};
  EXPECT_FALSE(admit_wait(both, kPatience, &until, 5'000)) << "the other call has no bound";
}

TEST(GateAdmission, WaitsLeaveRoomInTheQueues) {
  const WaitRoom room{4, 2};
  const auto has_room = [&](const std::vector<GateWait>& waits, bool alone) {
    return wait_has_room(waits, 1, kMe, alone, room);
  };
  const GateWait mine{kMe, 1, 0}, others{kOther, 1, 0}, elsewhere{kOther, 2, 0};
  EXPECT_TRUE(has_room({mine, others, others, elsewhere}, false));
  EXPECT_FALSE(has_room({mine, others, others, others}, false)) << "half of the queues";
  EXPECT_FALSE(has_room({mine, mine}, false)) << "others are there";
  EXPECT_TRUE(has_room({mine, mine, mine}, true));
  EXPECT_FALSE(has_room({mine, mine, mine, mine}, true));
}

TEST(StoppedLimit, CountsFromWhenTheProgramIsSeenInTheWayEachTimeAnew) {
  using Owners = std::vector<uint64_t>;
  StoppedLimit limit(100);
  EXPECT_EQ(limit.look({kOther}, 1000), Owners{});
  EXPECT_EQ(limit.look({kOther, kThird}, 1099), Owners{});
  EXPECT_EQ(limit.look({kOther, kThird}, 1100), Owners{kOther});
  EXPECT_EQ(limit.look({kThird}, 1150), Owners{}) << "the other one went on";
  EXPECT_EQ(limit.look({kOther, kThird}, 1199), Owners{kThird});
  EXPECT_EQ(limit.look({kOther}, 1250), Owners{});
  EXPECT_EQ(limit.look({kOther}, 1299), Owners{kOther});
}

}  // namespace
}  // namespace tube::policies

// Which part of a GPU a function with a deadline gets by itself, on virtual time.
#include "policies/auto_slice.h"

#include <gtest/gtest.h>

#include <vector>

#include "policies/sm_slices.h"
#include "tests/support/units.h"

namespace tube::policies {
namespace {

// A function with a step every 10 ms that wants `needs` of the parts' sizes beside heavy ones.
struct Light {
  AutoSlice policy{3, {}};
  uint64_t now = 1000 * kMs;
  bool heavy = true;
  bool holds = true;   // what it wants is given
  uint32_t needs = 0;  // the smallest split in which it is in time; 3: none
  uint64_t changes = 0;

  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void step() {
    const auto before = policy.wanted();
    const bool inside = before && holds;
    const bool missed = inside ? *before < needs : heavy;
    const uint64_t began = now;
    now += 10 * kMs;
    policy.step(began, missed, heavy, holds, now);
    policy.look(now);
    changes += policy.wanted() != before;
  }
  void idle(uint64_t ns) {
    for (const uint64_t end = now + ns; now < end; now += 100 * kMs) policy.look(now);
  }
};

TEST(AutoSlice, AFunctionThatMissesItsDeadlineGetsTheSmallestPart) {
  Light run;
  run.steps(2);
  EXPECT_FALSE(run.policy.wanted()) << "two late steps are not enough";
  run.step();
  EXPECT_EQ(run.policy.wanted(), 0u);
  run.steps(2000);
  EXPECT_EQ(run.policy.wanted(), 0u) << "as long as the others are there";
  EXPECT_EQ(run.changes, 1u);
  EXPECT_EQ(run.policy.missed(), 3u);
}

TEST(AutoSlice, APartThatIsTooSmallBecomesLarger) {
  Light run{.needs = 2};
  run.steps(40);
  EXPECT_EQ(run.policy.wanted(), 2u);
  EXPECT_EQ(run.changes, 3u);
  run.heavy = false;
  run.steps(300);
  EXPECT_FALSE(run.policy.wanted());
  run.heavy = true;
  run.steps(4);
  EXPECT_EQ(run.policy.wanted(), 2u) << "what was too small is not tried again";
}

TEST(AutoSlice, WhatDoesNotHelpGoesBackAndIsNotTriedForAWhile) {
  Light run{.needs = 3};
  run.steps(500);
  EXPECT_FALSE(run.policy.wanted());
  EXPECT_EQ(run.changes, 4u);
  run.steps(6500);
  EXPECT_GT(run.changes, 4u);
}

TEST(AutoSlice, ThePartGoesBackWhenTheNeighboursAreGone) {
  Light run;
  run.steps(10);
  run.heavy = false;
  run.steps(190);
  EXPECT_EQ(run.policy.wanted(), 0u);
  run.steps(20);
  EXPECT_FALSE(run.policy.wanted());
}

TEST(AutoSlice, ThePartGoesBackWhenTheFunctionDoesNothing) {
  Light run;
  run.steps(10);
  run.idle(1900 * kMs);
  EXPECT_TRUE(run.policy.wanted());
  run.idle(300 * kMs);
  EXPECT_FALSE(run.policy.wanted());
}

// Neighbours that come and go every few seconds do not move everybody's streams each time.
TEST(AutoSlice, APartThatIsWantedAgainSoonIsKeptForLonger) {
  Light run;
  for (int i = 0; i < 40; ++i) {
    run.heavy = i % 2 == 0;
    run.steps(300);
  }
  EXPECT_LT(run.changes, 10u);
}

TEST(AutoSlice, StepsThatAreLateWithoutHeavyNeighboursChangeNothing) {
  Light run;
  run.heavy = false;
  for (int i = 0; i < 100; ++i) {
    run.policy.step(run.now, true, false, false, run.now + kMs);
    run.now += 10 * kMs;
  }
  EXPECT_FALSE(run.policy.wanted());
}

TEST(AutoSlice, APartThatSomebodyElseHoldsSaysNothing) {
  Light run{.holds = false, .needs = 1};
  run.steps(100);
  EXPECT_EQ(run.policy.wanted(), 0u) << "it was never tried";
}

// ---- who holds what

TEST(SmSlices, WhoAskedComesBeforeWhoGetsOneByItself) {
  SmSlices slices(132, {16, 32, 64});
  slices.want(1, 1);
  ASSERT_TRUE(slices.held());
  EXPECT_EQ(slices.held()->function, 1u);
  EXPECT_EQ(slices.multiprocessors_of(slices.held()->part), 32u);
  slices.want(2, 0);
  slices.want(1, 2);
  EXPECT_EQ(slices.multiprocessors_of(slices.part_of(1)), 64u);
  EXPECT_EQ(slices.multiprocessors_of(slices.part_of(2)), 68u);
  slices.ask(3, 12);
  EXPECT_EQ(slices.held()->function, 3u);
  EXPECT_EQ(slices.multiprocessors_of(slices.part_of(1)), 116u);
  slices.forget(3);
  slices.want(1, std::nullopt);
  EXPECT_EQ(slices.held()->function, 2u);
  slices.exchanges(2);
  EXPECT_FALSE(slices.held());
  slices.ask(4, 50);
  slices.want(4, std::nullopt);
  EXPECT_EQ(slices.held()->function, 4u) << "it asked";
}

}  // namespace
}  // namespace tube::policies

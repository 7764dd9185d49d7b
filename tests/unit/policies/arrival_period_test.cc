// Steps at marks of a clock, whose next one can be told, and others.
#include "policies/arrival_period.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

TEST(ArrivalPeriod, StepsAtMarksOfAClockAreExpected) {
  ArrivalPeriod steps;
  std::minstd_rand random(1);
  uint64_t mark = 500 * kMs;
  for (int i = 0; i < 9; ++i, mark += 10 * kMs) steps.began(mark + random() % 80'000);
  ASSERT_NEAR(double(steps.period_ns()), 1e7, 2e4);
  const auto next = [&](uint64_t now) {
    return ArrivalPeriod::next_ns(steps.anchor_ns(), steps.period_ns(), now);
  };
  EXPECT_NEAR(double(next(mark - 9 * kMs)), double(mark), 1.5e5);
  EXPECT_NEAR(double(next(mark - kMs)), double(mark), 1.5e5);
  EXPECT_NEAR(double(next(mark + kMs / 5)), double(mark), 2e5) << "it is a little late";
  EXPECT_NEAR(double(next(mark + kMs)), double(mark + 10 * kMs), 3e5) << "it does not come";
}

TEST(ArrivalPeriod, MarksThatGoByWhileAStepLastsDoNotMatter) {
  ArrivalPeriod steps;
  uint64_t mark = 500 * kMs;
  for (const uint64_t marks : {1u, 3u, 2u, 1u, 2u, 2u, 3u, 1u, 2u, 2u}) {
    mark += marks * 10 * kMs;
    steps.began(mark);
  }
  EXPECT_EQ(steps.period_ns(), 10 * kMs);
  EXPECT_EQ(steps.anchor_ns(), mark);
}

TEST(ArrivalPeriod, PartsOfAStepAreNoSteps) {
  ArrivalPeriod steps;
  for (uint64_t mark = 500 * kMs; mark < 600 * kMs; mark += 10 * kMs)
    for (uint64_t part = 0; part < 5; ++part) steps.began(mark + part * kMs / 6);
  EXPECT_EQ(steps.period_ns(), 10 * kMs);
}

TEST(ArrivalPeriod, OneThatComesLateMovesNoMarks) {
  ArrivalPeriod steps;
  uint64_t mark = 500 * kMs;
  for (int i = 0; i < 10; ++i, mark += 10 * kMs) steps.began(mark);
  steps.began(mark + 4 * kMs);
  EXPECT_EQ(steps.anchor_ns(), mark - 10 * kMs);
  EXPECT_EQ(ArrivalPeriod::next_ns(steps.anchor_ns(), steps.period_ns(), mark + 5 * kMs),
            mark + 10 * kMs);
}

TEST(ArrivalPeriod, StepsThatComeByChanceAreNotExpected) {
  ArrivalPeriod steps;
  std::mt19937 random(7);
  std::exponential_distribution<double> pause(1 / 10e6);
  uint64_t now = kMs, known = 0;
  for (int i = 0; i < 2000; ++i) {
    steps.began(now += kMs + static_cast<uint64_t>(pause(random)));
    known += steps.period_ns() != 0;
  }
  EXPECT_LT(known, 20u);
}

TEST(ArrivalPeriod, AnotherPeriodIsLearntAndALongPauseForgets) {
  ArrivalPeriod steps;
  uint64_t now = kMs;
  for (int i = 0; i < 12; ++i) steps.began(now += 10 * kMs);
  for (int i = 0; i < 12; ++i) steps.began(now += 33 * kMs);
  EXPECT_EQ(steps.period_ns(), 33 * kMs);
  steps.began(now + 20'000 * kMs);
  EXPECT_EQ(steps.period_ns(), 0u);
}

}  // namespace
}  // namespace tube::policies

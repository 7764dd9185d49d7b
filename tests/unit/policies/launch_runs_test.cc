// Which launches are held: learning, replay, letting go in order, and giving up on runs that never
// come whole.
#include "policies/launch_runs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tube::policies {
namespace {

using Kind = LaunchRuns::Kind;

// Plays launches and says what became of each: the order in which a caller that obeys would launch
// them.
class Player {
 public:
  explicit Player(LaunchRuns::Options options = {}) : runs(options) {}
  void launch(uint64_t shape) {
    const LaunchRuns::Decision d = runs.launch(shape);
    if (d.kind == Kind::kPass) {
      if (d.release) let_go();
      EXPECT_TRUE(held.empty());
      done.push_back(shape);
      return;
    }
    held.push_back(shape);
    if (d.kind == Kind::kHold) return;
    ++replays;
    in_graphs += held.size();
    let_go();
    runs.replayed();
  }
  void play(const std::vector<uint64_t>& shapes) {
    for (uint64_t shape : shapes) launch(shape);
    boundary();
  }
  void boundary() {
    if (runs.boundary()) let_go();
    EXPECT_TRUE(held.empty());
  }
  void give_up() {
    runs.give_up();
    let_go();
  }
  void let_go() {
    done.insert(done.end(), held.begin(), held.end());
    held.clear();
  }

  LaunchRuns runs;
  std::vector<uint64_t> held, done;
  uint32_t replays = 0;
  size_t in_graphs = 0;
};

std::vector<uint64_t> sequence(uint64_t first, size_t count) {
  std::vector<uint64_t> shapes(count);
  for (size_t i = 0; i < count; ++i) shapes[i] = first + i * i;
  return shapes;
}

TEST(LaunchRuns, ARunIsHeldOnceItIsProven) {
  Player p;
  const auto run = sequence(100, 20);
  p.play(run);
  p.play(run);
  EXPECT_EQ(p.replays, 0u);
  for (int i = 0; i < 5; ++i) p.play(run);
  EXPECT_EQ(p.replays, 5u);
  EXPECT_EQ(p.done.size(), 7 * run.size());
}

TEST(LaunchRuns, ShortRunsPass) {
  Player p;
  for (int i = 0; i < 10; ++i) p.play(sequence(1, 7));
  EXPECT_EQ(p.replays, 0u);
}

TEST(LaunchRuns, AnotherLaunchLetsTheHeldOnesGoFirst) {
  Player p;
  const auto run = sequence(100, 20);
  p.play(run);
  p.play(run);
  for (size_t i = 0; i < 10; ++i) p.launch(run[i]);
  EXPECT_EQ(p.held.size(), 10u);
  p.done.clear();
  p.launch(7);
  std::vector<uint64_t> expected(run.begin(), run.begin() + 10);
  expected.push_back(7);
  EXPECT_EQ(p.done, expected);
  p.launch(run[11]);  // the rest passes
  EXPECT_TRUE(p.held.empty());
}

TEST(LaunchRuns, TheBoundaryAndTheTimeoutLetGo) {
  Player p;
  const auto run = sequence(100, 20);
  p.play(run);
  p.play(run);
  p.launch(run[0]);
  EXPECT_TRUE(p.runs.holding());
  p.boundary();
  p.launch(run[0]);
  p.launch(run[1]);
  p.give_up();
  EXPECT_FALSE(p.runs.holding());
  for (size_t i = 2; i < run.size(); ++i) p.launch(run[i]);
  EXPECT_TRUE(p.held.empty());
  p.boundary();
  p.play(run);
  EXPECT_EQ(p.replays, 1u);
}

TEST(LaunchRuns, RunsWithTheSameBeginningAreToldApart) {
  Player p;
  auto a = sequence(100, 20);
  auto b = a;
  b[15] = 1;
  for (int i = 0; i < 2; ++i) p.play(a), p.play(b);
  for (int i = 0; i < 4; ++i) p.play(a), p.play(b);
  EXPECT_EQ(p.replays, 8u);
}

TEST(LaunchRuns, TheFirstRunsOfAStepAreShort) {
  Player p;
  const auto step = sequence(100, 400);
  p.play(step);
  p.play(step);
  std::vector<size_t> launched;
  for (uint64_t shape : step) {
    const uint32_t before = p.replays;
    p.launch(shape);
    if (p.replays != before) launched.push_back(p.done.size() - 2 * step.size());
  }
  EXPECT_EQ(launched, (std::vector<size_t>{16, 48, 112, 240, 368, 400}));
  p.boundary();
}

TEST(LaunchRuns, RunsWithTheSameBeginningFollowTheirChains) {
  Player p;
  const std::vector<uint64_t> same(1000, 42);
  for (int i = 0; i < 2; ++i) p.play(same);
  p.done.clear();
  p.in_graphs = 0;
  p.play(same);
  EXPECT_EQ(p.done.size(), same.size());
  EXPECT_GE(p.in_graphs + 16, same.size());
}

// Whatever repeats is found within one window and a period, at whatever phase.
TEST(LaunchRuns, AStreamWithoutBoundariesGoesByItsPeriod) {
  for (size_t period : {1, 2, 7, 100, 171, 300, 511}) {
    Player p;
    const auto step = sequence(5, period);
    for (size_t i = 0; i < 37; ++i) p.launch(9999 + i);  // a warm-up that does not come again
    const size_t learning = (period > 400 ? 2048 : 1024) + std::max<size_t>(period, 128);
    const size_t count = learning + 20 * std::max<size_t>(period, 128);
    for (size_t i = 0; i < count; ++i) p.launch(step[i % period]);
    EXPECT_GE(p.in_graphs + learning, count) << period;
    p.boundary();
    EXPECT_EQ(p.done.size(), count + 37) << period;
  }
}

TEST(LaunchRuns, WithoutAPeriodStepsOfManyWindowsAreLearnedFromTheirBoundaries) {
  Player p;
  const auto step = sequence(5, 3000);
  p.play(step);
  p.play(step);
  EXPECT_EQ(p.in_graphs, 0u);
  p.play(step);
  EXPECT_EQ(p.in_graphs, step.size());
}

TEST(LaunchRuns, AfterGivingUpTheNextRunIsHeldAgain) {
  Player p;
  const auto step = sequence(100, 400);
  p.play(step);
  p.play(step);
  for (size_t i = 0; i < 400; ++i) {
    if (i == 60) p.give_up();
    p.launch(step[i]);
    EXPECT_TRUE(i < 60 || i >= 112 || p.held.empty());
  }
  p.boundary();
  EXPECT_EQ(p.in_graphs, 400u - 64u);
}

TEST(LaunchRuns, WhatNeverComesWholeIsNotHeldForEver) {
  Player p;
  const auto run = sequence(100, 20);
  p.play(run);
  p.play(run);
  int held = 0;
  for (int i = 0; i < 50; ++i) {
    p.launch(run[0]);
    held += p.runs.holding();
    p.boundary();
  }
  EXPECT_LE(held, 12);
  for (int i = 0; i < 200; ++i) p.play(run);  // and gets another chance
  EXPECT_GT(p.replays, 0u);
}

TEST(LaunchRuns, TheRunUnusedLongestMakesRoomAndSaysSo) {
  Player p({.known = 2});
  for (int i = 0; i < 3; ++i) p.play(sequence(1, 10));
  for (int i = 0; i < 3; ++i) p.play(sequence(1000, 10));
  EXPECT_FALSE(p.runs.take_forgotten(0));
  for (int i = 0; i < 2; ++i) p.play(sequence(2000, 10));
  EXPECT_TRUE(p.runs.take_forgotten(0));
  EXPECT_FALSE(p.runs.take_forgotten(0));
  EXPECT_FALSE(p.runs.take_forgotten(1));
}

TEST(LaunchRuns, ForgettingStartsAnew) {
  Player p;
  const auto run = sequence(100, 20);
  for (int i = 0; i < 3; ++i) p.play(run);
  EXPECT_EQ(p.replays, 1u);
  p.runs.forget();
  EXPECT_TRUE(p.runs.take_forgotten(0));
  p.play(run);
  EXPECT_EQ(p.replays, 1u);
}

// Whatever comes, everything is launched exactly once and in order.
TEST(LaunchRuns, RandomProgramsKeepTheirOrder) {
  uint64_t state = 12345;
  auto random = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  Player p({.least = 3, .first = 4, .longest = 16, .window = 64, .known = 8});
  std::vector<std::vector<uint64_t>> steps;
  for (uint64_t i = 0; i < 6; ++i) steps.push_back(sequence(random(3), 4 + 5 * i));
  std::vector<uint64_t> expected;
  for (int i = 0; i < 20'000; ++i) {
    for (uint64_t shape : steps[random(6) * random(2)]) {
      if (random(300) == 0) p.give_up();
      if (random(300) == 0) p.boundary();
      if (random(300) == 0) shape = random(3);
      expected.push_back(shape);
      p.launch(shape);
    }
    if (random(4) != 0) p.boundary();
    if (random(2000) == 0) {
      p.let_go();
      p.runs.forget();
    }
  }
  p.boundary();
  EXPECT_EQ(p.done, expected);
  EXPECT_GT(p.replays, 100u);
}

}  // namespace
}  // namespace tube::policies

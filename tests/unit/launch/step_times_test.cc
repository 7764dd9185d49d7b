#include "proxy/launch/step_times.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/units.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kPeriod = 10 * kMs;

// Steps that begin, ask for their end and end.
struct Function {
  uint64_t progress = 0, wanted = 0, now = 100 * kMs;
  AskedWord word;
  StepTimes steps{word};

  Function() { word.asked(&progress, 0); }
  void step() {
    EXPECT_TRUE(steps.woke(now));
    word.asked(&progress, ++wanted);
    progress = wanted;
    now += kPeriod;
  }
  bool expects(uint64_t at) const {
    uint64_t next = 0, until = 0;
    return steps.next(at, &next, &until);
  }
};

TEST(StepTimes, AStepBeginsUntilItsEndIsAskedFor) {
  Function function;
  function.step();
  EXPECT_TRUE(function.steps.woke(function.now));
  EXPECT_FALSE(function.steps.begins(function.now)) << "nobody expected it";
  function.word.asked(&function.progress, ++function.wanted);
  function.progress = function.wanted;
  function.now += kPeriod;
  for (int i = 0; i < 10; ++i) function.step();
  EXPECT_TRUE(function.expects(function.now - kMs));
  EXPECT_TRUE(function.steps.woke(function.now));
  EXPECT_FALSE(function.steps.woke(function.now)) << "a part of it";
  EXPECT_TRUE(function.steps.begins(function.now));
  EXPECT_FALSE(function.steps.begins(function.now + 2 * kMs)) << "it does not ask";
  function.word.asked(&function.progress, ++function.wanted);
  EXPECT_FALSE(function.steps.begins(function.now));
  EXPECT_TRUE(function.word.outstanding());
}

// Who looks has read the clock before the step began.
TEST(StepTimes, AStepThatBeganSinceTheClockWasReadBegins) {
  Function function;
  for (int i = 0; i < 10; ++i) function.step();
  const uint64_t read = function.now - 200;
  EXPECT_TRUE(function.steps.woke(function.now));
  EXPECT_TRUE(function.steps.begins(read));
  EXPECT_TRUE(function.expects(read));
}

}  // namespace
}  // namespace tube::proxy

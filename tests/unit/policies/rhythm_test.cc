// When a function's next record is expected, in virtual time.
#include "policies/rhythm.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

// A step that begins at `at_ns` and works for `work_ns`.
void step(Rhythm& rhythm, uint64_t at_ns, uint64_t work_ns = 200 * kUs) {
  rhythm.works(at_ns);
  rhythm.rests(at_ns + work_ns);
}

bool expected(const Rhythm& rhythm) { return rhythm.next().until_ns != 0; }

TEST(Rhythm, ABeatIsExpectedWhenThreeHaveAgreed) {
  Rhythm rhythm;
  rhythm.rests(95 * kMs);
  for (uint64_t n = 0; n < 4; ++n) {
    EXPECT_FALSE(expected(rhythm)) << n << " steps";
    step(rhythm, 100 * kMs + n * 5 * kMs, n * 300 * kUs);  // however long each works
  }
  const Rhythm::Watch watch = rhythm.next();
  EXPECT_LT(watch.from_ns, 120 * kMs);
  EXPECT_GT(watch.until_ns, 120 * kMs);
  EXPECT_EQ(watch.from_ns, 120 * kMs - Rhythm::kEarlyNs);
  EXPECT_EQ(watch.until_ns, 120 * kMs + Rhythm::kLateNs);
}

TEST(Rhythm, AStepMayComeALittleEarlyOrLate) {
  Rhythm rhythm;
  const uint64_t off[] = {0, 100, 10, 90, 0, 70, 20};
  uint64_t at = 0;
  for (uint64_t n = 0; n < std::size(off); ++n) {
    at = kMs + n * 5 * kMs + off[n] * kUs;
    if (n > 3) {
      EXPECT_LE(rhythm.next().from_ns, at) << n;
      EXPECT_GE(rhythm.next().until_ns, at) << n;
    }
    step(rhythm, at);
  }
}

TEST(Rhythm, OneMissedBeatEndsItUntilThereIsOneAgain) {
  Rhythm rhythm;
  for (uint64_t n = 1; n <= 4; ++n) step(rhythm, n * 5 * kMs);
  ASSERT_TRUE(expected(rhythm));
  step(rhythm, 27 * kMs);
  EXPECT_FALSE(expected(rhythm));
  for (uint64_t n = 1; n <= 2; ++n) step(rhythm, 27 * kMs + n * 5 * kMs);
  EXPECT_FALSE(expected(rhythm));
  step(rhythm, 42 * kMs);
  EXPECT_TRUE(expected(rhythm));
}

TEST(Rhythm, ALongPauseIsForgotten) {
  Rhythm rhythm;
  step(rhythm, 60'000 * kMs);
  uint64_t steps = 0;
  for (; !expected(rhythm) && steps < 100; ++steps) step(rhythm, (60'005 + steps * 5) * kMs);
  EXPECT_LE(steps, 20u);
}

TEST(Rhythm, PausesWithinAStepAreNoBeats) {
  Rhythm rhythm;
  for (uint64_t n = 1; n <= 6; ++n) {
    step(rhythm, n * 20 * kMs);
    step(rhythm, n * 20 * kMs + 3 * kMs);  // what it waited for on the GPU has ended
  }
  const Rhythm::Watch watch = rhythm.next();
  EXPECT_LE(watch.from_ns, 140 * kMs);
  EXPECT_GE(watch.until_ns, 140 * kMs);
}

TEST(Rhythm, NothingIsExpectedOfOthers) {
  Rhythm busy, seldom, irregular;
  for (uint64_t n = 1; n <= 20; ++n) {
    step(busy, n * 500 * kUs);
    step(seldom, n * 1000 * kMs);
    step(irregular, n * n * 3 * kMs);
  }
  EXPECT_FALSE(expected(busy));
  EXPECT_FALSE(expected(seldom));
  EXPECT_FALSE(expected(irregular));
}

// On a machine whose idle cores sleep deeply.
TEST(Rhythm, WakesEarlierWhereTimersAreLateAndNotByMoreThanAPartOfTheBeat) {
  Rhythm rhythm;
  for (uint64_t n = 1; n <= 4; ++n) step(rhythm, n * 5 * kMs);
  const auto early = [&] { return 25 * kMs - rhythm.next().from_ns; };
  for (int i = 0; i < 100; ++i) rhythm.timer_was_late(60 * kUs);
  EXPECT_EQ(early(), Rhythm::kEarlyNs);
  // Nine in ten by 80 us, each tenth by 240: woken early enough for those, too.
  for (int i = 0; i < 300; ++i) rhythm.timer_was_late(i % 10 == 0 ? 240 * kUs : 80 * kUs);
  EXPECT_GT(early(), 240 * kUs);
  for (int i = 0; i < 20; ++i) rhythm.timer_was_late(2 * kMs);
  EXPECT_EQ(early(), 5 * kMs / Rhythm::kEarlyPart);
  for (int i = 0; i < 100; ++i) rhythm.timer_was_late(0);
  EXPECT_EQ(early(), Rhythm::kEarlyNs);
}

TEST(Rhythm, WatchingIsASmallPartOfTheBeat) {
  for (const uint64_t beat : {3 * kMs, 5 * kMs, 10 * kMs, 33 * kMs, 200 * kMs}) {
    Rhythm kept, loose;
    for (uint64_t n = 1; n <= 4; ++n) {
      step(kept, n * beat);
      step(loose, n * beat + n % 2 * beat / 40);
    }
    const uint64_t least = Rhythm::kEarlyNs + Rhythm::kLateNs;
    EXPECT_EQ(kept.next().until_ns - kept.next().from_ns, least) << beat;
    ASSERT_NE(loose.next().until_ns, 0u) << beat;
    EXPECT_LE(loose.next().until_ns - loose.next().from_ns, least + 3 * beat / 16);
  }
}

}  // namespace
}  // namespace tube::policies

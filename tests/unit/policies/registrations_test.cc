// When host memory may be registered with the driver, and how much at a time.
#include "policies/memory/registrations.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

TEST(Registrations, NobodyIsNoReasonToWait) {
  EXPECT_EQ(registration_pause_ns(Company::kNone, 27 * kMs, 0), 0u);
  EXPECT_GT(registered_at_once(Company::kNone), registered_at_once(Company::kBetween));
  EXPECT_EQ(registered_at_once(Company::kAtWork), kRegisteredPiece);
}

TEST(Registrations, APieceStandsBackForSeveralTimesTheLastOne) {
  EXPECT_EQ(registration_pause_ns(Company::kAtWork, kMs, 0), kPauseTimesAtWork * kMs);
  EXPECT_EQ(registration_pause_ns(Company::kAtWork, kMs, 10 * kMs), 6 * kMs);
  EXPECT_EQ(registration_pause_ns(Company::kAtWork, kMs, 16 * kMs), 0u);
  EXPECT_EQ(registration_pause_ns(Company::kBetween, kMs, 3 * kMs), 1 * kMs);
  EXPECT_EQ(registration_pause_ns(Company::kAtWork, 0, 0), 0u);
}

// Whatever a piece takes: it ends, and takes at most its part of the time, as long as pieces are
// shorter than the bound on pauses.
TEST(Registrations, TheShareOfTheLockIsBounded) {
  for (const Company company : {Company::kBetween, Company::kAtWork}) {
    const uint64_t times = company == Company::kAtWork ? kPauseTimesAtWork : kPauseTimesBetween;
    for (uint64_t took = 1; took < 10'000 * kMs; took *= 3) {
      const uint64_t pause = registration_pause_ns(company, took, 0);
      EXPECT_LE(pause, kLongestPauseNs);
      if (took * times <= kLongestPauseNs) {
        EXPECT_EQ(pause, took * times);
      }
      EXPECT_EQ(registration_pause_ns(company, took, pause), 0u);
    }
  }
}

// A stream of pieces beside work: in virtual time, with the price of an H200.
TEST(Registrations, SixtyMibBesideWorkTakeATenthOfASecond) {
  uint64_t now = 0, ended = 0, took = 0, held = 0;
  for (uint64_t done = 0; done < 60ull << 20; done += kRegisteredPiece) {
    now += registration_pause_ns(Company::kAtWork, took, now - ended);
    took = 60'000 * (kRegisteredPiece >> 20);
    now += took;
    held += took;
    ended = now;
  }
  EXPECT_LT(now, 100 * kMs);
  EXPECT_LT(held * 15, now);
}

}  // namespace
}  // namespace tube::policies

// How much pinned memory is held ready, on plain values.
#include "policies/memory/pinned_pool.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr PinnedBudget kBudget{1024 * kMiB};

PinnedDemand after(uint64_t bytes, bool found = false, int times = 1) {
  PinnedDemand demand;
  demand.arrived(kSecond);
  for (int i = 0; i < times; ++i) demand.asked(bytes, found, kBudget, kSecond);
  return demand;
}

TEST(PinnedPool, PiecesFollowTheRequest) {
  EXPECT_EQ(pinned_piece_for(0), 0u);
  EXPECT_EQ(pinned_piece_for(1), 4 * kMiB);
  EXPECT_EQ(pinned_piece_for(2 * kMiB), 8 * kMiB);
  EXPECT_EQ(pinned_piece_for(8 * kMiB + 1), 32 * kMiB);
  EXPECT_EQ(pinned_piece_for(32 * kMiB), 32 * kMiB);
  EXPECT_EQ(pinned_piece_for(100 * kMiB), 128 * kMiB);
  EXPECT_EQ(pinned_piece_for(256 * kMiB), 256 * kMiB);
  EXPECT_EQ(pinned_piece_for(256 * kMiB + 1), 0u) << "made when it is asked for";
  EXPECT_EQ(pinned_piece_for(UINT64_MAX), 0u);
}

TEST(PinnedPool, WhoAskedForNothingGetsNothing) {
  PinnedDemand demand;
  EXPECT_EQ(next_pinned_piece(demand, {}, kBudget, kSecond), 0u);
  demand.arrived(kSecond);
  EXPECT_EQ(next_pinned_piece(demand, {}, kBudget, kSecond), 0u);
}

TEST(PinnedPool, ARequestBringsThePieceForItsLike) {
  const PinnedDemand demand = after(100 * kMiB);
  EXPECT_EQ(next_pinned_piece(demand, {}, kBudget, kSecond), 128 * kMiB);
  EXPECT_EQ(next_pinned_piece(demand, {128 * kMiB, 128 * kMiB, 128 * kMiB}, kBudget, kSecond), 0u);
  // Enough bytes, but none of the runs holds such a request.
  EXPECT_EQ(next_pinned_piece(demand, {192 * kMiB, 64 * kMiB, 192 * kMiB}, kBudget, kSecond),
            128 * kMiB);
}

TEST(PinnedPool, EachMissDoublesWhatIsHeldAhead) {
  EXPECT_EQ(after(16 * kMiB, false, 1).ahead_bytes(), 32 * kMiB);
  EXPECT_EQ(after(16 * kMiB, false, 3).ahead_bytes(), 128 * kMiB);
  EXPECT_EQ(after(16 * kMiB, true, 3).ahead_bytes(), 32 * kMiB);
  EXPECT_EQ(after(16 * kMiB, false, 60).ahead_bytes(), kBudget.client_bytes());
}

TEST(PinnedPool, TheBudgetBoundsWhatIsMade) {
  const PinnedDemand demand = after(16 * kMiB, false, 60);
  const uint64_t most = kBudget.client_bytes();
  EXPECT_EQ(next_pinned_piece(demand, {most - 32 * kMiB, 32 * kMiB, most}, kBudget, kSecond),
            32 * kMiB);
  EXPECT_EQ(next_pinned_piece(demand, {most - 31 * kMiB, 31 * kMiB, most}, kBudget, kSecond), 0u);
  EXPECT_EQ(next_pinned_piece(demand, {0, 0, kBudget.total_bytes}, kBudget, kSecond), 0u)
      << "others hold all of it";
  EXPECT_EQ(next_pinned_piece(demand, {}, {0}, kSecond), 0u);
  // Half of it is less than the power of two, but holds the request.
  EXPECT_EQ(next_pinned_piece(after(100 * kMiB), {}, {220 * kMiB}, kSecond), 100 * kMiB);
}

TEST(PinnedPool, QuietClientsHoldNothing) {
  const PinnedDemand demand = after(16 * kMiB);
  const PinnedState state{32 * kMiB, 32 * kMiB, 32 * kMiB, 32 * kMiB};
  const uint64_t before = kSecond + kPinnedQuietNs - 1, later = before + 1;
  EXPECT_EQ(pinned_surplus(demand, state, kBudget, before), 0u);
  EXPECT_EQ(pinned_surplus(demand, state, kBudget, later), 32 * kMiB);
  EXPECT_EQ(next_pinned_piece(demand, {}, kBudget, later), 0u) << "or it would come again";
}

TEST(PinnedPool, AClientThatArrivesKeepsWhatItFinds) {
  PinnedDemand demand;
  demand.arrived(kSecond);
  const PinnedState state{256 * kMiB, 256 * kMiB, 256 * kMiB, 256 * kMiB};
  EXPECT_EQ(pinned_surplus(demand, state, kBudget, 2 * kSecond), 0u);
  EXPECT_EQ(pinned_surplus(demand, state, kBudget, kSecond + kPinnedQuietNs), 256 * kMiB);
}

TEST(PinnedPool, SurplusIsWhatExceedsABound) {
  const PinnedDemand demand = after(16 * kMiB);
  const uint64_t own = kBudget.client_bytes(), all = kBudget.total_bytes;
  EXPECT_EQ(pinned_surplus(demand, {own, 1, own, own}, kBudget, kSecond), 0u);
  EXPECT_EQ(pinned_surplus(demand, {own + 5, 1, own + 5, own}, kBudget, kSecond), 5u);
  EXPECT_EQ(pinned_surplus(demand, {own, 1, all + 7, own}, kBudget, kSecond), 7u);
  EXPECT_EQ(pinned_surplus(demand, {3, 1, all + 7, 3}, kBudget, kSecond), 3u);
  EXPECT_EQ(pinned_surplus(demand, {9, 1, 9, 9}, {0}, kSecond), 9u);
  EXPECT_EQ(pinned_surplus(demand, {own + 5, 1, own + 5, 0}, kBudget, kSecond), 0u)
      << "all of it lies in blocks that are used";
}

TEST(PinnedPool, LargeRequestsOfLongAgoAreForgotten) {
  PinnedDemand demand = after(200 * kMiB);
  uint64_t now = kSecond;
  for (int i = 0; i < 5; ++i) {
    now += kPinnedQuietNs - 1;
    demand.asked(kMiB, true, kBudget, now);
  }
  EXPECT_EQ(demand.largest_bytes(), kMiB);
}

TEST(PinnedPool, TheDefaultFollowsTheMachine) {
  EXPECT_EQ(default_pinned_budget(0).total_bytes, 64 * kMiB);
  EXPECT_EQ(default_pinned_budget(8192 * kMiB).total_bytes, 256 * kMiB);
  EXPECT_EQ(default_pinned_budget(UINT64_MAX).total_bytes, 4096 * kMiB);
}

}  // namespace
}  // namespace tube::policies

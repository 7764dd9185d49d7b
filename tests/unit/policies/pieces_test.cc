#include "policies/paths/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/policies/allocations.h"

namespace tube::policies {
namespace {

using Piece = Pieces::Piece;

// What was handed out and is neither done nor failed; no two overlap.
struct Carried {
  std::vector<Piece> in_flight;
  std::vector<std::pair<uint64_t, uint64_t>> done;  // offset, bytes

  void hand_out(const Piece& piece) {
    for (const Piece& other : in_flight)
      ASSERT_TRUE(piece.offset + piece.bytes <= other.offset ||
                  other.offset + other.bytes <= piece.offset)
          << "handed out twice";
    in_flight.push_back(piece);
  }
  Piece take(size_t at) {
    const Piece piece = in_flight[at];
    in_flight[at] = in_flight.back();
    in_flight.pop_back();
    return piece;
  }
  void expect_each_byte_once(uint64_t bytes) {
    std::sort(done.begin(), done.end());
    uint64_t at = 0;
    for (const auto& [offset, length] : done) {
      ASSERT_EQ(offset, at);
      ASSERT_GT(length, 0u);
      at += length;
    }
    ASSERT_EQ(at, bytes);
  }
};

void pull_all(Pieces& pieces, uint32_t path, Carried& carried) {
  while (const auto piece = pieces.next(path)) carried.hand_out(*piece);
}

TEST(Pieces, OnePathCarriesEverythingInOrder) {
  Pieces pieces(100 * kMiB + 7, {.least_bytes = 2 * kMiB, .most_bytes = 8 * kMiB});
  const uint32_t path = *pieces.add_path({.bytes_per_s = 54});
  uint64_t at = 0;
  while (const auto piece = pieces.next(path)) {
    EXPECT_EQ(piece->offset, at);
    EXPECT_LE(piece->bytes, 9 * kMiB);
    at += piece->bytes;
    EXPECT_TRUE(pieces.done(*piece));
  }
  EXPECT_EQ(at, 100 * kMiB + 7);
  EXPECT_TRUE(pieces.complete());
}

TEST(Pieces, NothingToCopyIsComplete) {
  Pieces pieces(0, {});
  const uint32_t path = *pieces.add_path({});
  EXPECT_FALSE(pieces.next(path));
  EXPECT_TRUE(pieces.complete());
  EXPECT_FALSE(pieces.stuck());
}

TEST(Pieces, AFailedPieceGoesOverAnotherPath) {
  Pieces pieces(32 * kMiB, {});
  const uint32_t first = *pieces.add_path({}), second = *pieces.add_path({});
  const Piece lost = *pieces.next(first);
  pieces.take_back(first);
  EXPECT_TRUE(pieces.failed(lost));
  const Piece again = *pieces.next(second);
  EXPECT_EQ(again.offset, lost.offset);
  EXPECT_EQ(again.bytes, lost.bytes);
  EXPECT_FALSE(pieces.done(lost)) << "its end comes too late";
  EXPECT_FALSE(pieces.failed(lost));
  EXPECT_TRUE(pieces.done(again));
  EXPECT_FALSE(pieces.done(again));
  EXPECT_EQ(pieces.done_bytes(), again.bytes);
}

TEST(Pieces, APathThatFailsGivesAllItHasBack) {
  Pieces pieces(64 * kMiB, {});
  const uint32_t path = *pieces.add_path({.in_flight = 4});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pieces.next(path));
  EXPECT_FALSE(pieces.next(path)) << "four are in flight";
  pieces.fail(path);
  EXPECT_EQ(pieces.waiting_bytes(), 64 * kMiB);
  EXPECT_TRUE(pieces.stuck());
  EXPECT_FALSE(pieces.next(path));
  const uint32_t other = *pieces.add_path({});
  while (const auto piece = pieces.next(other)) pieces.done(*piece);
  EXPECT_TRUE(pieces.complete());
}

TEST(Pieces, APathThatWasTakenBackMayEndWhatItHas) {
  Pieces pieces(16 * kMiB, {});
  const uint32_t path = *pieces.add_path({});
  const Piece piece = *pieces.next(path);
  pieces.take_back(path);
  EXPECT_FALSE(pieces.next(path));
  EXPECT_TRUE(pieces.done(piece));
  EXPECT_EQ(pieces.carried_bytes(path), piece.bytes);
}

TEST(Pieces, ASlowPathDoesNotKeepTheLastPiece) {
  Pieces pieces(8 * kMiB, {.least_bytes = 4 * kMiB, .most_bytes = 4 * kMiB});
  const uint32_t fast = *pieces.add_path({.bytes_per_s = 54, .in_flight = 4});
  const uint32_t slow = *pieces.add_path({.bytes_per_s = 5});
  EXPECT_FALSE(pieces.next(slow)) << "the fast one is done with both before";
  EXPECT_TRUE(pieces.next(fast));
  EXPECT_TRUE(pieces.next(fast));
}

TEST(Pieces, NobodyLeavesAPieceToAPathThatIsHeld) {
  Pieces pieces(8 * kMiB, {.least_bytes = 4 * kMiB, .most_bytes = 4 * kMiB});
  const uint32_t fast = *pieces.add_path({.bytes_per_s = 54, .in_flight = 4});
  const uint32_t slow = *pieces.add_path({.bytes_per_s = 5});
  pieces.hold(fast, true);
  EXPECT_FALSE(pieces.next(fast));
  EXPECT_TRUE(pieces.next(slow));
  pieces.hold(fast, false);
  EXPECT_TRUE(pieces.next(fast));
}

TEST(Pieces, PathsCarryWhatTheyPull) {
  // In virtual time: a path takes bytes / rate for a piece. The rates that were expected are wrong;
  // what a path is seen to carry is said as its pieces end.
  Pieces pieces(1024 * kMiB, {});
  const double rates[] = {54, 54, 20, 5};
  struct Flying {
    double end;
    Piece piece;
  };
  std::vector<Flying> flying;
  double now = 0, free[4] = {};
  for (uint32_t i = 0; i < 4; ++i) ASSERT_EQ(*pieces.add_path({.bytes_per_s = 54}), i);
  const auto pull = [&] {
    for (uint32_t i = 0; i < 4; ++i)
      while (const auto piece = pieces.next(i)) {
        free[i] = std::max(free[i], now) + static_cast<double>(piece->bytes) / rates[i];
        flying.push_back({free[i], *piece});
      }
  };
  for (pull(); !flying.empty(); pull()) {
    const auto next = std::min_element(flying.begin(), flying.end(),
                                       [](auto& a, auto& b) { return a.end < b.end; });
    now = next->end;
    ASSERT_TRUE(pieces.done(next->piece));
    const uint32_t path = next->piece.path;
    pieces.set_rate(path, static_cast<uint64_t>(pieces.carried_bytes(path) / now * 1000));
    for (uint32_t i = 0; i < 4; ++i)
      if (pieces.carried_bytes(i) == 0) pieces.set_rate(i, 54'000);
    flying.erase(next);
  }
  ASSERT_TRUE(pieces.complete());
  const double best = 1024 * kMiB / (54 + 54 + 20 + 5.0);
  EXPECT_LT(now, 1.15 * best);
}

// 10^5 random steps: paths come, fail, are taken back; pieces end, fail, end too late.
TEST(Pieces, EachByteArrivesOnceWhateverFails) {
  std::mt19937 random(16);
  uint64_t steps = 0;
  while (steps < 100'000) {
    const uint64_t bytes = 1 + random() % (300 * kMiB);
    Pieces pieces(bytes, {.least_bytes = 1 + random() % kMiB, .most_bytes = 4 * kMiB});
    Carried carried;
    std::vector<Piece> late;
    std::vector<uint32_t> open;
    while (!pieces.complete()) {
      ++steps;
      ASSERT_LT(steps, 10'000'000u);
      const uint32_t dice = random() % 100;
      if (open.empty() || (dice < 4 && open.size() < 6)) {
        const auto path = pieces.add_path({.bytes_per_s = 1 + random() % 60,
                                           .in_flight = 1 + static_cast<uint32_t>(random() % 8)});
        if (path) open.push_back(*path);
      } else if (dice < 8) {
        const size_t at = random() % open.size();
        const uint32_t path = open[at];
        open.erase(open.begin() + static_cast<ptrdiff_t>(at));
        if (dice < 6) {
          pieces.take_back(path);
        } else {
          pieces.fail(path);
          for (size_t i = carried.in_flight.size(); i-- > 0;)
            if (carried.in_flight[i].path == path) late.push_back(carried.take(i));
        }
      }
      for (uint32_t path : open) pull_all(pieces, path, carried);
      if (!late.empty()) {
        ASSERT_FALSE(pieces.done(late[random() % late.size()]));
      }
      if (carried.in_flight.empty()) {
        ASSERT_TRUE(open.empty()) << "nothing in flight, and paths that could carry it";
        continue;
      }
      const Piece piece = carried.take(random() % carried.in_flight.size());
      if (random() % 8 == 0) {
        ASSERT_TRUE(pieces.failed(piece));
        late.push_back(piece);
      } else {
        ASSERT_TRUE(pieces.done(piece));
        carried.done.emplace_back(piece.offset, piece.bytes);
      }
    }
    ASSERT_TRUE(carried.in_flight.empty());
    carried.expect_each_byte_once(bytes);
  }
}

TEST(Pieces, AllocateNothing) {
  const uint64_t before = allocations();
  Pieces pieces(256 * kMiB, {});
  const uint32_t path = *pieces.add_path({}), other = *pieces.add_path({});
  pieces.failed(*pieces.next(other));
  while (const auto piece = pieces.next(path)) pieces.done(*piece);
  EXPECT_EQ(allocations(), before);
}

}  // namespace
}  // namespace tube::policies

// Whose memory goes, how much of it, and how long a function that came back is left alone.
#include "policies/memory/eviction.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

EvictionCandidate candidate(uint64_t function, uint64_t bytes, uint64_t next, uint64_t used) {
  return {function, bytes, next, used, 0};
}

std::vector<uint64_t> functions(const std::vector<EvictionShare>& shares) {
  std::vector<uint64_t> out;
  for (const EvictionShare& share : shares) out.push_back(share.function);
  return out;
}

TEST(Eviction, OrdersHaveNames) {
  for (const EvictionOrder order : kEvictionOrders)
    EXPECT_EQ(parse_eviction_order(eviction_order_name(order)), order);
  EXPECT_FALSE(parse_eviction_order("fifo").has_value());
}

TEST(Eviction, TheFurthestTurnGoesFirstOrTheLeastRecentlyUsed) {
  const std::vector<EvictionCandidate> all{candidate(1, 10, 500, 30), candidate(2, 10, 900, 40),
                                           candidate(3, 10, 700, 10)};
  EXPECT_EQ(functions(choose_evictions(EvictionOrder::kQueue, all, 25, 0, 0)),
            (std::vector<uint64_t>{2, 3, 1}));
  const auto lru = choose_evictions(EvictionOrder::kLru, all, 15, 0, 0);
  EXPECT_EQ(functions(lru), (std::vector<uint64_t>{3, 1}));
  EXPECT_EQ(lru[0].bytes, 10u);
  EXPECT_EQ(lru[1].bytes, 5u);
}

TEST(Eviction, WhoIsLeftAloneIsNotAsked) {
  std::vector<EvictionCandidate> all{candidate(1, 10, 500, 0), candidate(2, 0, 900, 0)};
  all[0].not_before_ns = 7;
  EXPECT_TRUE(choose_evictions(EvictionOrder::kQueue, all, 5, 0, 6).empty());
  EXPECT_EQ(choose_evictions(EvictionOrder::kQueue, all, 50, 0, 7).size(), 1u);
}

TEST(Eviction, TurnsAreExpectedAtTheirDistance) {
  Turns turns;
  EXPECT_EQ(turns.next_ns(100), 200u) << "as far ahead as the beginning is behind";
  for (uint64_t i = 1; i <= 4; ++i) {
    turns.began(i * 100 * kMs);
    EXPECT_EQ(turns.next_ns(i * 100 * kMs + 1), i * 100 * kMs + 1) << "it is at work";
    turns.ended(i * 100 * kMs + 10 * kMs);
  }
  EXPECT_EQ(turns.next_ns(420 * kMs), 500 * kMs);
  EXPECT_EQ(turns.next_ns(550 * kMs), 550 * kMs) << "overdue: at any time";
  EXPECT_EQ(turns.next_ns(1010 * kMs), 1610 * kMs) << "it does not come any more";
  EXPECT_EQ(turns.used_ns(1010 * kMs), 410 * kMs);
}

TEST(Eviction, WhoHoldsLittleIsLeftAloneWhileLargerOnesSuffice) {
  // The small one's next turn is the furthest away.
  std::vector<EvictionCandidate> all{candidate(1, 4, 900, 0), candidate(2, 700, 100, 0)};
  const auto asked = [&](uint64_t bytes) {
    return functions(choose_evictions(EvictionOrder::kQueue, all, bytes, 700, 0));
  };
  EXPECT_EQ(asked(400), std::vector<uint64_t>{2});
  EXPECT_EQ(asked(702), (std::vector<uint64_t>{1, 2})) << "all of it is needed";
  all[1].not_before_ns = EvictionCandidate::kNotNow;
  EXPECT_TRUE(asked(32).empty()) << "the larger one is asked already";
  all[1].bytes = 0;
  EXPECT_EQ(asked(32), std::vector<uint64_t>{1}) << "it has nothing left";
}

TEST(Eviction, APauseWithinATurnBeginsNone) {
  Turns turns;
  turns.began(100 * kMs);
  turns.ended(110 * kMs);
  turns.began(110 * kMs + kTurnGapNs / 2);
  turns.ended(120 * kMs);
  turns.began(200 * kMs);
  turns.ended(210 * kMs);
  EXPECT_EQ(turns.next_ns(220 * kMs), 300 * kMs);
}

// Functions that take turns in a circle, memory for half of them: how often one has to be brought
// back.
unsigned reloads(EvictionOrder order, unsigned count, unsigned fit) {
  std::vector<Turns> turns(count);
  std::map<unsigned, bool> here;
  unsigned reloads = 0;
  uint64_t now = 0;
  for (unsigned turn = 0; turn < 40 * count; ++turn, now += 10 * kMs) {
    const unsigned who = turn % count;
    turns[who].began(now);
    if (!here[who]) {
      reloads += turn >= 10 * count;
      unsigned held = 0;
      std::vector<EvictionCandidate> able;
      for (unsigned i = 0; i < count; ++i) {
        held += here[i];
        if (here[i]) able.push_back(candidate(i, 1, turns[i].next_ns(now), turns[i].used_ns(now)));
      }
      if (held == fit)
        here[static_cast<unsigned>(choose_evictions(order, able, 1, 0, now).at(0).function)] =
            false;
      here[who] = true;
    }
    turns[who].ended(now + 5 * kMs);
  }
  return reloads;
}

TEST(Eviction, InACircleTheOrderOfTurnsSavesReturns) {
  EXPECT_EQ(reloads(EvictionOrder::kLru, 8, 4), 30u * 8) << "each turn";
  EXPECT_LE(reloads(EvictionOrder::kQueue, 8, 4), 30u * 8 * 6 / 10);
}

// Functions of a GiB in a circle, memory for half of them, in parts: what the worst of the later
// turns brings back, in parts.
uint64_t worst_turn(EvictionOrder order, unsigned count) {
  constexpr uint64_t kWhole = 16 * kLeastPartBytes;
  std::vector<Turns> turns(count);
  std::vector<uint64_t> held(count, 0);
  uint64_t worst = 0, now = 0;
  for (unsigned turn = 0; turn < 40 * count; ++turn, now += 10 * kMs) {
    const unsigned who = turn % count;
    turns[who].began(now);
    const uint64_t sum = std::accumulate(held.begin(), held.end(), uint64_t{0});
    const uint64_t missing = kWhole - held[who], room = count / 2 * kWhole - sum;
    std::vector<EvictionCandidate> able;
    for (unsigned i = 0; i < count; ++i) {
      if (i == who) continue;
      able.push_back(candidate(i, held[i], turns[i].next_ns(now), turns[i].used_ns(now)));
      if (turns[i].expected_ns(now)) able.back().distance_ns = turns[i].distance_ns();
    }
    for (const EvictionShare& share :
         choose_evictions(order, able, missing - std::min(missing, room), kWhole, now))
      held[share.function] -=
          (share.bytes + kLeastPartBytes - 1) / kLeastPartBytes * kLeastPartBytes;
    held[who] = kWhole;
    turns[who].ended(now + 5 * kMs);
    if (turn >= 10 * count) worst = std::max(worst, missing);
  }
  return worst / kLeastPartBytes;
}

TEST(Eviction, InACircleEachKeepsTheSamePart) {
  EXPECT_EQ(worst_turn(EvictionOrder::kLru, 4), 16u) << "all of it";
  EXPECT_LE(worst_turn(EvictionOrder::kQueue, 4), 12u) << "two thirds, and a part";
  EXPECT_LE(worst_turn(EvictionOrder::kQueue, 8), 11u);
}

TEST(Eviction, WhoComesBackLaterGoesBeforeACircle) {
  std::vector<EvictionCandidate> all{candidate(1, 10 * kLeastPartBytes, 50 * kMs, 0),
                                     candidate(2, 10 * kLeastPartBytes, 40 * kMs, 0),
                                     candidate(3, 10 * kLeastPartBytes, 900 * kMs, 0)};
  all[0].distance_ns = all[1].distance_ns = 100 * kMs;
  all[2].distance_ns = 1000 * kMs;
  const auto shares = choose_evictions(EvictionOrder::kQueue, all, 14 * kLeastPartBytes, 0, 0);
  EXPECT_EQ(functions(shares), (std::vector<uint64_t>{3, 1, 2}));
  EXPECT_EQ(shares[0].bytes, 10 * kLeastPartBytes);
  EXPECT_EQ(shares[1].bytes, 2 * kLeastPartBytes);
  EXPECT_EQ(shares[2].bytes, 2 * kLeastPartBytes);
}

TEST(Eviction, NobodyIsAskedInPlaceOfOneWhoWillBeQuietSoon) {
  std::vector<EvictionCandidate> all{candidate(1, 8 * kLeastPartBytes, 900, 0),
                                     candidate(2, 8 * kLeastPartBytes, 100, 0)};
  all[0].not_before_ns = 50;
  all[0].soon = true;
  const auto shares = choose_evictions(EvictionOrder::kQueue, all, 10 * kLeastPartBytes, 0, 0);
  ASSERT_EQ(functions(shares), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(shares[0].awaited);
  EXPECT_FALSE(shares[1].awaited);
  EXPECT_EQ(shares[1].bytes, 2 * kLeastPartBytes) << "what the first does not have";
  EXPECT_EQ(eviction_patience_ns(kPatientBytes - 1), 0u) << "their way is short";
  EXPECT_LT(eviction_patience_ns(uint64_t{1} << 40), 10 * kMs);
}

TEST(Eviction, WhoIsQuietSoon) {
  constexpr uint64_t kNow = 10 * kMs;
  EXPECT_TRUE(quiet_soon(true, 0, kNow));
  EXPECT_TRUE(quiet_soon(false, kNow + kQuietNs, kNow));
  EXPECT_FALSE(quiet_soon(false, kNow + kQuietNs + 1, kNow));
  EXPECT_FALSE(quiet_soon(false, kNow, kNow)) << "it can be asked";
  EXPECT_FALSE(quiet_soon(true, EvictionCandidate::kNotNow, kNow)) << "it is asked already";
}

TEST(Eviction, TheFewestBlocksGoAndTheSmallestThatSuffices) {
  const std::vector<uint64_t> sizes{4, 64, 16, 32, 2};
  EXPECT_TRUE(choose_blocks(sizes, 0).empty());
  EXPECT_EQ(choose_blocks(sizes, 3), (std::vector<size_t>{0}));
  EXPECT_EQ(choose_blocks(sizes, 16), (std::vector<size_t>{2}));
  EXPECT_EQ(choose_blocks(sizes, 65), (std::vector<size_t>{1, 4}));
  EXPECT_EQ(choose_blocks(sizes, 1000).size(), sizes.size());
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint64_t> any(1 + random() % 12);
    uint64_t all = 0;
    for (uint64_t& size : any) all += size = 1 + random() % 100;
    const uint64_t wanted = 1 + random() % (all + 50);
    uint64_t sum = 0;
    for (const size_t which : choose_blocks(any, wanted)) sum += any[which];
    EXPECT_GE(sum, std::min(wanted, all));
  }
}

TEST(Eviction, WhoCameBackStaysUntilItHasWorked) {
  const uint64_t came = 1000 * kMs;
  EXPECT_EQ(may_leave(came, 20 * kMs, 0, came + 10 * kMs), Leave::kStays);
  EXPECT_EQ(may_leave(came, 20 * kMs, kQuietNs, came + 10 * kMs), Leave::kWhenIdle);
  EXPECT_EQ(may_leave(came, 20 * kMs, 0, came + 20 * kMs), Leave::kWhenIdle);
  EXPECT_EQ(may_leave(came, 20 * kMs, 0, came + kLeastDrainNs), Leave::kDrained);
  EXPECT_EQ(may_leave(came, 200 * kMs, 0, came + 799 * kMs), Leave::kWhenIdle);
  EXPECT_EQ(may_leave(came, 200 * kMs, 0, came + 800 * kMs), Leave::kDrained);
  EXPECT_EQ(may_leave(came, 10'000 * kMs, 0, came + kMostStayNs), Leave::kWhenIdle);
}

TEST(Eviction, WhoHasDoneNothingForAWhileIsIdle) {
  EXPECT_TRUE(is_idle(false, 100, 150, 50));
  EXPECT_FALSE(is_idle(false, 100, 149, 50));
  EXPECT_FALSE(is_idle(true, 100, 150, 50)) << "it is at work";
  EXPECT_FALSE(is_idle(false, 0, 150, 50)) << "nothing is known of it";
  EXPECT_FALSE(is_idle(false, 200, 150, 50)) << "a moment later";
  EXPECT_FALSE(is_idle(false, 100, 150, 0)) << "nobody is to leave";
  EXPECT_EQ(idle_look_ns(1), 20'000'000u);
  EXPECT_EQ(idle_look_ns(1'000'000'000), 250'000'000u);
  EXPECT_EQ(idle_look_ns(UINT64_MAX), 1'000'000'000u);
}

TEST(Eviction, HostMemoryKeepsRoomForExchange) {
  EXPECT_TRUE(host_room_for_allocation(0, 40, 60, 100));
  EXPECT_FALSE(host_room_for_allocation(0, 41, 60, 100));
  EXPECT_FALSE(host_room_for_allocation(50, 10, 60, 100));
  EXPECT_FALSE(host_room_for_allocation(200, 1, 0, 100));
  constexpr uint64_t kMiB = 1u << 20;
  EXPECT_EQ(exchange_bytes(60 * kMiB, 96 * kMiB), 156 * kMiB);
  EXPECT_EQ(exchange_bytes(100 * kMiB, 10 * kMiB), 164 * kMiB) << "a part is 64 MiB";
  EXPECT_EQ(exchange_bytes(0, 10 * kMiB), 10 * kMiB) << "nobody would come back";
}

}  // namespace
}  // namespace tube::policies

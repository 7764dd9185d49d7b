// Whose chunk goes next, in virtual time. What a victim of 8 MiB every 5 ms (0.154 ms alone) sees
// beside four functions that copy 256 MiB without pause, as the test BesideBulk... prints it:
//
//   order          p50 ms   p99 ms  of alone  bytes of bulk alone  p99 of alone with an SLO of 1 ms
//   arrival        19.833   19.833   129.00x    1.000x       129.00x
//   round-robin     0.871    0.926     6.02x    0.952x         6.02x
//   rates           0.867    0.888     5.78x    0.952x         2.62x
//   deadlines       0.214    0.234     1.52x    0.953x         1.52x
#include "policies/link_share.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/policies/allocations.h"
#include "tests/unit/policies/link_sim.h"

namespace tube::policies {
namespace {

using Options = LinkShare::Options;

TEST(LinkShare, OrdersHaveNames) {
  for (LinkOrder order : kLinkOrders)
    EXPECT_EQ(parse_link_order(link_order_name(order)), order) << link_order_name(order);
  EXPECT_EQ(parse_link_order("round-robin"), LinkOrder::kRoundRobin);
  EXPECT_EQ(parse_link_order("Rates"), std::nullopt);
  EXPECT_EQ(parse_link_order(""), std::nullopt);
}

// ---- The victim beside bulk.

struct Seen {
  uint64_t p50_ns, p99_ns, bytes;
};

constexpr uint64_t kSeen = 2 * kSecond;

Seen beside_bulk(LinkOrder which, uint64_t bytes, uint64_t bulk, const FunctionNeeds& needs = {}) {
  SimLink link(order(which));
  link.share.needs(kVictim, needs);
  keep_copying(link, 1, bulk, 256 * kMiB);
  if (bytes != 0) copy_now_and_then(link, kVictim, bytes, 5'013 * kUs);
  link.run_until(kSeen);
  const auto taken = latencies(link, kVictim);
  if (taken.empty()) return {0, 0, sent_by_all(link)};
  return {part_of(taken, 0.5), part_of(taken, 0.99), sent_by_all(link)};
}

TEST(LinkShare, BesideBulkAVictimWaitsForWhatIsInFlight) {
  const double alone = double(beside_bulk(LinkOrder::kDeadlines, 8 * kMiB, 0).p99_ns);
  const double bulk = double(beside_bulk(LinkOrder::kDeadlines, 0, 4).bytes);
  for (LinkOrder which : kLinkOrders) {
    const Seen seen = beside_bulk(which, 8 * kMiB, 4);
    const Seen hurried = beside_bulk(which, 8 * kMiB, 4, {kMs, 0, 8 * kMiB});
    std::printf("  %-12s %8.3f %8.3f %8.2fx %8.3fx %12.2fx\n", link_order_name(which).data(),
                double(seen.p50_ns) * 1e-6, double(seen.p99_ns) * 1e-6, double(seen.p99_ns) / alone,
                double(seen.bytes) / bulk, double(hurried.p99_ns) / alone);
    if (which != LinkOrder::kDeadlines) continue;
    EXPECT_LE(double(seen.p99_ns), 1.55 * alone);
    EXPECT_GE(double(seen.bytes), 0.95 * bulk);
    EXPECT_LE(double(hurried.p99_ns), 1.55 * alone);
  }
}

TEST(LinkShare, BesideBulkASmallVictimWaitsForTwoShortChunks) {
  const Seen seen = beside_bulk(LinkOrder::kDeadlines, 51 * kKiB, 4);
  EXPECT_LE(seen.p99_ns, 100 * kUs);
  EXPECT_GE(seen.p50_ns, 10 * kUs);
}

// Whenever it comes, and whatever size up to a large chunk it has.
TEST(LinkShare, ANewcomerUnderItsShareWaitsForWhatIsInFlightOnly) {
  std::mt19937_64 random(7);
  SimLink link(order(LinkOrder::kDeadlines));
  keep_copying(link, 1, 4, 256 * kMiB);
  std::vector<uint64_t> newcomers;
  for (uint64_t i = 1; i <= 300; ++i)
    newcomers.push_back(
        link.ask(kVictim + i % 3, 1 + random() % (8 * kMiB), 4 * kMs * i + random() % kMs));
  link.run_until(1'300 * kMs);
  for (uint64_t copy : newcomers) {
    const SimCopy& seen = link.copies[copy];
    ASSERT_NE(seen.done_ns, 0u);
    EXPECT_EQ(seen.first_ns, seen.free_ns) << "arrived at " << seen.arrived_ns;
  }
}

TEST(LinkShare, AFunctionThatIsNewGoesAtOnceWithSmallCopiesAndBesideTheOthersWithLargeOnes) {
  LinkShare share({});
  share.add({1, 1, 256 * kMiB, 0});
  take(share, 4);
  share.add({2, 2, 256 * kMiB, 0});
  share.add({3, 3, 8 * kMiB, 0});
  EXPECT_EQ(take_copies(share, 5), (std::vector<uint64_t>{3, 2, 2, 2, 2}))
      << "the small one, then who was behind by a chunk";
  std::vector<uint64_t> rest = take_copies(share, 40);
  EXPECT_NEAR(double(std::count(rest.begin(), rest.end(), 1)), 20, 4);
}

// ---- Fairness.

// A large copy over several links comes in claims of a chunk each: that makes it no function with
// small copies, beside which others' chunks were short.
TEST(LinkShare, PartsOfALargeCopyAreNoSmallCopies) {
  LinkShare share({});
  share.add({1, 1, 4096 * kMiB, 0});
  take(share, 4);
  uint64_t part = 10, turns = 0;
  for (int i = 0; i < 3; ++i) share.add({++part, 2, 8 * kMiB, 0, true});
  for (int i = 0; i < 100; ++i) {
    const auto turn = share.next(0);
    ASSERT_TRUE(turn);
    EXPECT_EQ(turn->bytes, 8 * kMiB);
    if (turn->copy == 1) continue;
    ++turns;
    share.add({++part, 2, 8 * kMiB, 0, true});
  }
  EXPECT_NEAR(double(turns), 50, 2);
  EXPECT_EQ(share.use(2, 0).copies, 0u);
  EXPECT_EQ(share.use(2, 0).bytes, turns * 8 * kMiB);
}

TEST(LinkShare, FairByBytesBetweenFunctionsNotBetweenCopies) {
  for (LinkOrder which : {LinkOrder::kDeadlines, LinkOrder::kRoundRobin, LinkOrder::kRates}) {
    SimLink link(order(which));
    for (int i = 0; i < 70; ++i) link.ask(1, 64 * kMiB, 0);
    link.ask(2, 4096 * kMiB, 0);
    for (int i = 0; i < 600; ++i) link.ask(3, 7 * kMiB, 0);
    for (uint64_t ms = 5; ms < 150; ms += 5) {
      link.run_until(ms * kMs);
      for (uint64_t f : {2, 3})
        EXPECT_NEAR(double(sent_by(link, f)), double(sent_by(link, 1)), double(16 * kMiB))
            << link_order_name(which) << " at " << ms << " ms";
    }
  }
}

// What a function did not use while it was away is no claim on others' later time, beyond two large
// chunks.
TEST(LinkShare, AFunctionThatComesBackDoesNotMakeUpForItsAbsence) {
  SimLink link(order(LinkOrder::kDeadlines));
  keep_copying(link, 1, 2, 64 * kMiB);
  link.ask(3, 1 * kMiB, 0);
  link.run_until(500 * kMs);
  const uint64_t before = sent_by(link, 1);
  for (int i = 0; i < 1000; ++i) link.ask(3, 4 * kMiB, 500 * kMs);
  link.run_until(560 * kMs);
  const double others = double(sent_by(link, 1) - before);
  EXPECT_NEAR(double(sent_by(link, 3)), others, double(32 * kMiB));
}

TEST(LinkShare, ManySmallCopiesOfOneFunctionGetNoMoreThanItsShare) {
  SimLink link(order(LinkOrder::kDeadlines));
  keep_copying(link, 1, 1, 256 * kMiB);
  for (int stream = 0; stream < 16; ++stream) link.ask(2, 1 * kMiB, 0);
  link.on_done = [&link, before = link.on_done](uint64_t copy) {
    before(copy);
    if (link.copies[copy].function == 2) link.ask(2, 1 * kMiB, link.now_ns);
  };
  link.run_until(200 * kMs);
  EXPECT_NEAR(double(sent_by(link, 2)) / double(sent_by(link, 1)), 1, 0.05);
}

// ---- Native order, batches.

TEST(LinkShare, NativeOrderIsCopyAfterCopy) {
  LinkShare share(order(LinkOrder::kArrival));
  share.add({1, 1, 20 * kMiB, 10});
  share.add({2, 2, 1 * kMiB, 11});
  share.add({3, 1, 1 * kMiB, 12});
  share.add({4, 3, 1 * kMiB, 5});
  const std::vector<Taken> expected{{4, kMiB},     {1, 8 * kMiB}, {1, 8 * kMiB},
                                    {1, 4 * kMiB}, {2, kMiB},     {3, kMiB}};
  EXPECT_EQ(take(share, 9), expected);
  EXPECT_TRUE(share.empty());
}

TEST(LinkShare, RoundRobinGoesInBatchesThatNewcomersWaitFor) {
  LinkShare share(order(LinkOrder::kRoundRobin));
  share.add({1, 1, 64 * kMiB, 0});
  share.add({2, 2, 64 * kMiB, 0});
  const std::vector<Taken> two{{1, 2 * kMiB}, {2, 2 * kMiB}};
  EXPECT_EQ(take(share, 2), two);
  share.add({3, 3, 1 * kMiB, 0});
  EXPECT_EQ(take_copies(share, 4), (std::vector<uint64_t>{1, 2, 1, 2})) << "the rest of six";
  EXPECT_EQ(take_copies(share, 6), (std::vector<uint64_t>{3, 1, 2, 1, 2, 1}));
}

TEST(LinkShare, RoundRobinStartsANewBatchWhenAllOfTheOldOneAreServed) {
  LinkShare share(order(LinkOrder::kRoundRobin));
  share.add({1, 1, 3 * kMiB, 0});
  take(share, 1);
  share.add({2, 2, 64 * kMiB, 0});
  EXPECT_EQ(take_copies(share, 3), (std::vector<uint64_t>{1, 2, 2}));
}

TEST(LinkShare, SmallCopiesOfOneFunctionShareABlock) {
  LinkShare share(order(LinkOrder::kRoundRobin));
  for (uint64_t copy = 1; copy <= 6; ++copy) share.add({copy, 1, 800 * kKiB, copy});
  share.add({9, 2, 64 * kMiB, 9});
  const uint64_t whole = 800 * kKiB, part = 448 * kKiB;
  const std::vector<Taken> expected{{1, whole},    {2, whole},        {3, part},
                                    {9, 2 * kMiB}, {3, whole - part}, {4, whole}};
  EXPECT_EQ(take(share, 6), expected);
}

// ---- Within a function; chunk sizes; what is in flight.

TEST(LinkShare, CopiesOfOneFunctionGoInTheOrderOfTheirArrival) {
  LinkShare share({});
  share.add({1, 1, 16 * kMiB, 20});
  share.add({2, 1, 16 * kMiB, 10});
  share.add({3, 1, 16 * kMiB, 30});
  share.add({4, 1, 16 * kMiB, 20});
  EXPECT_EQ(take_copies(share, 8), (std::vector<uint64_t>{2, 2, 1, 1, 4, 4, 3, 3}));
}

TEST(LinkShare, AFunctionsSmallCopiesPassItsLargeOnesButDoNotStarveThem) {
  LinkShare share({});
  share.add({1, 1, 256 * kMiB, 0});
  for (uint64_t copy = 2; copy < 12; ++copy) share.add({copy, 1, 4 * kMiB, copy});
  EXPECT_EQ(take_copies(share, 9), (std::vector<uint64_t>{2, 3, 1, 4, 5, 1, 6, 7, 1}));
}

TEST(LinkShare, ChunksAreShortBesideAnotherFunctionInAHurry) {
  LinkShare share({});
  share.needs(3, {10 * kMs, 0});
  share.add({1, 1, 256 * kMiB, 0});
  EXPECT_EQ(share.next(0)->bytes, 8 * kMiB) << "alone";
  share.add({2, 2, 256 * kMiB, 0});
  EXPECT_EQ(share.next(0)->bytes, 8 * kMiB) << "among bulk";
  share.add({3, 3, 8 * kMiB, 0});
  EXPECT_EQ(take(share, 1), (std::vector<Taken>{{3, 8 * kMiB}})) << "it does not hurry itself";
  EXPECT_EQ(share.next(1)->bytes, 2 * kMiB) << "it may come again";
  EXPECT_EQ(share.next(kSecond - 1)->bytes, 2 * kMiB);
  EXPECT_EQ(share.next(kSecond)->bytes, 8 * kMiB);
  share.add({4, 4, 1 * kMiB, kSecond});
  EXPECT_EQ(take_copies(share, 1, kSecond), (std::vector<uint64_t>{4}));
  EXPECT_EQ(share.next(kSecond)->bytes, 2 * kMiB) << "small copies are in a hurry, too";
  share.add({5, 4, 51 << 10, kSecond});
  EXPECT_EQ(take_copies(share, 1, kSecond), (std::vector<uint64_t>{5}));
  EXPECT_EQ(share.next(kSecond)->bytes, 1 * kMiB) << "and the smallest ones most";
  share.forget(4);
  EXPECT_EQ(share.next(kSecond)->bytes, 8 * kMiB);
}

// How many chunks of that size may be outstanding.
uint32_t most_of(const LinkShare& share, uint64_t bytes, uint64_t now_ns) {
  uint32_t chunks = 0;
  while (share.may_send(chunks, chunks * bytes, now_ns)) ++chunks;
  return chunks;
}

TEST(LinkShare, OneChunkInFlightBesideOutsiders) {
  LinkShare share({});
  EXPECT_EQ(most_of(share, 8 * kMiB, 0), 2u);
  share.outsiders(true);
  EXPECT_EQ(most_of(share, 8 * kMiB, 0), 1u);
  share.outsiders(false);
  EXPECT_EQ(most_of(share, 8 * kMiB, 0), 2u);
}

TEST(LinkShare, NowAndThenTheLinkRestsForThoseNobodyKnowsOf) {
  LinkShare share({});
  const uint64_t rest_ns = LinkShare::Options{}.rest_ns;
  share.add({1, 1, 1024 * kMiB, 0});
  EXPECT_EQ(most_of(share, kMiB, rest_ns - 1), 8u);
  EXPECT_EQ(most_of(share, kMiB, rest_ns), 1u);
  EXPECT_EQ(most_of(share, kMiB, 2 * rest_ns), 1u) << "until a chunk went alone";
  (void)share.next(2 * rest_ns);
  EXPECT_EQ(most_of(share, 8 * kMiB, 2 * rest_ns + 1), 2u);
  EXPECT_EQ(most_of(share, 8 * kMiB, 3 * rest_ns), 1u);
}

TEST(LinkShare, SmallChunksAreMoreInFlightButNotMoreBytes) {
  LinkShare share({});
  for (uint64_t copy = 1; copy <= 20; ++copy) share.add({copy, 1, 4 * kMiB, 0});
  EXPECT_EQ(most_of(share, 4 * kMiB, 0), 3u) << "the next one may be of 8 MiB";
  EXPECT_EQ(share.next(0)->bytes, 4 * kMiB);
  EXPECT_EQ(most_of(share, 4 * kMiB, 0), 4u) << "it will be like this one";
  EXPECT_EQ(most_of(share, 64 << 10, 0), 8u);
  share.add({21, 2, 1 * kMiB, 0});
  EXPECT_EQ(share.next(0)->bytes, 1 * kMiB);
  EXPECT_EQ(share.next(0)->bytes, 2 * kMiB) << "somebody is in a hurry";
  EXPECT_EQ(most_of(share, 2 * kMiB, 0), 2u);
  for (const LinkOrder other : {LinkOrder::kArrival, LinkOrder::kRoundRobin, LinkOrder::kRates}) {
    LinkShare paper(order(other));
    paper.add({1, 1, 1024 * kMiB, 0});
    EXPECT_EQ(most_of(paper, kMiB, 0), 2u);
  }
}

// ---- Copies and functions that go away; what is counted.

TEST(LinkShare, ARemovedCopyGetsNoFurtherTurn) {
  for (LinkOrder which : kLinkOrders) {
    LinkShare share(order(which));
    share.add({1, 1, 64 * kMiB, 0});
    share.add({2, 1, 64 * kMiB, 0});
    share.add({3, 2, 1 * kMiB, 1});
    share.next(1);
    EXPECT_TRUE(share.remove(1));
    EXPECT_FALSE(share.remove(1));
    EXPECT_TRUE(share.remove(2));
    EXPECT_FALSE(share.remove(4));
    share.next(1);
    EXPECT_TRUE(share.empty()) << link_order_name(which);
    EXPECT_FALSE(share.next(1).has_value());
    share.add({1, 1, 2 * kMiB, 2});
    EXPECT_EQ(take(share, 2, 2), (std::vector<Taken>{{1, 2 * kMiB}})) << link_order_name(which);
  }
}

TEST(LinkShare, AFunctionThatIsForgottenStartsAnew) {
  LinkShare share({});
  share.needs(1, {20 * kMs, 0, 1});
  share.add({1, 1, 64 * kMiB, 0});
  share.add({2, 1, 1 * kMiB, 0});
  share.add({3, 2, 1 * kMiB, 0});
  share.forget(1);
  share.forget(77);
  EXPECT_EQ(take_copies(share, 5), (std::vector<uint64_t>{3}));
  EXPECT_EQ(share.use(1, 0).needed_bytes_per_s, 0u);
  EXPECT_EQ(share.use(77, 0).bytes, 0u);
}

TEST(LinkShare, WhatAFunctionGotIsCounted) {
  LinkShare share({});
  share.needs(1, {20 * kMs, 10 * kMs, 12 * kMiB});
  share.add({1, 1, 12 * kMiB, 1 * kMs});
  share.next(3 * kMs);
  share.next(4 * kMs);
  share.add({2, 1, 1 * kMiB, 5 * kMs});
  share.next(8 * kMs);
  const LinkUse use = share.use(1, 103 * kMs);
  EXPECT_EQ(use.bytes, 13 * kMiB);
  EXPECT_EQ(use.copies, 2u);
  EXPECT_EQ(use.turns, 3u);
  EXPECT_EQ(use.waited_ns, 5 * kMs);
  EXPECT_EQ(use.longest_ns, 3 * kMs);
  EXPECT_EQ(use.lasted_ns, 6 * kMs);
  EXPECT_EQ(use.bytes_per_s, 130 * kMiB);
  EXPECT_EQ(use.needed_bytes_per_s, 1300 * kMiB);
}

// ---- Whatever comes.

struct Crowd {
  uint64_t copies = 0;
  uint64_t longest_hungry_ns = 0;  // that a function with copies waiting had no turn
};

// Sixteen functions, a third with deadlines, each with up to four copies at once, sizes from bytes
// to 64 MiB: more than the link can carry.
Crowd run_crowd(LinkOrder which, uint64_t copies) {
  constexpr uint64_t kFunctions = 16;
  std::mt19937_64 random(11);
  SimLink link(order(which));
  link.copies.reserve(copies + 1);
  for (uint64_t f = 0; f < kFunctions; f += 3) link.share.needs(f, {(1 + f) * kMs, kMs, 0});
  auto ask = [&](uint64_t f, uint64_t at_ns) {
    if (link.copies.size() == copies) return;
    const uint64_t most = random() % 8 != 0 ? 64 * kKiB : random() % 64 != 0 ? kMiB : 64 * kMiB;
    link.ask(f, 1 + random() % most, at_ns + (random() % 4 == 0 ? random() % kMs : 0));
  };
  std::vector<uint64_t> waiting(kFunctions), since_ns(kFunctions);
  Crowd crowd;
  link.on_turn = [&](const LinkShare::Turn& turn) {
    const SimCopy& copy = link.copies[turn.copy];
    const uint64_t from_ns = std::max(since_ns[copy.function], copy.arrived_ns);
    crowd.longest_hungry_ns = std::max(crowd.longest_hungry_ns, link.now_ns - from_ns);
    since_ns[copy.function] = link.now_ns;
  };
  link.on_done = [&](uint64_t copy) {
    ++crowd.copies;
    ask(link.copies[copy].function, link.now_ns);
  };
  for (uint64_t i = 0; i < 4 * kFunctions; ++i) ask(i % kFunctions, 0);
  link.run();
  return crowd;
}

TEST(LinkShare, NobodyStarvesInAMillionRandomArrivals) {
  const Crowd crowd = run_crowd(LinkOrder::kDeadlines, 1'000'000);
  EXPECT_EQ(crowd.copies, 1'000'000u);
  EXPECT_LE(crowd.longest_hungry_ns, Options{}.patience_ns + 16 * 200 * kUs);
}

TEST(LinkShare, NorInTheOtherOrders) {
  for (LinkOrder which : {LinkOrder::kArrival, LinkOrder::kRoundRobin, LinkOrder::kRates}) {
    const Crowd crowd = run_crowd(which, 100'000);
    EXPECT_EQ(crowd.copies, 100'000u) << link_order_name(which);
    EXPECT_LE(crowd.longest_hungry_ns, Options{}.patience_ns + 16 * 200 * kUs)
        << link_order_name(which);
  }
}

TEST(LinkShare, ASteadyStateAllocatesNothing) {
  for (LinkOrder which : kLinkOrders) {
    LinkShare share(order(which));
    uint64_t copy = 0, before = 0;
    for (uint64_t round = 0; round < 100; ++round) {
      if (round == 1) before = allocations();
      for (uint64_t f = 0; f < 20; ++f)
        for (int i = 0; i < 3; ++i) share.add({++copy, f, (copy % 5) * 3 * kMiB + 1, round * kMs});
      share.remove(copy);
      share.forget(5);
      while (share.next(round * kMs)) {
      }
    }
    EXPECT_EQ(allocations(), before) << link_order_name(which);
  }
}

}  // namespace
}  // namespace tube::policies

// Rates and deadlines of functions that share a link, in virtual time.
#include <gtest/gtest.h>

#include "tests/unit/policies/link_sim.h"

namespace tube::policies {
namespace {

struct Request {
  uint64_t bytes, slo_ns, infer_ns, period_ns;
};
constexpr Request kRequests[] = {{256 * kMiB, 25 * kMs, 5 * kMs, 31 * kMs},
                                 {64 * kMiB, 12 * kMs, 2 * kMs, 17 * kMs},
                                 {8 * kMiB, 3 * kMs, 1 * kMs, 5 * kMs}};

// The three above, 25 GB/s in all, beside four that copy without pause and have no SLO.
void run_requests(SimLink& link, uint64_t end_ns) {
  keep_copying(link, 1, 4, 256 * kMiB);
  uint64_t function = 10;
  for (const Request& r : kRequests) {
    link.share.needs(function, {r.slo_ns, r.infer_ns, r.bytes});
    copy_now_and_then(link, function++, r.bytes, r.period_ns);
  }
  link.run_until(end_ns);
}

TEST(LinkRates, RatesHoldWhenTheLinkHasThem) {
  for (LinkOrder which : {LinkOrder::kRates, LinkOrder::kDeadlines}) {
    SimLink link(order(which));
    run_requests(link, 2 * kSecond);
    for (uint64_t i = 0; i < 3; ++i) {
      const Request& r = kRequests[i];
      const auto taken = latencies(link, 10 + i);
      EXPECT_GE(taken.size(), 2 * kSecond / r.period_ns - 2) << link_order_name(which);
      // Behind the last turn stand the chunks in flight, of a batch in kRates.
      EXPECT_LE(taken.back(), r.slo_ns - r.infer_ns + 300 * kUs) << link_order_name(which) << i;
    }
    EXPECT_GE(sent_by(link, 1), 5'000 * kMiB) << link_order_name(which);
  }
}

TEST(LinkRates, OursMeetsDeadlinesAndIsFairToThoseWithoutAny) {
  SimLink link(order(LinkOrder::kDeadlines));
  run_requests(link, 2 * kSecond);
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_LE(latencies(link, 10 + i).back(), kRequests[i].slo_ns - kRequests[i].infer_ns);
  for (uint64_t f = 2; f <= 4; ++f)
    EXPECT_NEAR(double(sent_by(link, f)) / double(sent_by(link, 1)), 1, 0.01);
}

TEST(LinkRates, TheRestGoesToTheTightestSlo) {
  LinkShare share(order(LinkOrder::kRates));
  share.needs(1, {100 * kMs, 0, 64 * kMiB});
  share.needs(2, {50 * kMs, 0, 64 * kMiB});
  share.add({1, 1, 64 * kMiB, 0});
  share.add({2, 2, 64 * kMiB, 0});
  share.add({3, 3, 64 * kMiB, 0});
  take(share, 2, 0);
  EXPECT_EQ(take_copies(share, 8, 100), (std::vector<uint64_t>{2, 2, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(take_copies(share, 3, 30 * kMs), (std::vector<uint64_t>{1, 1, 1}))
      << "three tenths of its time, and one block: behind";
}

TEST(LinkRates, WhenRatesCannotAllBeHadNobodyStarves) {
  for (LinkOrder which : {LinkOrder::kRates, LinkOrder::kDeadlines}) {
    SimLink link(order(which));
    for (uint64_t f = 1; f <= 4; ++f) link.share.needs(f, {8 * kMs, 0, 256 * kMiB});
    keep_copying(link, 1, 5, 256 * kMiB);
    link.run_until(4 * kSecond);
    for (uint64_t f = 1; f <= 5; ++f)
      EXPECT_GE(sent_by(link, f), 36 * 2 * kMiB) << link_order_name(which) << " function " << f;
  }
}

TEST(LinkRates, AFunctionThatNeverPausesHasItsRateToo) {
  SimLink link(order(LinkOrder::kDeadlines));
  link.share.needs(1, {20 * kMs, 0, 256 * kMiB});
  for (int stream = 0; stream < 2; ++stream) link.ask(1, 64 * kMiB, 0);
  keep_copying(link, 1, 10, 64 * kMiB);
  link.run_until(kSecond);
  EXPECT_GE(sent_by(link, 1), 256 * kMiB * 40) << "of fifty";
}

// What was sent for a deadline's sake is not paid back for long.
TEST(LinkRates, AFunctionWhoseDeadlinesAreOverIsServedWithTheOthers) {
  SimLink link(order(LinkOrder::kDeadlines));
  link.share.needs(1, {20 * kMs, 0, 1000 * kMiB});
  keep_copying(link, 1, 3, 256 * kMiB);
  link.run_until(200 * kMs);
  const uint64_t first = sent_by(link, 1), second = sent_by(link, 2);
  EXPECT_GE(first, 4 * second);
  link.share.needs(1, {});
  link.run_until(230 * kMs);
  EXPECT_NEAR(double(sent_by(link, 1) - first), double(sent_by(link, 2) - second),
              double(40 * kMiB));
}

// A model's tensors come one by one, each when the one before has gone. Nobody said how many bytes
// there will be.
TEST(LinkRates, ABurstOfManyCopiesHasOneDeadline) {
  SimLink link(order(LinkOrder::kDeadlines));
  link.share.needs(9, {30 * kMs, 10 * kMs});
  keep_copying(link, 1, 4, 256 * kMiB);
  std::vector<uint64_t> ends;
  int left = 0;
  link.on_done = [&, before = link.on_done](uint64_t copy) {
    before(copy);
    if (link.copies[copy].function != 9) return;
    if (--left > 0) link.ask(9, 2 * kMiB, link.now_ns + 5 * kUs);
    else ends.push_back(link.now_ns);
  };
  for (uint64_t request = 1; request <= 6; ++request) {
    left = 120;
    link.ask(9, 2 * kMiB, request * 50 * kMs);
    link.run_until((request + 1) * 50 * kMs - 1);
    ASSERT_EQ(ends.size(), request);
    EXPECT_LE(ends.back() - request * 50 * kMs, 20 * kMs) << "request " << request;
  }
  EXPECT_EQ(link.share.use(9, link.now_ns).needed_bytes_per_s, 120 * 2 * kMiB * 50);
}

TEST(LinkRates, APauseEndsABurst) {
  LinkShare share({});
  share.needs(1, {100 * kMs, 0});
  for (uint64_t i = 0; i < 6; ++i) {
    const uint64_t now_ns = i / 2 * 60 * kMs + i % 2 * 20 * kMs;
    share.add({i, 1, 4 * kMiB, now_ns});
    share.next(now_ns);
  }
  EXPECT_EQ(share.use(1, 0).needed_bytes_per_s, 80 * kMiB) << "two copies in 100 ms";
}

// A small copy without a deadline goes before those that have one, while these can be kept.
TEST(LinkRates, SmallCopiesGoBeforeDeadlinesThatHaveTime) {
  LinkShare share({});
  share.needs(1, {20 * kMs, 0, 256 * kMiB});
  share.add({1, 1, 256 * kMiB, 0});
  share.add({2, 2, 1 * kMiB, 0});
  EXPECT_EQ(take_copies(share, 2, 0), (std::vector<uint64_t>{2, 1}));
  share.add({3, 3, 1 * kMiB, 19 * kMs});
  EXPECT_EQ(take_copies(share, 2, 19 * kMs), (std::vector<uint64_t>{1, 1}));
  EXPECT_EQ(take_copies(share, 1, 20 * kMs), (std::vector<uint64_t>{3})) << "it is missed";
}

TEST(LinkRates, TheEarliestDeadlineGoesFirst) {
  LinkShare share({});
  for (uint64_t f : {1, 2, 3}) {
    share.needs(f, {(40 - 10 * f) * kMs, 0});
    share.add({f, f, 16 * kMiB, 0});
  }
  EXPECT_EQ(take_copies(share, 3, 0), (std::vector<uint64_t>{3, 3, 3}));
  share.remove(3);
  EXPECT_EQ(take_copies(share, 1, 0), (std::vector<uint64_t>{2}));
}

// The second copy of a stream is added when the first has gone. That it came long ago is not the
// link's doing.
TEST(LinkRates, PatienceCountsFromWhenACopyMayGo) {
  LinkShare share({});
  share.add({1, 1, 1024 * kMiB, 0});
  share.add({2, 2, 1024 * kMiB, 0});
  take(share, 4, 900 * kMs);
  for (uint64_t copy = 3; copy < 33; ++copy) {
    share.add({copy, 3, 8 * kMiB, 0});
    while (share.next(910 * kMs)->copy != copy) {
    }
  }
  EXPECT_NEAR(double(share.use(1, 0).bytes), double(share.use(3, 0).bytes), double(32 * kMiB));
}

TEST(LinkRates, AFunctionThatHasWaitedForItsPatienceGetsATurn) {
  for (LinkOrder which : {LinkOrder::kRates, LinkOrder::kDeadlines}) {
    LinkShare share(order(which));
    share.needs(1, {kSecond, 0, 1024 * kMiB});
    share.add({1, 1, 1024 * kMiB, 0});
    share.add({2, 2, 64 * kMiB, 0});
    share.next(60 * kMs);
    take(share, which == LinkOrder::kRates ? 4 : 0, 60 * kMs);
    const auto before = take_copies(share, 3, 99 * kMs);
    EXPECT_EQ(std::count(before.begin(), before.end(), 2), 0) << link_order_name(which);
    const auto after = take_copies(share, 3, 100 * kMs);
    EXPECT_EQ(std::count(after.begin(), after.end(), 2), 1) << link_order_name(which);
  }
}

TEST(LinkRates, RatesGoInBatchesThatNewcomersWaitFor) {
  LinkShare share(order(LinkOrder::kRates));
  share.needs(2, {kMs, 0, 64 * kMiB});
  share.add({1, 1, 64 * kMiB, 0});
  take(share, 2);
  share.add({2, 2, 64 * kMiB, 0});
  EXPECT_EQ(take_copies(share, 6), (std::vector<uint64_t>{1, 1, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace tube::policies

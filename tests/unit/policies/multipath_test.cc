#include "policies/paths/multipath.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "policies/paths/pieces.h"
#include "policies/paths/stand_back.h"
#include "tests/support/units.h"
#include "tests/unit/policies/allocations.h"

namespace tube::policies {
namespace {

constexpr uint64_t kGB = 1'000'000'000;
constexpr HostWay kUp = HostWay::kUp, kDown = HostWay::kDown;

// As measured on eight H200.
HostLinks h200() {
  HostLinks links;
  links.count = 8;
  for (uint32_t a = 0; a < 8; ++a) {
    links.link[a].pcie_switch = a;
    for (uint64_t& alone : links.link[a].alone_bytes_per_s) alone = 54 * kGB;
    for (uint32_t b = 0; b < 8; ++b)
      if (a != b) links.between_bytes_per_s[a][b] = 396 * kGB;
  }
  const uint64_t together[2][9] = {{0, 54, 106, 156, 177, 0, 184, 0, 180},
                                   {0, 54, 105, 138, 147, 0, 136, 0, 100}};
  for (uint32_t way = 0; way < 2; ++way)
    for (uint32_t k = 0; k < 9; ++k) links.together_bytes_per_s[way][k] = together[way][k] * kGB;
  return links;
}

// Two GPUs a switch, whose uplink carries no more than one link.
HostLinks v100() {
  HostLinks links;
  links.count = 8;
  links.switch_bytes_per_s = 12'500'000'000;
  for (uint32_t a = 0; a < 8; ++a) {
    links.link[a].pcie_switch = a / 2;
    for (uint64_t& alone : links.link[a].alone_bytes_per_s) alone = 12'500'000'000;
    for (uint32_t b = 0; b < 8; ++b)
      if (a != b && a / 4 == b / 4) links.between_bytes_per_s[a][b] = 25 * kGB;
  }
  return links;
}

Multipath quiet(const HostLinks& links) {
  Multipath::Options options;
  options.probe_every = 0;
  return {links, options};
}

TEST(Multipath, FourLinksAreBestOnAnH200) {
  Multipath m(h200());
  EXPECT_EQ(m.plan(3, kUp, kGiB).count, 4u);
  EXPECT_EQ(m.plan(3, kUp, kGiB).bytes_per_s, 177 * kGB);
  EXPECT_EQ(m.plan(3, kDown, kGiB).count, 4u);
  EXPECT_EQ(m.plan(3, kDown, kGiB).bytes_per_s, 147 * kGB);
  EXPECT_EQ(m.plan(3, kDown, kGiB).path[0].gpu, 3u) << "its own link is the first";
}

TEST(Multipath, BesideAnOwnersSmallCopyGoOnlyThoseThatItDoesNotFeel) {
  Multipath m(h200());
  EXPECT_EQ(m.plan(3, kUp, kGiB).beside, 2u) << "three carry what they carry alone, four do not";
  EXPECT_EQ(m.plan(3, kDown, kGiB).beside, 1u);
  EXPECT_EQ(quiet(v100()).plan(0, kUp, kGiB).beside, 1u) << "not measured";
}

TEST(StandBack, IsBoundedAtOnceAndAtHalfOfTheTime) {
  StandBack stand;
  EXPECT_FALSE(stand.now(false, 1000, 100));
  EXPECT_TRUE(stand.now(true, 1010, 100));
  EXPECT_TRUE(stand.now(true, 1109, 100));
  EXPECT_FALSE(stand.now(true, 1110, 100)) << "for long enough";
  EXPECT_FALSE(stand.now(true, 1209, 100)) << "for as long as it was stood back for";
  EXPECT_TRUE(stand.now(true, 1210, 100));
  EXPECT_FALSE(stand.now(false, 1220, 100)) << "it has gone";
  EXPECT_FALSE(stand.now(true, 1229, 100));
  EXPECT_TRUE(stand.now(true, 1230, 100));
}

TEST(Multipath, ASmallCopyKeepsToItsLink) {
  Multipath m = quiet(h200());
  EXPECT_EQ(m.plan(0, kUp, 64 << 10).count, 1u);
  EXPECT_GT(m.plan(0, kUp, 64 * kMiB).count, 1u);
  const uint64_t crossover = m.crossover_bytes(0, kUp, 2);
  EXPECT_GT(crossover, 256u << 10);
  EXPECT_LT(crossover, 16 * kMiB);
  EXPECT_EQ(m.plan(0, kUp, crossover - 4096).count, 1u);
  EXPECT_GT(m.plan(0, kUp, crossover + 4096).count, 1u);
}

TEST(Multipath, OneGpuHasOneLink) {
  HostLinks links = h200();
  links.count = 1;
  Multipath m(links);
  EXPECT_EQ(m.plan(0, kUp, kGiB).count, 1u);
  EXPECT_EQ(m.crossover_bytes(0, kUp, 2), UINT64_MAX);
  EXPECT_EQ(m.plan(7, kUp, kGiB).bytes_per_s, 0u) << "there is no such link";
}

TEST(Multipath, WithoutAPeerPathNobodyHelps) {
  HostLinks links = h200();
  for (auto& row : links.between_bytes_per_s) std::fill(std::begin(row), std::end(row), 0);
  Multipath m(links);
  EXPECT_EQ(m.plan(0, kUp, kGiB).count, 1u);
}

TEST(Multipath, LinksOfOneSwitchShareItsUplink) {
  Multipath m(v100());
  const HostPlan plan = m.plan(0, kUp, kGiB);
  ASSERT_EQ(plan.count, 2u);
  EXPECT_GE(plan.path[1].gpu, 2u) << "GPU 1 is behind the same switch";
  EXPECT_LE(plan.path[1].gpu, 3u) << "the others are not reached";
}

TEST(Multipath, AnOwnersRateIsLeftToIt) {
  Multipath m(h200());
  for (uint32_t link = 1; link < 8; ++link) m.set_needs(link, kUp, link < 4 ? 50 * kGB : 20 * kGB);
  const HostPlan plan = m.plan(0, kUp, kGiB);
  for (uint32_t i = 1; i < plan.count; ++i) {
    EXPECT_GE(plan.path[i].gpu, 4u) << "links 1 to 3 have nothing to lend";
    EXPECT_LE(plan.path[i].bytes_per_s, 34 * kGB);
  }
  EXPECT_FALSE(m.may_help(1, kUp));
  EXPECT_TRUE(m.may_help(1, kDown)) << "needs are of one direction";
  EXPECT_TRUE(m.may_help(4, kUp));
}

// Each keeps to its own link where all have large copies; two of eight share the six others.
TEST(Multipath, ALinkThatItsOwnersFillLendsNothing) {
  Multipath m(h200());
  const HostPlan plan = m.plan(0, kUp, kGiB, 0b11);
  EXPECT_GE(plan.count, 3u);
  for (uint32_t i = 1; i < plan.count; ++i) EXPECT_NE(plan.path[i].gpu, 1u);
  EXPECT_EQ(m.plan(0, kUp, kGiB, 0xff).count, 1u);
  EXPECT_EQ(m.crossover_bytes(0, kUp, 2, 0xff), UINT64_MAX);
  EXPECT_EQ(m.plan(0, kUp, kGiB, 0xff & ~(1u << 5)).path[1].gpu, 5u);
  EXPECT_TRUE(m.may_help(1, kDown)) << "the other direction is free";
  EXPECT_TRUE(m.may_help(1, kUp)) << "that is for a moment";
}

TEST(Multipath, ALinkThatMayNotBeUsedDoesNotHelp) {
  Multipath m(h200());
  for (uint32_t link = 1; link < 7; ++link) m.set_usable(link, false);
  const HostPlan plan = m.plan(0, kUp, kGiB);
  ASSERT_EQ(plan.count, 2u);
  EXPECT_EQ(plan.path[1].gpu, 7u);
  EXPECT_FALSE(m.may_help(3, kUp));
  EXPECT_FALSE(m.may_help(8, kUp));
}

// Whatever owners need: a plan leaves each link, each switch and host memory enough for it.
TEST(Multipath, NoPlanTakesWhatOwnersNeed) {
  std::mt19937 random(5);
  for (int step = 0; step < 100'000; ++step) {
    const bool h = random() % 2 == 0;
    HostLinks links = h ? h200() : v100();
    const HostWay way = random() % 2 == 0 ? kUp : kDown;
    const auto w = static_cast<uint32_t>(way);
    uint64_t needed = 0;
    for (uint32_t l = 0; l < 8; ++l) {
      const uint64_t alone = links.link[l].alone_bytes_per_s[w];
      uint64_t need = random() % 3 == 0 ? random() % (alone / 2) : 0;
      if (!h) need /= 2;
      links.link[l].needed_bytes_per_s[w] = need;
      needed += need;
    }
    Multipath m(links);
    const auto gpu = static_cast<uint32_t>(random() % 8);
    const HostPlan plan = m.plan(gpu, way, uint64_t{1} << (10 + random() % 22));
    ASSERT_GE(plan.count, 1u);
    ASSERT_EQ(plan.path[0].gpu, gpu);
    uint32_t seen = 0;
    uint64_t of_switch[8] = {};
    for (uint32_t l = 0; l < 8; ++l)
      of_switch[links.link[l].pcie_switch] += links.link[l].needed_bytes_per_s[w];
    for (uint32_t i = 0; i < plan.count; ++i) {
      const HostLink& link = links.link[plan.path[i].gpu];
      ASSERT_EQ(seen >> plan.path[i].gpu & 1, 0u);
      seen |= 1u << plan.path[i].gpu;
      ASSERT_LE(plan.path[i].bytes_per_s + link.needed_bytes_per_s[w], link.alone_bytes_per_s[w]);
      of_switch[link.pcie_switch] += plan.path[i].bytes_per_s;
    }
    if (!h) {
      for (uint64_t used : of_switch) ASSERT_LE(used, links.switch_bytes_per_s);
      continue;
    }
    if (plan.count == 1) continue;
    uint32_t busy = plan.count;
    for (uint32_t l = 0; l < 8; ++l)
      busy += links.link[l].needed_bytes_per_s[w] != 0 && (seen >> l & 1) == 0;
    if (links.together_bytes_per_s[w][busy] != 0) {
      ASSERT_LE(plan.bytes_per_s + needed, links.together_bytes_per_s[w][busy]);
    }
  }
}

// ---- Learning.

// What a copy over so many links really costs.
uint64_t real_ns(const HostPlan& plan, uint64_t bytes, double fixed_each, double efficiency) {
  return static_cast<uint64_t>(5'000 + fixed_each * (plan.count - 1) +
                               static_cast<double>(bytes) * 1e9 /
                                   static_cast<double>(plan.bytes_per_s) /
                                   (plan.count == 1 ? 1 : efficiency));
}

void run_copies(Multipath& m, int copies, double fixed_each, double efficiency) {
  std::mt19937 random(6);
  for (int i = 0; i < copies; ++i) {
    const uint64_t bytes = (256u << 10) << (random() % 11);
    const HostPlan plan = m.plan(0, kUp, bytes);
    m.took(plan, bytes, real_ns(plan, bytes, fixed_each, efficiency));
  }
}

TEST(Multipath, LearnsTheCrossover) {
  Multipath m(h200());
  run_copies(m, 4000, 100'000, 1);
  // Two links save a second in 51.4 for each GB: 100 us are worth 10.9 MB.
  EXPECT_NEAR(static_cast<double>(m.crossover_bytes(0, kUp, 2)), 11e6, 3e6);
  run_copies(m, 4000, 2'000, 1);
  EXPECT_LT(m.crossover_bytes(0, kUp, 4), 2 * kMiB) << "it follows when paths become cheaper";
}

TEST(Multipath, PathsThatDoNotPayAreLeftAndFoundAgain) {
  Multipath m(h200());
  run_copies(m, 2000, 15'000, 0.2);
  EXPECT_EQ(m.crossover_bytes(0, kUp, 4), UINT64_MAX);
  run_copies(m, 6000, 15'000, 1);
  EXPECT_LT(m.crossover_bytes(0, kUp, 4), 16 * kMiB) << "probes have seen that they pay again";
}

TEST(Multipath, CopiesOfOneSizeDoNotSpoilIt) {
  Multipath m(h200());
  for (int i = 0; i < 1000; ++i) {
    const HostPlan plan = m.plan(0, kUp, kGiB);
    m.took(plan, kGiB, real_ns(plan, kGiB, 15'000, 0.9));
  }
  EXPECT_EQ(quiet(h200()).plan(0, kUp, 64 << 10).count, 1u);
  const uint64_t crossover = m.crossover_bytes(0, kUp, 2);
  EXPECT_GT(crossover, 128u << 10);
  EXPECT_LT(crossover, 32 * kMiB);
}

TEST(Multipath, TheSameCopiesGiveTheSamePlans) {
  Multipath a(h200()), b(h200());
  run_copies(a, 500, 30'000, 0.8);
  run_copies(b, 500, 30'000, 0.8);
  for (uint64_t bytes = 1 << 16; bytes <= kGiB; bytes *= 2) {
    EXPECT_EQ(a.plan(0, kUp, bytes).count, b.plan(0, kUp, bytes).count);
  }
  EXPECT_EQ(a.crossover_bytes(0, kUp, 3), b.crossover_bytes(0, kUp, 3));
}

TEST(Multipath, AllocatesNothing) {
  Multipath m(h200());
  const uint64_t before = allocations();
  run_copies(m, 100, 15'000, 1);
  EXPECT_EQ(allocations(), before);
}

// A link that is taken back in the middle, as its owner needs it: the rest goes over the others.
TEST(Multipath, ALinkIsTakenBackInTheMiddle) {
  Multipath m(h200());
  const HostPlan plan = m.plan(0, kUp, kGiB);
  Pieces pieces(kGiB, {});
  for (uint32_t i = 0; i < plan.count; ++i)
    ASSERT_EQ(*pieces.add_path({.bytes_per_s = plan.path[i].bytes_per_s}), i);
  uint64_t turns = 0;
  while (!pieces.complete()) {
    if (++turns == 20) m.set_needs(plan.path[2].gpu, kUp, 54 * kGB);
    for (uint32_t i = 0; i < plan.count; ++i) {
      if (i != 0 && !m.may_help(plan.path[i].gpu, kUp)) pieces.take_back(i);
      if (const auto piece = pieces.next(i)) pieces.done(*piece);
    }
  }
  EXPECT_LE(pieces.carried_bytes(2), 20u * 9 * kMiB);
  EXPECT_GT(pieces.carried_bytes(1), pieces.carried_bytes(2));
}

TEST(Multipath, ACountThatIsSetIsTakenWhateverItCosts) {
  Multipath::Options options;
  options.most_paths = 6;
  options.always_most = true;
  Multipath m(h200(), options);
  EXPECT_EQ(m.plan(0, kDown, 4 * kMiB).count, 6u) << "five and six lose";
  for (uint32_t l = 1; l < 4; ++l) m.set_usable(l, false);
  EXPECT_EQ(m.plan(0, kDown, 4 * kMiB).count, 5u);
}

TEST(Multipath, WhatALinkCarriesIsKeptCurrent) {
  HostLinks links = h200();
  for (auto& way : links.together_bytes_per_s)
    for (uint64_t& together : way) together = 0;
  Multipath m = quiet(links);
  EXPECT_EQ(m.plan(0, kUp, kGiB).path[0].bytes_per_s, 54 * kGB);
  m.set_alone(0, kUp, 50 * kGB);
  m.set_alone(1, kUp, 3 * kGB);
  const HostPlan plan = m.plan(0, kUp, kGiB);
  EXPECT_EQ(plan.path[0].bytes_per_s, 50 * kGB);
  EXPECT_EQ(plan.path[plan.count - 1].gpu, 1u) << "the slowest comes last";
}

}  // namespace
}  // namespace tube::policies

#include "policies/paths/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/policies/allocations.h"
#include "tools/tubectl/machine.h"

namespace tube::policies {
namespace {

constexpr uint64_t kMB = 1'000'000, kGB = 1000 * kMB;

PlacementGpus preset(const char* name, ctl::Between between = ctl::Between::kDirect) {
  return ctl::placement_gpus(*ctl::load_machine(name), between);
}

// Functions that take a GPU each, and pass data to the next.
PlacementPattern chain(uint32_t functions, uint64_t bytes) {
  PlacementPattern p;
  p.functions = functions;
  std::fill(p.share, p.share + functions, kWholeGpu);
  for (uint32_t f = 0; f + 1 < functions; ++f) p.pass[p.passes++] = {f, f + 1, bytes};
  return p;
}

TEST(Placement, AChainGoesOverDoubleLinks) {
  const Placement p = place(preset("dgx-v100"), chain(4, 100 * kMB), PlacementScore::kTime);
  ASSERT_TRUE(p.found);
  EXPECT_TRUE(p.exact);
  EXPECT_EQ(p.time_ns, 3 * 2'000'000u) << "three times 100 MB at 50 GB/s";
  EXPECT_EQ(p.aggregated_bytes_per_s, 150 * kGB);
}

TEST(Placement, MostBytesGetTheFastestLink) {
  PlacementPattern star;  // 0 passes much to 1, little to 2 and 3
  star.functions = 4;
  std::fill(star.share, star.share + 4, kWholeGpu);
  star.passes = 3;
  for (uint32_t f = 1; f < 4; ++f) star.pass[f - 1] = {0, f, f == 1 ? kGB : 10 * kMB};
  PlacementGpus gpus = preset("dgx-v100");
  for (uint32_t g = 4; g < 8; ++g) gpus.free_share[g] = 0;
  const Placement p = place(gpus, star, PlacementScore::kTime);
  EXPECT_EQ(gpus.between_bytes_per_s[p.gpu[0]][p.gpu[1]], 50 * kGB);
}

TEST(Placement, OnlyFreeGpusAreTaken) {
  PlacementGpus gpus = preset("dgx-v100");
  for (uint32_t g : {0u, 3u, 5u}) gpus.free_share[g] = 0;
  for (PlacementScore score :
       {PlacementScore::kTime, PlacementScore::kAggregated, PlacementScore::kPreserved}) {
    const Placement p = place(gpus, chain(5, kGB), score);
    ASSERT_TRUE(p.found);
    const std::set<uint32_t> used(p.gpu, p.gpu + 5);
    EXPECT_EQ(used, (std::set<uint32_t>{1, 2, 4, 6, 7}));
  }
  EXPECT_FALSE(place(gpus, chain(6, kGB), PlacementScore::kTime).found);
}

TEST(Placement, SharesLetFunctionsMeetOnOneGpu) {
  PlacementPattern p = chain(3, kGB);
  p.share[0] = p.share[1] = 400;
  const Placement got = place(preset("dgx-v100"), p, PlacementScore::kTime);
  EXPECT_EQ(got.gpu[0], got.gpu[1]) << "what stays on a GPU takes no time";
  EXPECT_NE(got.gpu[1], got.gpu[2]);
  EXPECT_EQ(got.time_ns, 20'000'000u);
}

TEST(Placement, PreservedLeavesTheFastLinksToOthers) {
  // Four GPUs in a row of links: 0 =50= 1 =50= 2 =10= 3.
  PlacementGpus gpus;
  gpus.count = 4;
  std::fill(gpus.free_share, gpus.free_share + 4, kWholeGpu);
  const auto link = [&](uint32_t a, uint32_t b, uint64_t rate) {
    gpus.between_bytes_per_s[a][b] = gpus.between_bytes_per_s[b][a] = rate * kGB;
  };
  link(0, 1, 50), link(1, 2, 50), link(2, 3, 10), link(0, 2, 1), link(0, 3, 1), link(1, 3, 1);
  const PlacementPattern two = chain(2, kMB);
  EXPECT_EQ(place(gpus, two, PlacementScore::kPreserved).preserved_bytes_per_s, 100 * kGB);
  EXPECT_EQ(place(gpus, two, PlacementScore::kAggregated).aggregated_bytes_per_s, 50 * kGB);
  // Of the two fast links MAPA's greedy score takes the one that leaves more.
  EXPECT_EQ(place(gpus, two, PlacementScore::kAggregated).preserved_bytes_per_s, 20 * kGB);
}

TEST(Placement, TheHostsDataCounts) {
  PlacementPattern p;
  p.functions = 1;
  p.share[0] = kWholeGpu;
  p.passes = 2;
  p.pass[0] = {kHost, 0, 125 * kMB};
  p.pass[1] = {0, kHost, 125 * kMB};
  EXPECT_EQ(place(preset("dgx-v100"), p, PlacementScore::kTime).time_ns, 20'000'000u);
}

TEST(Placement, RefusesWhatIsNoPattern) {
  const PlacementGpus gpus = preset("dgx-v100");
  EXPECT_FALSE(place(gpus, PlacementPattern(), PlacementScore::kTime).found);
  PlacementPattern p = chain(2, kMB);
  p.pass[0].to = 7;
  EXPECT_FALSE(place(gpus, p, PlacementScore::kTime).found);
  p.pass[0].to = p.pass[0].from;
  EXPECT_FALSE(place(gpus, p, PlacementScore::kTime).found);
}

TEST(Placement, ASearchThatIsCutShortSaysSo) {
  const Placement p = place(preset("hgx-h200"), chain(8, kMB), PlacementScore::kPreserved, 20);
  EXPECT_TRUE(p.found);
  EXPECT_FALSE(p.exact);
  EXPECT_LE(p.tries, 20u);
}

// Against every placement, on random machines and patterns.
TEST(Placement, NoneIsBetter) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    PlacementGpus gpus;
    gpus.count = 2 + random() % 4;
    for (uint32_t a = 0; a < gpus.count; ++a) {
      gpus.free_share[a] = random() % 4 == 0 ? 500 : kWholeGpu;
      for (uint32_t b = 0; b < gpus.count; ++b)
        gpus.between_bytes_per_s[a][b] = a == b ? 0 : (1 + random() % 50) * kGB;
      gpus.up_bytes_per_s[a] = gpus.down_bytes_per_s[a] = (1 + random() % 12) * kGB;
    }
    PlacementPattern p;
    p.functions = 1 + random() % 4;
    for (uint32_t f = 0; f < p.functions; ++f) {
      p.share[f] = random() % 2 == 0 ? 500 : kWholeGpu;
      p.pass[p.passes++] = {
          random() % 3 == 0 || f == 0 ? kHost : static_cast<uint32_t>(random() % f), f,
          random() % kGB};
    }
    const Placement got = place(gpus, p, PlacementScore::kTime);
    uint64_t best = UINT64_MAX;
    uint32_t gpu[kMaxFunctions] = {};
    const auto each = [&](auto&& self, uint32_t f) -> void {
      if (f == p.functions) {
        uint32_t used[kMaxPlacedGpus] = {};
        for (uint32_t i = 0; i < f; ++i) used[gpu[i]] += p.share[i];
        for (uint32_t g = 0; g < gpus.count; ++g)
          if (used[g] > gpus.free_share[g]) return;
        best = std::min(best, score_of(gpus, p, gpu).time_ns);
        return;
      }
      for (gpu[f] = 0; gpu[f] < gpus.count; ++gpu[f]) self(self, f + 1);
    };
    each(each, 0);
    ASSERT_EQ(got.found, best != UINT64_MAX);
    if (!got.found) continue;
    ASSERT_EQ(got.time_ns, best);
    ASSERT_EQ(score_of(gpus, p, got.gpu).time_ns, got.time_ns);
    ASSERT_EQ(score_of(gpus, p, got.gpu).preserved_bytes_per_s, got.preserved_bytes_per_s);
  }
}

TEST(Placement, SeveralPathsMakePlacesEqual) {
  const PlacementGpus gpus = preset("dgx-v100", ctl::Between::kPaths);
  for (uint32_t a = 0; a < 8; ++a)
    for (uint32_t b = 0; b < 8; ++b)
      if (a != b) {
        EXPECT_EQ(gpus.between_bytes_per_s[a][b], 150 * kGB);
      }
}

TEST(Placement, AllocatesNothing) {
  const PlacementGpus gpus = preset("dgx-v100");
  const uint64_t before = allocations();
  EXPECT_TRUE(place(gpus, chain(8, kMB), PlacementScore::kTime).found);
  EXPECT_EQ(allocations(), before);
}

}  // namespace
}  // namespace tube::policies

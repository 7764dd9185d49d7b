#include "policies/paths/gpu_paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "bench/links/copy_model.h"
#include "tests/unit/policies/allocations.h"
#include "tools/tubectl/machine.h"

namespace tube::policies {
namespace {

constexpr uint64_t kGB = 1'000'000'000;

GpuLinks preset(const char* name) {
  const auto machine = ctl::load_machine(name);
  EXPECT_TRUE(machine);
  return machine->nvlink;
}

GpuTransfer transfer(uint64_t id, uint32_t from, uint32_t to) {
  GpuTransfer t;
  t.id = id;
  t.from = from;
  t.to = to;
  return t;
}

GpuPathSet alone(const GpuLinks& links, uint32_t from, uint32_t to) {
  GpuPaths paths(links);
  return *paths.open(transfer(1, from, to));
}

// Links of a random mesh: both directions alike, as cables are.
GpuLinks random_mesh(std::mt19937& random) {
  GpuLinks links;
  links.gpus = 2 + random() % 7;
  for (uint32_t a = 0; a < links.gpus; ++a)
    for (uint32_t b = 0; b < a; ++b)
      links.bytes_per_s[a][b] = links.bytes_per_s[b][a] = random() % 3 * 25 * kGB;
  return links;
}

// The most over paths with at most two relays: the maximum flow in a graph where the first relay
// and the second one are nodes of their own.
uint64_t two_relay_flow(const GpuLinks& links, uint32_t from, uint32_t to) {
  GpuLinks g;
  const uint32_t n = links.gpus;
  std::vector<uint32_t> relays;
  for (uint32_t i = 0; i < n; ++i)
    if (i != from && i != to) relays.push_back(i);
  const auto left = [](size_t i) { return static_cast<uint32_t>(2 + i); };
  const auto right = [&](size_t i) { return static_cast<uint32_t>(2 + relays.size() + i); };
  g.gpus = static_cast<uint32_t>(2 + 2 * relays.size());
  for (size_t i = 0; i < relays.size(); ++i) {
    g.bytes_per_s[0][left(i)] = links.bytes_per_s[from][relays[i]];
    g.bytes_per_s[right(i)][1] = links.bytes_per_s[relays[i]][to];
    for (size_t k = 0; k < relays.size(); ++k)
      g.bytes_per_s[left(i)][right(k)] =
          i == k ? 1'000'000 * kGB : links.bytes_per_s[relays[i]][relays[k]];
  }
  return links.bytes_per_s[from][to] + bench::max_flow(g, 0, 1);
}

// What transfers have is what links lack, and no link has less than nothing.
class Checked {
 public:
  explicit Checked(const GpuLinks& links) : paths(links), links(links) {}

  void check() const {
    uint64_t used[kMaxGpus][kMaxGpus] = {}, out[kMaxGpus] = {}, in[kMaxGpus] = {};
    for (const GpuTransfer& t : open) {
      const GpuPathSet* set = paths.paths(t.id);
      ASSERT_NE(set, nullptr);
      ASSERT_EQ(set->through_host, set->count == 0);
      uint64_t sum = 0;
      for (uint32_t i = 0; i < set->count; ++i) {
        const GpuPath& p = set->path[i];
        ASSERT_GT(p.bytes_per_s, 0u);
        sum += p.bytes_per_s;
        uint32_t at = t.from, seen = 1u << t.from;
        for (uint32_t k = 0; k <= p.relays; ++k) {
          const uint32_t next = k == p.relays ? t.to : p.relay[k];
          ASSERT_EQ(seen >> next & 1, 0u) << "a path passes a GPU twice";
          seen |= 1u << next;
          used[at][next] += p.bytes_per_s;
          out[at] += p.bytes_per_s;
          in[next] += p.bytes_per_s;
          at = next;
        }
      }
      ASSERT_EQ(sum, set->bytes_per_s);
      ASSERT_LE(sum, t.wanted_bytes_per_s);
    }
    for (uint32_t a = 0; a < links.gpus; ++a) {
      for (uint32_t b = 0; b < links.gpus; ++b) {
        ASSERT_LE(used[a][b], links.bytes_per_s[a][b]) << a << " to " << b;
        ASSERT_EQ(links.bytes_per_s[a][b] - used[a][b], paths.free_bytes_per_s(a, b));
      }
      if (links.ports_bytes_per_s[a] == 0) continue;
      ASSERT_LE(out[a], links.ports_bytes_per_s[a]);
      ASSERT_LE(in[a], links.ports_bytes_per_s[a]);
    }
  }

  uint64_t rate(uint64_t id) const { return paths.paths(id)->bytes_per_s; }
  const GpuPathSet& begin(const GpuTransfer& t) {
    open.push_back(t);
    return *paths.open(t);
  }
  void end(uint64_t id) {
    ASSERT_TRUE(paths.close(id));
    std::erase_if(open, [id](const GpuTransfer& t) { return t.id == id; });
  }

  GpuPaths paths;
  GpuLinks links;
  std::vector<GpuTransfer> open;
};

TEST(GpuPaths, EveryPairOfADgxV100ReachesTheMaximumFlow) {
  const GpuLinks links = preset("dgx-v100");
  for (uint32_t a = 0; a < 8; ++a)
    for (uint32_t b = 0; b < 8; ++b)
      if (a != b) {
        EXPECT_EQ(alone(links, a, b).bytes_per_s, bench::max_flow(links, a, b));
      }
}

TEST(GpuPaths, OverTwoRelaysTheyAreTheBestThereAre) {
  std::mt19937 random(1);
  GpuPaths::Options two;
  two.most_relays = 2;
  two.least_bytes_per_s = 1;
  double reached = 0, bound = 0;
  for (int i = 0; i < 2000; ++i) {
    const GpuLinks links = random_mesh(random);
    GpuPaths exact(links, two), longer(links);
    const uint64_t most = two_relay_flow(links, 0, 1), any = bench::max_flow(links, 0, 1);
    const GpuPathSet* set = exact.open(transfer(1, 0, 1));
    if (set->count < kMaxGpuPaths) {
      ASSERT_EQ(set->bytes_per_s, most);
    }
    const uint64_t rate = longer.open(transfer(1, 0, 1))->bytes_per_s;
    ASSERT_LE(rate, any);
    reached += static_cast<double>(rate);
    bound += static_cast<double>(any);
  }
  EXPECT_GT(reached, 0.99 * bound);
}

TEST(GpuPaths, BehindASwitchADirectPathIsAll) {
  const GpuPathSet set = alone(preset("hgx-h200"), 2, 5);
  EXPECT_EQ(set.count, 1u);
  EXPECT_EQ(set.path[0].relays, 0u);
  EXPECT_EQ(set.bytes_per_s, 450 * kGB);
}

TEST(GpuPaths, WithoutAPeerPathThroughTheHost) {
  EXPECT_TRUE(alone(preset("4xa10"), 0, 1).through_host);
}

TEST(GpuPaths, WhatThePairsOwnLinkCanDoTakesNoRelay) {
  GpuPaths paths(preset("dgx-v100"));
  GpuTransfer t = transfer(1, 0, 3);
  t.wanted_bytes_per_s = 40 * kGB;
  const GpuPathSet* set = paths.open(t);
  EXPECT_EQ(set->count, 1u);
  EXPECT_EQ(set->path[0].relays, 0u);
  EXPECT_EQ(set->bytes_per_s, 40 * kGB);
}

TEST(GpuPaths, APairTakesItsOwnLinkBackFromRelays) {
  Checked c(preset("dgx-v100"));
  c.begin(transfer(1, 0, 5));  // over 1, 4 and others
  const GpuPathSet& direct = c.begin(transfer(2, 1, 5));
  c.check();
  EXPECT_EQ(direct.path[0].relays, 0u);
  EXPECT_EQ(direct.path[0].bytes_per_s, 50 * kGB);
}

TEST(GpuPaths, TwoOfOnePairShareEvenly) {
  Checked c(preset("dgx-v100"));
  c.begin(transfer(1, 0, 3));
  c.begin(transfer(2, 0, 3));
  c.check();
  EXPECT_GE(c.rate(2), 60 * kGB);
  EXPECT_GE(c.rate(1), c.rate(2));
  c.end(1);
  EXPECT_EQ(c.rate(2), 150 * kGB) << "what the other had is free again";
}

TEST(GpuPaths, NobodyIsBroughtBelowWhatItNeeds) {
  Checked c(preset("dgx-v100"));
  GpuTransfer owner = transfer(1, 0, 3);
  owner.needed_bytes_per_s = 120 * kGB;
  c.begin(owner);
  for (uint64_t id = 2; id < 6; ++id) c.begin(transfer(id, 0, static_cast<uint32_t>(id + 2)));
  c.check();
  // Its pair's own link may be claimed by no other pair; relays over others' links may be moved.
  EXPECT_GE(c.rate(1), 50 * kGB);
  Checked same(preset("dgx-v100"));
  same.begin(owner);
  same.begin(transfer(2, 0, 3));
  EXPECT_GE(same.rate(1), 120 * kGB);
  EXPECT_GT(same.rate(2), 20 * kGB);
}

TEST(GpuPaths, NobodyStarvesWhereLinksAreShared) {
  Checked c(preset("dgx-v100"));
  for (uint64_t id = 1; id <= 4; ++id) c.begin(transfer(id, 0, static_cast<uint32_t>(id)));
  c.begin(transfer(5, 0, 5));
  c.check();
  EXPECT_GE(c.rate(5), 10 * kGB) << "all of GPU 0's links are others' own";
}

TEST(GpuPaths, ALinkThatFailsIsLeft) {
  Checked c(preset("dgx-v100"));
  c.begin(transfer(1, 0, 1));
  c.paths.set_link(0, 1, 0);
  c.links.bytes_per_s[0][1] = 0;
  c.check();
  EXPECT_EQ(c.rate(1), 125 * kGB);
  c.paths.set_link(0, 1, 25 * kGB);
  c.links.bytes_per_s[0][1] = 25 * kGB;
  c.check();
  EXPECT_EQ(c.rate(1), 150 * kGB);
}

TEST(GpuPaths, RefusesWhatItCannotKeep) {
  GpuPaths paths(preset("dgx-v100"));
  EXPECT_EQ(paths.open(transfer(1, 0, 8)), nullptr);
  EXPECT_EQ(paths.open(transfer(1, 3, 3)), nullptr);
  ASSERT_NE(paths.open(transfer(1, 0, 1)), nullptr);
  EXPECT_EQ(paths.open(transfer(1, 0, 1)), nullptr) << "the id is under way";
  for (uint64_t id = 2; id <= kMaxTransfers; ++id)
    ASSERT_NE(paths.open(transfer(id, id % 8, (id + 1) % 8)), nullptr);
  EXPECT_EQ(paths.open(transfer(1000, 0, 1)), nullptr);
  EXPECT_FALSE(paths.close(1000));
  EXPECT_EQ(paths.paths(1000), nullptr);
}

// 10^5 random steps on random machines: transfers begin and end, links fail and come back.
TEST(GpuPaths, NoLinkCarriesMoreThanItCan) {
  std::mt19937 random(2);
  for (int machine = 0; machine < 100; ++machine) {
    Checked c(machine % 10 == 0  ? preset("hgx-h200")
              : machine % 3 == 0 ? preset("dgx-v100")
                                 : random_mesh(random));
    const GpuLinks whole = c.links;
    const uint32_t n = c.links.gpus;
    uint64_t id = 0;
    for (int step = 0; step < 1000; ++step) {
      const uint32_t dice = random() % 20;
      const auto from = static_cast<uint32_t>(random() % n);
      const uint32_t to = (from + 1 + static_cast<uint32_t>(random() % (n - 1))) % n;
      if (dice < 1) {
        const uint64_t rate = random() % 2 == 0 ? 0 : whole.bytes_per_s[from][to];
        c.paths.set_link(from, to, rate);
        c.links.bytes_per_s[from][to] = rate;
      } else if (c.open.empty() || (dice < 10 && c.open.size() < 20)) {
        GpuTransfer t = transfer(++id, from, to);
        if (dice < 4) t.wanted_bytes_per_s = random() % 100 * kGB;
        if (dice == 5) t.needed_bytes_per_s = random() % 100 * kGB;
        c.begin(t);
      } else {
        c.end(c.open[random() % c.open.size()].id);
      }
      c.check();
      if (HasFatalFailure()) return;
    }
    while (!c.open.empty()) c.end(c.open.back().id);
    c.check();
  }
}

TEST(GpuPaths, TheSameStepsGiveTheSamePaths) {
  const auto run = [] {
    std::mt19937 random(3);
    GpuPaths paths(preset("dgx-v100"));
    std::vector<uint64_t> seen;
    for (uint64_t id = 1; id < 200; ++id) {
      const uint32_t from = random() % 8, to = (from + 1 + random() % 7) % 8;
      paths.open(transfer(id, from, to));
      if (id > 5) paths.close(id - 5);
      for (uint64_t other = id > 4 ? id - 4 : 1; other <= id; ++other) {
        const GpuPathSet* set = paths.paths(other);
        for (uint32_t i = 0; i < set->count; ++i) {
          seen.push_back(set->path[i].bytes_per_s);
          for (uint32_t k = 0; k < set->path[i].relays; ++k) seen.push_back(set->path[i].relay[k]);
        }
      }
    }
    return seen;
  };
  EXPECT_EQ(run(), run());
}

TEST(GpuPaths, AllocateNothing) {
  GpuPaths paths(preset("dgx-v100"));
  const uint64_t before = allocations();
  for (uint64_t id = 1; id < 30; ++id) paths.open(transfer(id, id % 8, (id + 3) % 8));
  for (uint64_t id = 1; id < 30; ++id) paths.close(id);
  EXPECT_EQ(allocations(), before);
}

// In virtual time, pieces and what they cost included.
TEST(GpuPathsModel, SeveralPathsBeatTheDirectWay) {
  const auto machine = ctl::load_machine("dgx-v100");
  const auto ns = [&](bench::CopyRule rule, uint32_t a, uint32_t b) {
    bench::CopyModel model(*machine, rule, {.least_bytes = 1u << 20, .most_bytes = 64u << 20});
    model.begin(a, b, 256u << 20, 0);
    model.run();
    return static_cast<double>(model.copies()[0].end_ns);
  };
  for (uint32_t a = 0; a < 8; ++a) {
    for (uint32_t b = 0; b < 8; ++b) {
      if (a == b) continue;
      const double gain = ns(bench::CopyRule::kDirect, a, b) / ns(bench::CopyRule::kPaths, a, b);
      const uint64_t link = machine->nvlink.bytes_per_s[a][b];
      EXPECT_GT(gain, link == 0 ? 5 : link == 25 * kGB ? 1.9 : 1.0) << a << " to " << b;
    }
  }
}

TEST(GpuPathsModel, InCompanyAllBytesArriveAndSooner) {
  const auto machine = ctl::load_machine("dgx-v100");
  const auto run = [&](bench::CopyRule rule) {
    std::mt19937 random(4);
    bench::CopyModel model(*machine, rule, {.least_bytes = 1u << 20, .most_bytes = 64u << 20});
    for (uint64_t i = 0; i < 60; ++i) {
      const uint32_t from = random() % 8, to = (from + 1 + random() % 7) % 8;
      model.begin(from, to, (1 + random() % 256) << 20, i * 300'000);
    }
    model.run();
    uint64_t bytes = 0, ns = 0;
    for (const auto& copy : model.copies()) {
      EXPECT_GT(copy.end_ns, copy.begin_ns);
      bytes += copy.bytes;
      ns += copy.end_ns - copy.begin_ns;
    }
    EXPECT_EQ(model.done_bytes(), bytes);
    return ns;
  };
  EXPECT_LT(2 * run(bench::CopyRule::kPaths), run(bench::CopyRule::kDirect));
}

}  // namespace
}  // namespace tube::policies

// Shares of a GPU between proxies, on virtual time: contexts with work get equal slices.
#include "policies/proxy_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr uint64_t kTick = kMs / 2;

// A proxy that always has a kernel, or pauses behind each one.
struct Proxy {
  ProxyUse use;
  ProxyShares shares{{}};
  uint64_t kernel_ns = 20 * kMs, pause_ns = 0;
  bool stands = false;  // its kernel does not end
  uint64_t left = 0, free_at = 0, held = 0;
  uint64_t had = 0;  // of the GPU, in truth
};

void run(std::vector<Proxy>& proxies, uint64_t until_ns, uint64_t from_ns = 0) {
  for (uint64_t now = from_ns + kTick; now < until_ns; now += kTick) {
    size_t running = 0;
    for (Proxy& each : proxies) {
      each.use.wants = each.left != 0 || now >= each.free_at;
      std::vector<ProxyUse> others;
      for (const Proxy& other : proxies)
        if (&other != &each) others.push_back(other.use);
      // Who wants nothing does not look either.
      const bool ahead = each.use.wants && each.shares.ahead(each.use, others, now);
      each.held += ahead;
      if (each.left == 0 && now >= each.free_at && !ahead) each.left = each.kernel_ns;
      each.use.runs = each.left != 0;
      running += each.use.runs;
    }
    for (Proxy& each : proxies) {
      if (each.left == 0 || each.stands) continue;
      each.left -= std::min<uint64_t>(each.left, kTick / running);
      if (each.left != 0) continue;
      each.had += each.kernel_ns;
      each.free_at = now + each.pause_ns;
    }
  }
}

double part(const std::vector<Proxy>& proxies) {
  return double(proxies[0].had) / double(proxies[0].had + proxies[1].had);
}

Proxy proxy(uint64_t id, uint32_t weight = kProxyWeight, uint64_t kernel_ns = 20 * kMs) {
  return {.use = {.id = id, .weight = weight}, .kernel_ns = kernel_ns};
}

TEST(ProxyShares, EqualWeightsGetEqualTime) {
  std::vector<Proxy> equal{proxy(1), proxy(2, kProxyWeight, 3 * kMs)};
  run(equal, 10'000 * kMs);
  EXPECT_NEAR(part(equal), 0.5, 0.03);
}

TEST(ProxyShares, TimeGoesByWeight) {
  std::vector<Proxy> proxies{proxy(1, 300), proxy(2, 100)};
  run(proxies, 20'000 * kMs);
  EXPECT_NEAR(part(proxies), 0.75, 0.05);
  EXPECT_EQ(proxies[0].held, 0u);
}

TEST(ProxyShares, WhoIsAloneIsNeverHeld) {
  std::vector<Proxy> one{proxy(1, 1)};
  run(one, 1000 * kMs);
  EXPECT_EQ(one[0].held, 0u);
  std::vector<Proxy> idle{proxy(1, 1), proxy(2)};
  idle[1].free_at = UINT64_MAX;
  run(idle, 1000 * kMs);
  EXPECT_EQ(idle[0].held, 0u);
}

TEST(ProxyShares, WhoComesBackHasSavedNothingUp) {
  std::vector<Proxy> proxies{proxy(1), proxy(2)};
  proxies[1].free_at = 5000 * kMs;
  run(proxies, 6000 * kMs);
  EXPECT_NEAR(double(proxies[1].had), 500e6, 60e6);
}

TEST(ProxyShares, WhoWasAwayIsHeldAsBefore) {
  std::vector<Proxy> proxies{proxy(1, 300), proxy(2, 100)};
  proxies[1].pause_ns = 5000 * kMs;
  run(proxies, 5000 * kMs);
  proxies[1].pause_ns = 0;
  proxies[0].had = proxies[1].had = 0;
  const uint64_t held = proxies[1].held;
  run(proxies, 5090 * kMs, 5000 * kMs);
  EXPECT_LT((proxies[1].held - held) * kTick, 80 * kMs) << "for five seconds that nobody used";
  run(proxies, 9000 * kMs, 5090 * kMs);
  EXPECT_NEAR(part(proxies), 0.75, 0.06);
}

TEST(ProxyShares, NoHoldLastsThoughTheOtherMakesNoProgress) {
  std::vector<Proxy> proxies{proxy(1, 1), proxy(2)};
  proxies[1].stands = true;
  run(proxies, 5000 * kMs);
  EXPECT_GT(proxies[0].had, 500 * kMs);
}

TEST(ProxyShares, OneAgainstSeveral) {
  std::vector<Proxy> proxies{proxy(1), proxy(2), proxy(3), proxy(4, 300)};
  run(proxies, 20'000 * kMs);
  for (const Proxy& each : proxies) {
    const double share = double(each.had) / 20e9;
    EXPECT_NEAR(share, each.use.weight == 300 ? 0.5 : 1 / 6.0, 0.05) << each.use.id;
  }
}

}  // namespace
}  // namespace tube::policies

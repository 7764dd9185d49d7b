#include "proxy/evict/pool_profiles.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/units.h"

namespace tube::proxy {
namespace {

using policies::PoolDemand;

PoolDemand learnt() {
  PoolDemand demand;
  for (uint64_t i = 1; i < 200; ++i) {
    demand.missed(0, 4 * kMiB, i * kMs);
    demand.freed(0, 4 * kMiB);
    if (i % 3 == 0) demand.found(1, 2 * kMiB, i * kMs);
  }
  return demand;
}

TEST(PoolProfiles, ComeBackAsTheyWere) {
  const PoolDemand before = learnt();
  const auto after = parse_pool_profile(pool_profile_text(before));
  ASSERT_TRUE(after.ok()) << after.error().message;
  for (size_t i = 0; i < PoolDemand::kSizes; ++i) {
    const auto& was = before.sizes()[i];
    const auto& is = after->sizes()[i];
    EXPECT_EQ(is.bytes, was.bytes);
    EXPECT_EQ(is.gpu, was.gpu);
    EXPECT_EQ(is.profile.held, was.profile.held);
    EXPECT_EQ(is.profile.intervals, was.profile.intervals);
    EXPECT_EQ(is.profile.distance_ns, was.profile.distance_ns);
    EXPECT_EQ(is.held, 0u);
    EXPECT_EQ(is.ahead, 0u);
  }
}

TEST(PoolProfiles, NothingIsHeldBeforeTheFirstRequestAndThenAsLearnt) {
  PoolDemand again = *parse_pool_profile(pool_profile_text(learnt()));
  PoolDemand fresh;
  const uint64_t now = 1'000'000'000'000;
  EXPECT_EQ(again.worth(1, 2 * kMiB, now), 0u);
  again.found(1, 2 * kMiB, now);
  fresh.found(1, 2 * kMiB, now);
  EXPECT_EQ(fresh.worth(1, 2 * kMiB, now + 5 * kMs), 0u) << "it has asked once, and holds that";
  again.freed(1, 2 * kMiB);
  EXPECT_GE(again.sizes()[1].profile.most_held(), 30u);
}

TEST(PoolProfiles, NothingLearntIsNoFile) { EXPECT_EQ(pool_profile_text(PoolDemand()), ""); }

TEST(PoolProfiles, AnyOtherTextIsRefusedOrBounded) {
  const std::string good = pool_profile_text(learnt());
  std::mt19937 chance(9);
  for (int i = 0; i < 5'000; ++i) {
    std::string text = good;
    for (unsigned times = 1 + chance() % 3; times != 0; --times) {
      const size_t at = chance() % text.size();
      switch (chance() % 3) {
        case 0: text[at] = static_cast<char>(chance()); break;
        case 1: text.erase(at, chance() % 30); break;
        default: text.insert(at, chance() % 12, "[]{}:,\"0-9"[chance() % 10]); break;
      }
      if (text.empty()) text = "x";
    }
    const auto read = parse_pool_profile(text);
    if (!read.ok()) continue;
    for (const auto& size : read->sizes()) {
      EXPECT_LE(size.profile.distance_ns, policies::kPoolQuietNs);
      EXPECT_LE(size.profile.most_held(), policies::SizeProfile::kMostHeld);
      EXPECT_LE(size.profile.window_ns(), policies::kPoolQuietNs);
    }
  }
  for (const char* text : {"", "{}", "[]", "7", R"({"tube_pool":2,"sizes":[]})",
                           R"({"tube_pool":1,"sizes":[{"gpu":99999999999}]})"})
    EXPECT_FALSE(parse_pool_profile(text).ok()) << text;
}

}  // namespace
}  // namespace tube::proxy

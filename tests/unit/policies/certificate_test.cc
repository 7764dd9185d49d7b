#include "policies/memory/certificate.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

Certificate certificate() {
  Behaviour run;
  run.begin(nullptr);
  run.loads({1, 2});
  run.loads({9, 1});
  run.loads({1, 2});
  run.allocates(100);
  run.allocates(50);
  return run.seen();
}

TEST(Certificate, SaysWhatWasSeen) {
  const Certificate seen = certificate();
  EXPECT_EQ(seen.images, (std::vector<ImageName>{{1, 2}, {9, 1}}));
  EXPECT_EQ(seen.allocations, (std::vector<uint64_t>{100, 50}));
  EXPECT_TRUE(seen.fits());
}

TEST(Certificate, TheSameAgainIsKnownAndMayStopAnywhere) {
  const Certificate seen = certificate();
  Behaviour run;
  run.begin(&seen);
  EXPECT_EQ(run.allocates(100), Behaviour::Step::kKnown);
  EXPECT_EQ(run.loads({9, 1}), Behaviour::Step::kKnown);
  EXPECT_EQ(run.loads({1, 2}), Behaviour::Step::kKnown);
}

TEST(Certificate, AnythingElseIsNot) {
  const Certificate seen = certificate();
  const auto fresh = [&] {
    Behaviour run;
    run.begin(&seen);
    return run;
  };
  EXPECT_EQ(fresh().loads({2, 1}), Behaviour::Step::kImage);
  EXPECT_EQ(fresh().allocates(101), Behaviour::Step::kAllocation);
  Behaviour order = fresh();
  EXPECT_EQ(order.allocates(50), Behaviour::Step::kAllocation);
  Behaviour more = fresh();
  more.allocates(100);
  more.allocates(50);
  EXPECT_EQ(more.allocates(50), Behaviour::Step::kAllocation);
}

TEST(Certificate, HasABound) {
  Behaviour run;
  run.begin(nullptr);
  for (size_t i = 0; i < Certificate::kMostAllocations; ++i) run.allocates(i);
  EXPECT_TRUE(run.seen().fits());
  for (size_t i = 0; i < 1000; ++i) run.allocates(i);
  EXPECT_FALSE(run.seen().fits());
  EXPECT_EQ(run.seen().allocations.size(), Certificate::kMostAllocations + 1);
}

}  // namespace
}  // namespace tube::policies

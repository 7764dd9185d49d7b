// Who makes no progress: busy, with the same count at every look for as long as the limit.
#include "policies/progress.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

using News = Stall::News;

std::vector<News> news(const std::vector<Stall>& stalls) {
  std::vector<News> list;
  for (const Stall& stall : stalls) list.push_back(stall.news);
  return list;
}

TEST(Progress, WhatIsBusyWithTheSameCountForLongIsAStallUntilItGoesOn) {
  ProgressWatch watch(10);
  const auto look = [&](bool busy, uint64_t count, uint64_t now) {
    const Progress one{7, busy, count};
    return watch.look({&one, 1}, now);
  };
  EXPECT_TRUE(look(true, 1, 100).empty());
  EXPECT_TRUE(look(true, 1, 109).empty());
  const std::vector<Stall> first = look(true, 1, 110);
  ASSERT_EQ(news(first), std::vector{News::kBegins});
  EXPECT_EQ(first[0].id, 7u);
  EXPECT_EQ(first[0].since_ns, 100u);
  EXPECT_EQ(news(look(true, 1, 115)), std::vector{News::kGoesOn});
  EXPECT_EQ(news(look(true, 2, 116)), std::vector{News::kOver});
  EXPECT_TRUE(look(true, 2, 125).empty());
  EXPECT_EQ(news(look(true, 2, 126)), std::vector{News::kBegins});
  EXPECT_EQ(news(look(false, 2, 127)), std::vector{News::kOver});
  EXPECT_TRUE(look(false, 2, 500).empty());
}

TEST(Progress, WhatDoesNothingOrIsNewIsNoStall) {
  ProgressWatch watch(10);
  const Progress idle{1, false, 5}, fresh{2, true, 5};
  const Progress both[] = {idle, fresh};
  EXPECT_TRUE(watch.look(both, 0).empty());
  EXPECT_TRUE(watch.look({&idle, 1}, 20).empty());  // the other one is gone
  EXPECT_TRUE(watch.look(both, 25).empty());        // and another one has its number
}

TEST(Progress, WithoutALimitNothingIsAStall) {
  ProgressWatch watch(0);
  const Progress one{1, true, 1};
  EXPECT_TRUE(watch.look({&one, 1}, 1).empty());
  EXPECT_TRUE(watch.look({&one, 1}, UINT64_MAX).empty());
}

}  // namespace
}  // namespace tube::policies

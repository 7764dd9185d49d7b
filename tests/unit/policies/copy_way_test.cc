// Which way a copy goes, on plain values.
#include "policies/copy_way.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr CopyAsk kUpload{.to_gpu = true, .bytes = kMiB};

CopyWay way(const CopyAsk& ask, const LinkState& link, LaneUse use) {
  return copy_way(ask, link, use).way;
}

TEST(CopyWay, AloneACopyGoesDirectly) {
  EXPECT_EQ(way(kUpload, {}, LaneUse::kAuto), CopyWay::kDirect);
  EXPECT_EQ(way({.bytes = 4}, {}, LaneUse::kAuto), CopyWay::kDirect) << "downloads of any size";
}

TEST(CopyWay, WhatDoesNotUseTheCopyEngineIsFree) {
  const LinkState busy{.lane_busy = true, .direct_busy = true};
  EXPECT_EQ(way({.to_gpu = true, .bytes = 24 << 10}, busy, LaneUse::kAuto), CopyWay::kFree);
  EXPECT_EQ(way({.bytes = 1}, busy, LaneUse::kAuto), CopyWay::kLane) << "downloads all use it";
}

TEST(CopyWay, TheDriverTakesSmallUploadsThatMayBeReadNow) {
  const CopyAsk small{.to_gpu = true, .readable = true, .bytes = 51 << 10};
  for (const LinkState& link : {LinkState{.lane_busy = true}, LinkState{.direct_busy = true}}) {
    const CopyChoice choice = copy_way(small, link, LaneUse::kAuto);
    EXPECT_EQ(choice.way, CopyWay::kFree);
    EXPECT_EQ(copy_reason_name(choice.why), "taken");
  }
  EXPECT_EQ(way(small, {}, LaneUse::kAuto), CopyWay::kDirect);
  const LinkState busy{.lane_busy = true};
  const auto in_company = [&](const CopyAsk& ask) { return way(ask, busy, LaneUse::kAuto); };
  EXPECT_EQ(in_company({.to_gpu = true, .readable = true, .bytes = kTakenBytes}), CopyWay::kFree);
  EXPECT_EQ(in_company({.to_gpu = true, .readable = true, .bytes = kTakenBytes + 1}),
            CopyWay::kLane);
  EXPECT_EQ(in_company({.to_gpu = true, .bytes = 51 << 10}), CopyWay::kLane) << "not readable";
  EXPECT_EQ(in_company({.readable = true, .bytes = 51 << 10}), CopyWay::kLane) << "a download";
}

TEST(CopyWay, InCompanyACopyGoesThroughTheLane) {
  EXPECT_EQ(way(kUpload, {.lane_busy = true}, LaneUse::kAuto), CopyWay::kLane);
  EXPECT_EQ(way(kUpload, {.direct_busy = true}, LaneUse::kAuto), CopyWay::kLane);
}

TEST(CopyWay, OneStreamMayHaveSoMuchInFlight) {
  LinkState own{.direct_busy = true, .own_stream = true, .direct_bytes = kDirectBytes - kMiB};
  EXPECT_EQ(way(kUpload, own, LaneUse::kAuto), CopyWay::kDirect);
  own.direct_bytes += 1;
  EXPECT_EQ(way(kUpload, own, LaneUse::kAuto), CopyWay::kLane);
  EXPECT_EQ(way({.to_gpu = true, .bytes = kDirectBytes + 1}, {}, LaneUse::kAuto), CopyWay::kLane);
  own = {.direct_busy = true, .own_stream = true, .direct_copies = kDirectCopies};
  EXPECT_EQ(way({.bytes = 4}, own, LaneUse::kAuto), CopyWay::kLane);
}

TEST(CopyWay, WhatAwaitsItsAnswerStaysInCompanyToo) {
  const CopyAsk awaited{.to_gpu = true, .stays = true, .bytes = kMiB};
  for (const LaneUse use : {LaneUse::kAuto, LaneUse::kAlways})
    EXPECT_EQ(way(awaited, {.lane_busy = true}, use), CopyWay::kDirect);
}

TEST(CopyWay, WhatAwaitsItsAnswerIsCountedWithinBounds) {
  const LinkState full{.direct_busy = true, .direct_copies = kDirectCopies};
  EXPECT_EQ(way({.stays = true, .bytes = kMiB}, full, LaneUse::kAuto), CopyWay::kFree);
}

TEST(CopyWay, EveryChoiceSaysWhy) {
  const auto why = [](const CopyAsk& ask, const LinkState& link, LaneUse use = LaneUse::kAuto) {
    return copy_reason_name(copy_way(ask, link, use).why);
  };
  EXPECT_EQ(why(kUpload, {}), "alone");
  EXPECT_EQ(why(kUpload, {.lane_busy = true}), "lane busy");
  EXPECT_EQ(why(kUpload, {.direct_busy = true}), "other stream");
  EXPECT_EQ(why({.bytes = kDirectBytes + 1}, {}), "much");
  EXPECT_EQ(why({.to_gpu = true, .bytes = 1}, {}), "small");
  EXPECT_EQ(why({.stays = true, .bytes = 1}, {}), "awaited");
  EXPECT_EQ(why(kUpload, {}, LaneUse::kNever), "off");
  EXPECT_EQ(why(kUpload, {}, LaneUse::kAlways), "always");
  EXPECT_EQ(copy_reason_name(CopyReason::kNoThread), "no thread");
}

TEST(CopyWay, ASettingDecidesForAll) {
  EXPECT_EQ(way(kUpload, {}, LaneUse::kAlways), CopyWay::kLane);
  EXPECT_EQ(way(kUpload, {.lane_busy = true}, LaneUse::kNever), CopyWay::kFree);
  EXPECT_EQ(lane_use("auto"), LaneUse::kAuto);
  EXPECT_EQ(lane_use("always"), LaneUse::kAlways);
  EXPECT_EQ(lane_use("never"), LaneUse::kNever);
  EXPECT_EQ(lane_use("on"), std::nullopt);
}

}  // namespace
}  // namespace tube::policies

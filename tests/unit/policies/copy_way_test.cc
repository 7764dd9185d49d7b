// Which way a copy goes, on plain values.
#include "policies/copy_way.h"

#include <gtest/gtest.h>

namespace tube::policies {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr CopyAsk kUpload{.to_gpu = true, .bytes = kMiB};

TEST(CopyWay, AloneACopyGoesDirectly) {
  EXPECT_EQ(copy_way(kUpload, {}, LaneUse::kAuto), CopyWay::kDirect);
  EXPECT_EQ(copy_way({.bytes = 4}, {}, LaneUse::kAuto), CopyWay::kDirect)
      << "downloads of any size";
}

TEST(CopyWay, WhatDoesNotUseTheCopyEngineIsFree) {
  const LinkState busy{.lane_busy = true, .direct_busy = true};
  EXPECT_EQ(copy_way({.to_gpu = true, .bytes = 24 << 10}, busy, LaneUse::kAuto), CopyWay::kFree);
  EXPECT_EQ(copy_way({.to_gpu = true, .bytes = (24 << 10) + 1}, busy, LaneUse::kAuto),
            CopyWay::kLane);
  EXPECT_EQ(copy_way({.to_gpu = true, .pageable = true, .bytes = 60 << 10}, busy, LaneUse::kAlways),
            CopyWay::kFree);
}

TEST(CopyWay, InCompanyACopyGoesThroughTheLane) {
  EXPECT_EQ(copy_way(kUpload, {.lane_busy = true}, LaneUse::kAuto), CopyWay::kLane);
  EXPECT_EQ(copy_way(kUpload, {.direct_busy = true}, LaneUse::kAuto), CopyWay::kLane);
}

TEST(CopyWay, OneStreamMayHaveSoMuchInFlight) {
  LinkState own{.direct_busy = true, .own_stream = true, .direct_bytes = kDirectBytes - kMiB};
  EXPECT_EQ(copy_way(kUpload, own, LaneUse::kAuto), CopyWay::kDirect);
  own.direct_bytes += 1;
  EXPECT_EQ(copy_way(kUpload, own, LaneUse::kAuto), CopyWay::kLane);
  EXPECT_EQ(copy_way({.to_gpu = true, .bytes = kDirectBytes + 1}, {}, LaneUse::kAuto),
            CopyWay::kLane);
  own = {.direct_busy = true, .own_stream = true, .direct_copies = kDirectCopies};
  EXPECT_EQ(copy_way({.bytes = 4}, own, LaneUse::kAuto), CopyWay::kLane);
}

TEST(CopyWay, ASettingDecidesForAll) {
  EXPECT_EQ(copy_way(kUpload, {}, LaneUse::kAlways), CopyWay::kLane);
  EXPECT_EQ(copy_way(kUpload, {.lane_busy = true}, LaneUse::kNever), CopyWay::kFree);
  EXPECT_EQ(lane_use("auto"), LaneUse::kAuto);
  EXPECT_EQ(lane_use("always"), LaneUse::kAlways);
  EXPECT_EQ(lane_use("never"), LaneUse::kNever);
  EXPECT_EQ(lane_use("on"), std::nullopt);
}

}  // namespace
}  // namespace tube::policies

#include "policies/copy_way.h"

#include <iterator>

namespace tube::policies {

std::optional<LaneUse> lane_use(std::string_view text) {
  if (text == "auto") return LaneUse::kAuto;
  if (text == "always") return LaneUse::kAlways;
  if (text == "never") return LaneUse::kNever;
  return std::nullopt;
}

std::string_view lane_use_name(LaneUse use) {
  return use == LaneUse::kAuto ? "auto" : use == LaneUse::kAlways ? "always" : "never";
}

std::string_view copy_reason_name(CopyReason reason) {
  static constexpr std::string_view kNames[] = {
      "off",     "inline", "small",     "captured",     "other GPU", "green context", "alone",
      "awaited", "taken",  "lane busy", "other stream", "much",      "always",        "no thread"};
  static_assert(std::size(kNames) == static_cast<size_t>(CopyReason::kCount));
  return kNames[static_cast<size_t>(reason)];
}

CopyChoice copy_way(const CopyAsk& ask, const LinkState& link, LaneUse use) {
  if (use == LaneUse::kNever) return {CopyWay::kFree, CopyReason::kOff};
  if (ask.bytes == 0) return {CopyWay::kFree, CopyReason::kSmall};
  if (ask.stays)
    return {link.direct_copies < kDirectCopies ? CopyWay::kDirect : CopyWay::kFree,
            CopyReason::kAwaited};
  if (use == LaneUse::kAlways) return {CopyWay::kLane, CopyReason::kAlways};
  if (ask.to_gpu && ask.bytes <= kFreePinnedBytes) return {CopyWay::kFree, CopyReason::kSmall};
  const bool others = link.direct_busy && !link.own_stream;
  if ((link.lane_busy || others) && ask.to_gpu && ask.readable && ask.bytes <= kTakenBytes)
    return {CopyWay::kFree, CopyReason::kTaken};
  if (link.lane_busy) return {CopyWay::kLane, CopyReason::kLaneBusy};
  if (others) return {CopyWay::kLane, CopyReason::kOtherStream};
  const bool room =
      link.direct_bytes + ask.bytes <= kDirectBytes && link.direct_copies < kDirectCopies;
  if (!room) return {CopyWay::kLane, CopyReason::kMuch};
  return {CopyWay::kDirect, CopyReason::kAlone};
}

}  // namespace tube::policies

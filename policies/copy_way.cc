#include "policies/copy_way.h"

namespace tube::policies {

std::optional<LaneUse> lane_use(std::string_view text) {
  if (text == "auto") return LaneUse::kAuto;
  if (text == "always") return LaneUse::kAlways;
  if (text == "never") return LaneUse::kNever;
  return std::nullopt;
}

CopyWay copy_way(const CopyAsk& ask, const LinkState& link, LaneUse use) {
  if (use == LaneUse::kNever || ask.bytes == 0) return CopyWay::kFree;
  if (ask.pageable) return CopyWay::kFree;
  if (ask.stays) return CopyWay::kDirect;
  if (use == LaneUse::kAlways) return CopyWay::kLane;
  if (ask.to_gpu && ask.bytes <= kFreePinnedBytes) return CopyWay::kFree;
  if (link.lane_busy || (link.direct_busy && !link.own_stream)) return CopyWay::kLane;
  const bool room =
      link.direct_bytes + ask.bytes <= kDirectBytes && link.direct_copies < kDirectCopies;
  return room ? CopyWay::kDirect : CopyWay::kLane;
}

}  // namespace tube::policies

// How a copy between host and GPU goes to the hardware: on its client's own stream, or through the
// lane of its link (one GPU, one direction).
//
// In one context a stream that has two copies of a direction in flight keeps every other stream's
// copies of that direction waiting for as long as it goes on (docs/facts.md, Copies). So a link is
// used directly by one stream, with a bounded number of bytes in flight, or by the lane, which
// sends everybody's copies as chunks through one stream. A copy that comes while the link is
// another's goes through the lane, and waits for no more than what is in flight. Plain values; the
// caller counts what is in flight.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tube::policies {

enum class CopyWay : uint8_t {
  kFree,    // does not use the copy engine: on the client's stream, nobody asks
  kDirect,  // on the client's stream, counted until it has ended
  kLane,
};

// Why a copy went the way it went, as `tubectl copies` names it.
enum class CopyReason : uint8_t {
  kOff,          // free: no lanes are used
  kInline,       // free: the driver takes the bytes with the call
  kSmall,        // free: it does not use the copy engine
  kCaptured,     // free: it becomes a node of a graph
  kOtherGpu,     // free: it crosses another GPU's link than its stream's
  kGreen,        // free: its stream belongs to a context of its own
  kAlone,        // direct: nobody else uses the link
  kAwaited,      // direct: its call returns the driver's answer; free when too many are counted
  kTaken,        // free: the link is another's, and the driver takes the bytes with the call
  kLaneBusy,     // lane: it has others' copies
  kOtherStream,  // lane: another stream uses the link directly
  kMuch,         // lane: more than may be in flight directly
  kAlways,       // lane: all do
  kNoThread,     // on its stream after all: there was no thread for the lane
  kCount,
};
std::string_view copy_reason_name(CopyReason reason);

// What is chosen when nothing else says so: TUBE_COPY_LANE.
enum class LaneUse : uint8_t { kAuto, kAlways, kNever };

// nullopt: the text is none of auto, always, never.
std::optional<LaneUse> lane_use(std::string_view text);
std::string_view lane_use_name(LaneUse use);

struct LinkState {
  bool lane_busy = false;     // the lane has copies, waiting or in flight
  bool direct_busy = false;   // some stream has direct copies in flight
  bool own_stream = false;    // and it is the one that asks
  uint64_t direct_bytes = 0;  // in flight
  uint32_t direct_copies = 0;
};

struct CopyAsk {
  bool to_gpu = false;
  bool stays = false;  // must go on its client's stream, in company too
  // The bytes may be read now: by the host, and nothing that could still write them is before the
  // copy. Worth finding out up to kTakenBytes.
  bool readable = false;
  uint64_t bytes = 0;
};

// Pinned uploads up to this go another way in the hardware (measured, bench/copies/rules).
inline constexpr uint64_t kFreePinnedBytes = 24u << 10;
// Bytes in pageable memory up to this do so, too: the driver takes them with the call, and has them
// there in 26 us. Pinned ones are copied first. (Several uploads of kFreePinnedBytes behind each
// other do use the copy engine: 51 KiB in three took 4 ms beside bulk.)
inline constexpr uint64_t kTakenBytes = 64u << 10;
// Direct copies in flight on a link: what a newcomer may have to wait for, 0.3 ms.
inline constexpr uint64_t kDirectBytes = 16u << 20;
inline constexpr uint32_t kDirectCopies = 1024;  // each has an event until it is seen to have ended

// The least bytes of a graph's copy that is better done outside of its instance, where copies take
// turns: the driver does it in one piece, 20 us a MiB. 0: none is.
constexpr uint64_t lifted_bytes(LaneUse use) {
  return use == LaneUse::kNever ? 0 : use == LaneUse::kAlways ? 1 : 1u << 20;
}

struct CopyChoice {
  CopyWay way = CopyWay::kFree;
  CopyReason why = CopyReason::kOff;
};

CopyChoice copy_way(const CopyAsk& ask, const LinkState& link, LaneUse use);

}  // namespace tube::policies

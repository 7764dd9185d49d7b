// Whose GPU memory moves to the host when somebody else's is missing, how much of it, and for how
// long a function that came back is left alone.
//
// Functions work in turns: a request comes, they are at work, they wait for the next one. Order of
// those who go:
//
//   kQueue  who is furthest from its next turn, which follows from the turns so far: the last one's
//           begin and the mean distance between them. Functions that take turns in a circle are the
//           case that matters, and there the one that has just had its turn goes: the least
//           recently used one comes next. A turn that is overdue by its distance tells nothing any
//           more; then, as for a function without a second turn, the next one is as far ahead as
//           the last one is behind.
//   kLru    who was at work least recently.
//
// By kQueue functions whose turns follow each other at about the same distance, a circle, give down
// to the same level: in a circle of equal ones whoever comes next then has the same part of its
// memory left, where whole functions would be there, or away, and the worst turn as long as without
// an order. Functions with turns further apart go before them, whole.
//
// The one that has just had its turn is furthest from the next one, but not quiet for long enough
// to be asked. For large requests others are not asked in its place until a moment has passed
// (eviction_patience_ns): on an H200 every turn of such a circle moved all of a function's memory
// else, as by kLru.
//
// Watermarks against thrash are times, because what is to be bounded is the share of time that goes
// into moving: a function stays until it has done a piece of work and is quiet, or at least as long
// as its way back took; it is stopped in the middle of its work only after kDrainTimes as long.
//
// Plain values in, decisions out: no clock, no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tube::policies {

enum class EvictionOrder : uint8_t { kQueue, kLru };
inline constexpr EvictionOrder kEvictionOrders[] = {EvictionOrder::kQueue, EvictionOrder::kLru};
// "queue", "lru".
std::string_view eviction_order_name(EvictionOrder order);
std::optional<EvictionOrder> parse_eviction_order(std::string_view name);

inline constexpr uint64_t kQuietNs = 1'000'000;      // without a record: a piece of work is done
inline constexpr uint64_t kTurnGapNs = 1'000'000;    // of rest, behind which a new turn begins
inline constexpr uint64_t kLeastStayNs = 5'000'000;  // of a function that came back
inline constexpr uint64_t kMostStayNs = 500'000'000;
inline constexpr uint64_t kLeastDrainNs = 100'000'000;  // before its work is stopped
inline constexpr uint64_t kDrainTimes = 4;

// When a function was at work.
class Turns {
 public:
  // It is at work again.
  void began(uint64_t now_ns) {
    if (working_) return;
    working_ = true;
    if (last_ns_ != 0 && now_ns - used_ns_ < kTurnGapNs) return;
    if (last_ns_ != 0 && now_ns > last_ns_) {
      const uint64_t distance = now_ns - last_ns_;
      distance_ns_ = distance_ns_ == 0 ? distance : distance_ns_ - distance_ns_ / 4 + distance / 4;
    }
    last_ns_ = now_ns;
  }
  // It has nothing to do.
  void ended(uint64_t now_ns) {
    working_ = false;
    used_ns_ = now_ns;
  }
  bool working() const { return working_; }
  uint64_t used_ns(uint64_t now_ns) const { return working_ ? now_ns : used_ns_; }
  // When the next turn is expected; now while it has one.
  uint64_t next_ns(uint64_t now_ns) const;
  // The same by the distance of its turns, as if one that it has were over. nullopt: they tell
  // nothing.
  std::optional<uint64_t> expected_ns(uint64_t now_ns) const;
  uint64_t distance_ns() const { return distance_ns_; }

 private:
  bool working_ = false;
  uint64_t last_ns_ = 0;  // when the last turn began; 0: there was none
  uint64_t distance_ns_ = 0;
  uint64_t used_ns_ = 0;
};

// A function whose memory could go.
struct EvictionCandidate {
  uint64_t function = 0;
  uint64_t bytes = 0;  // that can move
  uint64_t next_turn_ns = 0;
  uint64_t used_ns = 0;
  uint64_t not_before_ns = 0;                      // it is left alone until then
  static constexpr uint64_t kNotNow = UINT64_MAX;  // it is asked already, or waits itself
  // Of its turns, by which the next one is expected; 0: they tell nothing.
  uint64_t distance_ns = 0;
  bool soon = false;  // it is waited for, although it cannot be asked yet
};

struct EvictionShare {
  uint64_t function = 0;
  uint64_t bytes = 0;
  bool awaited = false;  // it is asked in a moment, and nobody in its place
};

// For how long so many bytes are not asked of others while the function that should give them is
// about to be quiet: half of what their way takes at 50 GB/s, if they are many.
inline constexpr uint64_t kPatientBytes = 256u << 20, kMostPatienceNs = 4'000'000;
constexpr uint64_t eviction_patience_ns(uint64_t bytes) {
  const uint64_t half = bytes / 100;
  return bytes < kPatientBytes ? 0 : half < kMostPatienceNs ? half : kMostPatienceNs;
}

// Whether a function that cannot be asked before `not_before_ns` will be quiet in a moment.
constexpr bool quiet_soon(bool working, uint64_t not_before_ns, uint64_t now_ns) {
  if (not_before_ns == EvictionCandidate::kNotNow) return false;
  return working || (not_before_ns > now_ns && not_before_ns - now_ns <= kQuietNs);
}

// Whether a function has sent nothing for so long that its memory goes although nobody needs the
// room, if it has no work on the GPU either. `used_ns` 0: nothing is known of it.
constexpr bool is_idle(bool working, uint64_t used_ns, uint64_t now_ns, uint64_t idle_ns) {
  return idle_ns != 0 && !working && used_ns != 0 && now_ns >= used_ns &&
         now_ns - used_ns >= idle_ns;
}

// How often that is looked at.
constexpr uint64_t idle_look_ns(uint64_t idle_ns) {
  constexpr uint64_t kLeast = 20'000'000, kMost = 1'000'000'000;
  const uint64_t quarter = idle_ns / 4;
  return quarter < kLeast ? kLeast : quarter < kMost ? quarter : kMost;
}

// A function that holds less than this part of what the largest one does is left alone while larger
// ones, asked already or not, have what is missing: its memory is soon moved, but its way back is
// behind theirs.
inline constexpr uint64_t kSmallPart = 16;

// Who is asked for how much so that `bytes` become free: in that order, the last one for what is
// still missing. Fewer bytes than asked for when there are not enough. `largest`: what the largest
// function holds; 0: nobody is small.
std::vector<EvictionShare> choose_evictions(EvictionOrder order,
                                            std::span<const EvictionCandidate> candidates,
                                            uint64_t bytes, uint64_t largest, uint64_t now_ns);

// A block comes back in parts of so many bytes. A part's way is what two directions of a link do
// not overlap, 1.2 ms at 53 GB/s; each costs calls to the driver, which two functions that change
// places make in turn: on an H200, beside the copies, about 0.45 ms a part and 5 us a MiB, each
// way.
inline constexpr uint64_t kLeastPartBytes = 64u << 20;
inline constexpr uint64_t kMostParts = 256;
constexpr uint64_t part_bytes(uint64_t block_bytes) {
  constexpr uint64_t kUnit = 2u << 20;
  const uint64_t part = (block_bytes / kMostParts + kUnit - 1) / kUnit * kUnit;
  return part > kLeastPartBytes ? part : kLeastPartBytes;
}

// Which of a function's blocks go so that at least `bytes` do, if they hold so much: the fewest,
// and of these the smallest last one. Indices into `sizes`.
std::vector<size_t> choose_blocks(std::span<const uint64_t> sizes, uint64_t bytes);

// What a function that came back at `came_ns`, for which that took `took_ns`, may be asked at
// `now_ns`. `quiet_ns`: for how long it has sent nothing.
enum class Leave : uint8_t { kStays, kWhenIdle, kDrained };
Leave may_leave(uint64_t came_ns, uint64_t took_ns, uint64_t quiet_ns, uint64_t now_ns);

// Whether `bytes` more may go to the host for an allocation. `used`: host memory that holds moved
// memory; `largest`: what the largest function holds, or what exchange needs. It is kept free, so
// that whoever is away can come back by exchange with others.
constexpr bool host_room_for_allocation(uint64_t used, uint64_t bytes, uint64_t largest,
                                        uint64_t most) {
  return used <= most && bytes <= most - used && largest <= most - used - bytes;
}

// What exchange needs once there is a block of `block` bytes beside functions that hold `largest`
// at most: the first time a block goes in one piece, and while it does not, the GPU may have room
// for nearly a part of what would come back, which helps nobody.
constexpr uint64_t exchange_bytes(uint64_t largest, uint64_t block) {
  const uint64_t part = part_bytes(largest);
  return (largest > block ? largest : block) + (largest < part ? largest : part);
}

}  // namespace tube::policies

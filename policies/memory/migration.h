// Which of the store's objects leave a GPU when its memory is short, where they go, and which come
// back before they are asked for.
//
//   kQueue  whose consumer is furthest back in the queue of requests goes first (FaaSTube, section
//           7.2). The queue is told by whoever runs the functions; of objects that it does not
//           name, and without one, the turn is when objects of that maker were taken so far, behind
//           their making: what was made first is taken first.
//   kLru    what was used least recently goes first.
//
// Objects whose turns come within one window of each other are as good as equal: of these the one
// goes first whose bytes are elsewhere already, then the largest (StreamBox, section 6.2, rule 3).
// Small ones, which give no memory back alone, go last. To a neighbour GPU as long as one has more
// to spare than the one that is short, the one with most (rule 2); else to the host.
//
// Plain values in, decisions out: no clock, no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tube::policies {

enum class MigrationOrder : uint8_t { kQueue, kLru };
inline constexpr MigrationOrder kMigrationOrders[] = {MigrationOrder::kQueue, MigrationOrder::kLru};
// "queue", "lru".
std::string_view migration_order_name(MigrationOrder order);
std::optional<MigrationOrder> parse_migration_order(std::string_view name);

inline constexpr uint32_t kNoTurn = ~0u;
inline constexpr uint64_t kTurnWindowNs = 20'000'000;   // as far as memory is looked ahead
inline constexpr uint64_t kLeastAwayNs = 50'000'000;    // before what left comes back untold
inline constexpr uint64_t kLeastReserve = 64ull << 20;  // of a GPU, that the store leaves to others
inline constexpr uint64_t kReserveShare = 32;           // of its memory
inline constexpr int kToHost = -1;

struct StoredObject {
  uint64_t bytes = 0;
  uint32_t turn = kNoTurn;  // its place in the queue that was told
  uint64_t made_ns = 0;
  uint64_t used_ns = 0;    // when it was made, taken or given back last
  uint64_t waits_ns = 0;   // how long objects of its maker waited for their consumers; 0: unknown
  bool taken = false;      // a consumer has had it
  bool whole = true;       // it gives its memory back alone
  bool elsewhere = false;  // its bytes are in another place, too
};

// Indices, in the order in which they go, until `bytes` become free or nothing is left.
std::vector<size_t> choose_leaving(MigrationOrder order, std::span<const StoredObject> objects,
                                   uint64_t bytes, uint64_t now_ns);

// Of objects that left a GPU (used_ns: when) those that come back now into `room` bytes, the next
// turn first: all that the queue names, and under kQueue of the others those that nobody has had.
std::vector<size_t> choose_returning(MigrationOrder order, std::span<const StoredObject> objects,
                                     uint64_t room, uint64_t now_ns);

struct GpuSpace {
  int gpu = 0;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};
// Bytes that the store may not take of a GPU's free ones, so that a burst finds some at once.
// `growth`: by what its use is expected to grow until the next look; a share of the memory at most.
constexpr uint64_t store_reserve(uint64_t total_bytes, uint64_t growth) {
  const uint64_t share = total_bytes / kReserveShare;
  const uint64_t least = share < kLeastReserve ? share : kLeastReserve;
  return growth < least ? least : growth < share ? growth : share;
}
// Where `bytes` of GPU `from` go: a GPU of `spaces`, or kToHost.
int choose_place(std::span<const GpuSpace> spaces, int from, uint64_t bytes);

// How long objects wait for their consumers.
class WaitTime {
 public:
  void note(uint64_t waited_ns) {
    const uint64_t noted = waited_ns == 0 ? 1 : waited_ns;
    mean_ns_ = mean_ns_ == 0 ? noted : mean_ns_ - mean_ns_ / 4 + noted / 4;
  }
  uint64_t mean_ns() const { return mean_ns_; }

 private:
  uint64_t mean_ns_ = 0;
};

// By how much the memory in use may grow within a window, from how much it did in the last fifty.
class MemoryGrowth {
 public:
  void note(uint64_t now_ns, uint64_t used_bytes);
  uint64_t expected() const;

 private:
  static constexpr size_t kWindows = 50;
  std::array<uint64_t, kWindows> grown_{};
  uint64_t window_ = 0;  // now / kTurnWindowNs of the last note
  uint64_t used_ = 0;    // and what it said
  bool known_ = false;
};

}  // namespace tube::policies

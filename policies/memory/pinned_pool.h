// How much pinned host memory a proxy holds ready: when to make more, in which pieces, and when to
// give it back.
//
// Getting pinned memory is slow for two reasons: its pages are touched (16 ms for 32 MiB), and the
// driver registers them (6 ms for 100 MiB, 47 ms for a GiB on an H200), during which it holds a
// lock that launches of all functions need. So memory is made ahead, on a thread of its own, and
// registered in a moment when that disturbs nobody, or by the request that wants it first. It is
// made in pieces: for requests of up to 32 MiB four times as much as one takes, 4 to 32 MiB,
// for larger ones the power of two that holds one, at most 256 MiB. An allocation lies in one
// piece, because natively it is one registration; what is larger than the largest piece is made
// when it is asked for, as natively.
//
// A request that is larger than any piece leaves a block that serves only its like: a small one in
// it would keep gigabytes from going back for as long as it lives.
//
// A client that has not asked for pinned memory gets none ahead. The first request brings the piece
// that would hold its like; each request that finds nothing doubles what is held ahead;
// kPinnedQuietNs without any request give all of it back. Freed memory stays in the pool and counts
// as held ahead. Bounds: a total for all idle memory of the proxy, of which one client may have
// half.
//
// Plain values in, decisions out; locks, threads and the driver are in proxy/memory/pinned_pools.h.
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint64_t kLeastPinnedPiece = 4ull << 20;
inline constexpr uint64_t kSmallPinnedPiece = 32ull << 20;
inline constexpr uint64_t kLargestPinnedPiece = 256ull << 20;
inline constexpr uint64_t kPinnedQuietNs = 30'000'000'000;

// Of idle memory: registered, and not allocated by a program. 0: nothing is held.
struct PinnedBudget {
  uint64_t total_bytes = 0;
  constexpr uint64_t client_bytes() const { return total_bytes / 2; }
};

// A thirty-second of the memory that the proxy may use, between 64 MiB and 4 GiB.
PinnedBudget default_pinned_budget(uint64_t memory_bytes);

// The piece that is made ahead for requests of this size; 0: none is.
uint64_t pinned_piece_for(uint64_t request_bytes);

// Whether a block of that size serves the request.
constexpr bool pinned_block_serves(uint64_t block_bytes, uint64_t request_bytes) {
  return block_bytes <= kLargestPinnedPiece || request_bytes > block_bytes / 2;
}

// What one client asked for lately.
class PinnedDemand {
 public:
  // A client that has asked for nothing yet: what it finds is held for it for a while.
  void arrived(uint64_t now_ns);
  void asked(uint64_t bytes, bool found, const PinnedBudget& budget, uint64_t now_ns);
  // So long without a request that nothing is to be held.
  bool quiet(uint64_t now_ns) const;
  // The largest request of this half minute and the one before that a piece can hold.
  uint64_t largest_bytes() const { return latest_ > before_ ? latest_ : before_; }
  uint64_t ahead_bytes() const { return ahead_; }
  uint64_t last_ns() const { return last_ns_; }

 private:
  uint64_t latest_ = 0, before_ = 0;
  uint64_t window_ns_ = 0;  // when the time of latest_ began
  uint64_t ahead_ = 0;
  uint64_t last_ns_ = 0;
};

struct PinnedState {
  uint64_t idle_bytes = 0;         // of this client's pool
  uint64_t largest_run_bytes = 0;  // the largest request that it can serve
  uint64_t total_idle_bytes = 0;   // of all pools, this one included
  uint64_t returnable_bytes = 0;   // of this client's: in blocks that are wholly idle
};

// The size of the piece to make next for this pool; 0: it has enough, or the budget has not.
uint64_t next_pinned_piece(const PinnedDemand& demand, const PinnedState& state,
                           const PinnedBudget& budget, uint64_t now_ns);

// How many idle bytes of this pool are to go back to the driver.
uint64_t pinned_surplus(const PinnedDemand& demand, const PinnedState& state,
                        const PinnedBudget& budget, uint64_t now_ns);

}  // namespace tube::policies

// How much freed or unasked-for GPU memory a proxy holds ready for its functions: when a block is
// kept or made ahead, and when it goes back.
//
// A block that a function frees stays mapped where it is, for that function's next request of its
// size; getting it anew costs 35 us (2 MiB) to 117 us (1 GiB) of driver calls, giving it back 28 us
// to 2.4 ms (H200). A size that was asked for in vain twice within kPoolQuietNs is made ahead: one
// block, and twice as many with each further request in vain. A function's first large allocation
// therefore brings nothing but itself, and a loop over one size finds a block each time.
//
// What is held is idle memory: it belongs to nobody, counts as free, and goes back at once when any
// request would fail without it. The bound is for each GPU and for all functions together; beyond
// it the function with the most idle memory gives up what it has not used for longest. Blocks that
// nobody has wanted for kPoolQuietNs go back.
//
// Plain values in, decisions out; who holds which block is in proxy/memory/block_pool.h.
#pragma once

#include <array>
#include <cstdint>

namespace tube::policies {

inline constexpr uint64_t kPoolQuietNs = 10'000'000'000;

// Idle bytes of each GPU; 0: nothing is held.
struct PoolBudget {
  uint64_t bytes = 0;
  constexpr bool fits(uint64_t idle_bytes, uint64_t more) const {
    return more <= bytes && idle_bytes <= bytes - more;
  }
};

// What the operator allows, but never above a twentieth of the GPU.
constexpr PoolBudget pool_budget(uint64_t allowed_bytes, uint64_t gpu_bytes) {
  return {allowed_bytes < gpu_bytes / 20 ? allowed_bytes : gpu_bytes / 20};
}
inline constexpr uint64_t kDefaultPoolBytes = 2ull << 30;

// Whether a block that was put by then is held for nothing.
constexpr bool pool_expired(uint64_t idle_since_ns, uint64_t now_ns) {
  return now_ns - idle_since_ns >= kPoolQuietNs;
}

// Which sizes one function asked for lately, on each GPU. Remembers sixteen.
class PoolDemand {
 public:
  struct Size {
    uint64_t bytes = 0;  // of a block; 0: none
    uint32_t gpu = 0;
    uint32_t ahead = 0;  // blocks to hold
    uint64_t last_ns = 0;
  };
  static constexpr uint32_t kMostAhead = 8;

  void found(uint32_t gpu, uint64_t bytes, uint64_t now_ns);
  void missed(uint32_t gpu, uint64_t bytes, uint64_t now_ns);
  // Memory is short: nothing is held ahead until the function asks in vain again.
  void forget() { sizes_ = {}; }
  // How many idle blocks of a size there should be by now.
  uint32_t ahead(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const;
  const std::array<Size, 16>& sizes() const { return sizes_; }

 private:
  Size* find(uint32_t gpu, uint64_t bytes);

  std::array<Size, 16> sizes_{};
};

}  // namespace tube::policies

// How much freed or unasked-for GPU memory a proxy holds ready for its functions: when a block is
// kept or made ahead, and when it goes back.
//
// A block that a function frees stays mapped where it is, for that function's next request of its
// size; getting it anew costs 35 us (2 MiB) to 117 us (1 GiB) of driver calls, giving it back 28 us
// to 2.4 ms (H200). How many such blocks are worth their memory is learnt, for each function and
// size, from its requests (PoolDemand):
//
//   reservation   FaaSTube 7.1: the p99 of how many are held at once, without those held now, for
//                 as long as the p99 of the distance between requests behind the last one.
//   next          StreamBox Algorithm 1: of these, only as many as the next interval will ask for.
//                 The interval is twice what making and giving back a block of the size takes.
//
// The lesser of both stays (policy `demand`); the rest goes back at the next look, every
// kPoolLookNs while blocks come and go. A size that was asked for in vain twice is made ahead: one
// block, and twice as many with each further request in vain. `keep` holds what was freed until
// nobody has wanted it for kPoolQuietNs, without resizing, `static` until memory is short.
//
// What is held is idle memory: it belongs to nobody, counts as free, and goes back at once when any
// request would fail without it. The bound is for each GPU and for all functions together; beyond
// it the function with the most idle memory gives up what it has not used for longest.
//
// Plain values in, decisions out; who holds which block is in proxy/memory/block_pool.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tube::policies {

enum class PoolPolicy : uint8_t { kDemand, kKeep, kStatic };
std::optional<PoolPolicy> parse_pool_policy(std::string_view text);
const char* pool_policy_name(PoolPolicy policy);

inline constexpr uint64_t kPoolQuietNs = 10'000'000'000;
inline constexpr uint64_t kPoolLookNs = 400'000;  // between looks at what is held

// Making a block and giving it back, as measured on an H200.
constexpr uint64_t remake_ns(uint64_t bytes) { return 60'000 + (bytes >> 20) * 2'400; }

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

// Whether a block that was put by then is held for nothing. `now_ns` may be earlier: another thread
// has just put it by.
constexpr bool pool_expired(uint64_t idle_since_ns, uint64_t now_ns) {
  return now_ns >= idle_since_ns + kPoolQuietNs;
}

// What is known of a function's requests for one size.
struct SizeProfile {
  static constexpr uint32_t kIntervals = 32;  // bucket i: below 2^i us
  static constexpr uint32_t kMostHeld = 32;   // and more
  uint64_t distance_ns = 0;                   // between requests, lately; 0: unknown
  std::array<uint32_t, kIntervals> intervals{};
  std::array<uint32_t, kMostHeld + 1> held{};  // at once, by request

  void add_interval(uint64_t ns);
  void add_held(uint32_t blocks);
  uint64_t window_ns() const;  // p99 of the distances, in [kPoolLookNs, kPoolQuietNs]
  uint32_t most_held() const;  // p99
};

// Which sizes one function asks for, on each GPU. Remembers sixteen.
class PoolDemand {
 public:
  struct Size {
    uint64_t bytes = 0;  // of a block; 0: none
    uint32_t gpu = 0;
    uint32_t ahead = 0;  // blocks to hold
    uint64_t last_ns = 0;
    uint32_t held = 0;  // by the function, now
    SizeProfile profile;
  };
  static constexpr uint32_t kMostAhead = 8;
  static constexpr uint32_t kSizes = 16;

  void found(uint32_t gpu, uint64_t bytes, uint64_t now_ns);
  void missed(uint32_t gpu, uint64_t bytes, uint64_t now_ns);
  void freed(uint32_t gpu, uint64_t bytes);
  // Memory is short: nothing is held ahead until the function asks in vain again.
  void forget();
  // How many idle blocks of a size there should be by now, made ahead if there are less.
  uint32_t ahead(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const;
  // How many idle blocks of a size are worth their memory.
  uint32_t worth(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const;
  const std::array<Size, kSizes>& sizes() const { return sizes_; }
  // What is known of a size from an earlier run of the function. Nothing is held for it before it
  // is asked for again. False: there is no place for it, or it is known better by now.
  bool restore(uint32_t gpu, uint64_t bytes, const SizeProfile& profile);

 private:
  const Size* find(uint32_t gpu, uint64_t bytes) const;
  Size& enter(uint32_t gpu, uint64_t bytes);
  void asked(Size& size, uint64_t now_ns);

  std::array<Size, kSizes> sizes_{};
};

}  // namespace tube::policies

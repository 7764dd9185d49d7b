// How much pinned host memory is made before GPU memory has to move there.
//
// Making it takes 0.3 s a GiB (touching and registering), which a function whose memory is wanted
// back, or another's wish for it, would wait for. So it is made when moving becomes likely, by a
// watermark on what functions hold of a GPU that two or more share, promised and away included:
//
//   below    as much as would have to leave for one more like the largest of them, or a quarter of
//            the GPU, if that is more. Nothing is made while that would fit.
//   above    (more is held than there is) what is away, and twice the largest on top: while two of
//            its size change places both are on the host.
//
// Never more than all that functions hold, which is the most that can be away, and never so much
// that the machine runs short: what is made ahead leaves the host twice the headroom that what is
// needed at once leaves (policies/memory/host_budget.h).
//
// Plain values in, decisions out; proxy/evict/host_ahead.h has the thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tube::policies {

// One GPU.
struct HostAheadGpu {
  uint64_t capacity_bytes = 0;  // what functions may have on it together
  uint64_t held_bytes = 0;      // by functions: on the GPU, promised and away
  uint64_t largest_bytes = 0;   // of one of them
  uint32_t functions = 0;
};

constexpr uint64_t host_bytes_ahead(const HostAheadGpu& gpu) {
  const uint64_t held = gpu.held_bytes, capacity = gpu.capacity_bytes;
  if (gpu.functions < 2 || held == 0) return 0;
  if (held > capacity)
    return std::min(held, held - capacity + std::min(2 * gpu.largest_bytes, held));
  const uint64_t one_more = std::max(gpu.largest_bytes, capacity / 4);
  const uint64_t left = capacity - held;
  return one_more > left ? std::min(held, one_more - left) : 0;
}

// Whether a piece more may be made now of a host that has `available_bytes` left.
constexpr bool host_has_ahead(uint64_t available_bytes, uint64_t headroom_bytes, uint64_t bytes) {
  return available_bytes >= 2 * headroom_bytes && available_bytes - 2 * headroom_bytes >= bytes;
}

}  // namespace tube::policies

// How much host memory a proxy may hold for its functions: pinned memory, shared segments, images,
// what left the GPUs, pages of registered files that it brings into being.
//
// All of that is charged to the proxy, wherever its clients run: a function in a container of its
// own can so end the proxy, and with it everybody, instead of itself. So there is a total, and
// beside it what the machine and the proxy's control groups have left at this moment must suffice,
// with headroom for the proxy's own needs. What does not fit is refused; the caller gets
// CUDA_ERROR_OUT_OF_MEMORY.
//
// Plain values in, a decision out; proxy/memory/host_budget.h counts and asks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tube::policies {

struct HostBudget {
  uint64_t total_bytes = UINT64_MAX;
  uint64_t headroom_bytes = 0;
};

// A sixteenth of the memory, 32 MiB to 2 GiB, is kept free.
constexpr HostBudget default_host_budget(uint64_t memory_bytes) {
  const uint64_t headroom = std::clamp(memory_bytes / 16, uint64_t{32} << 20, uint64_t{2} << 30);
  return {memory_bytes - std::min(memory_bytes, headroom), headroom};
}

enum class HostVerdict : uint8_t { kFits, kOverTotal, kNoRoom };

// `available_bytes`: what machine and control groups have left; UINT64_MAX where nobody looked.
constexpr HostVerdict admit_host_bytes(const HostBudget& budget, uint64_t bytes,
                                       uint64_t held_bytes, uint64_t available_bytes) {
  if (held_bytes > budget.total_bytes || bytes > budget.total_bytes - held_bytes)
    return HostVerdict::kOverTotal;
  if (available_bytes < budget.headroom_bytes || bytes > available_bytes - budget.headroom_bytes)
    return HostVerdict::kNoRoom;
  return HostVerdict::kFits;
}

}  // namespace tube::policies

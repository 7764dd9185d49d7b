// When an allocation may begin as a promise, with nothing behind its address until its function's
// next work on the GPU (docs/memory.md).
//
// A promise is kept by counting it against what the driver has free. What the count cannot see
// (other processes on the GPU, code, stacks, fragments) is met by headroom: where less than that
// would be left, the memory is made at once, so the driver's own answer is that of the call.
//
// Plain values in, decisions out; who promised what is in proxy/gpu/promised_memory.h.
#pragma once

#include <cstdint>

namespace tube::policies {

// Of each GPU, left free by promises.
constexpr uint64_t promise_headroom(uint64_t gpu_bytes) { return gpu_bytes / 32; }

// `room_bytes`: what is free and promised to nobody, with the request taken off already; negative
// when more was promised than there is.
constexpr bool may_promise(int64_t room_bytes, uint64_t gpu_bytes) {
  return room_bytes >= 0 && static_cast<uint64_t>(room_bytes) >= promise_headroom(gpu_bytes);
}

// How long an answer of the driver's about free memory is used. What this proxy takes and gives
// meanwhile is counted.
inline constexpr uint64_t kFreeMemoryFreshNs = 10'000'000;

}  // namespace tube::policies

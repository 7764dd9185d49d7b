// Freed pinned memory that the program is likely to ask for again. Some frameworks (XLA) allocate
// and free a staging buffer for every result they fetch; kept here, that costs no message. Up to
// kMostBytes and only among blocks of one size, which are what the proxy would hand out. Any
// thread; its lock has rank 3.
#pragma once

#include <cstdint>
#include <vector>

#include "hook/memory/memory_map.h"
#include "hook/objects/stream.h"

namespace tube::hook {

// What a request takes in the proxy: requests of one size are alike.
constexpr uint64_t pinned_bytes(uint64_t bytes) {
  const uint64_t unit = bytes <= (64u << 10) ? 512 : 4096;
  return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

// The work of its own context is over, and it is no longer in the memory map. Other contexts see
// pinned memory, too: it is not given out before `others` are reached. False: it must be freed.
bool keep_pinned(const Allocation& allocation, std::vector<Mark> others);
// False: none of that size that was allocated in the context.
bool take_pinned(const Context* context, uint64_t bytes, uint64_t* address);
// All that nobody uses goes back. False: there was nothing.
bool release_kept_pinned();
// The context ended, and its memory with it.
void forget_kept_pinned(const Context* context);

}  // namespace tube::hook

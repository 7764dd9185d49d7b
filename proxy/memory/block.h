// The name of a block of device memory. The memory map (memory_map.h) alone knows what is behind
// it; everybody else keeps and passes on this value.
#pragma once

#include <cstdint>

namespace tube::proxy {

// Slot and generation: the id of a block that is gone never names a later one.
enum class BlockId : uint64_t { kNone = 0 };

// Where a block is mapped, and how much of it there is. A copy: true as long as the reader holds a
// reference on the block.
struct BlockPlace {
  uint64_t address = 0;  // 0: the memory map has not mapped it (a client's own cuMemCreate)
  uint64_t bytes = 0;    // 0: unknown, another process made it
  int device = -1;       // -1: unknown
  uint32_t window = 0;
  uint64_t gap_bytes = 0;  // before and behind it, addresses that nobody has
};

}  // namespace tube::proxy

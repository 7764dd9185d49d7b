// A piece of driver memory mapped at an address of a window (memory_map.h). Plain values.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Block {
  uint64_t address = 0;
  uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  int device = 0;
  uint32_t window = 0;
};

}  // namespace tube::proxy

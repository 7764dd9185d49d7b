// What a CUDA array is charged with (memory_budgets.h): its elements. How the driver lays them out,
// and in what it rounds up, it does not tell. Any thread; no state.
#pragma once

#include <cstdint>

namespace tube::proxy {

// CUDA_ARRAY_DESCRIPTOR or CUDA_ARRAY3D_DESCRIPTOR as plain numbers: the client's bytes may be no
// value of the enumeration.
struct ArrayShape {
  uint64_t width = 0, height = 0, depth = 0;
  uint32_t format = 0, channels = 0, flags = 0;
};
ArrayShape array_shape(const unsigned char (&untrusted_descriptor)[24]);
ArrayShape array_shape(const unsigned char (&untrusted_descriptor)[40]);

// Bytes of all elements of `levels` levels, of which an array has one; at most UINT64_MAX. 0:
// memory is mapped into it later (sparse, deferred mapping). An element of a format without a plain
// layout counts 4 bytes, one of a block-compressed format 1.
uint64_t array_bytes(const ArrayShape& shape, uint32_t levels);

}  // namespace tube::proxy

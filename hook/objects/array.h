// CUDA arrays as the hook knows them: enough to check a copy's bounds here, so that it can be
// posted.
//
// Levels of a mipmapped array and planes are arrays too, named by the proxy; they end with what
// they are a part of.
#pragma once

#include <cstdint>

#include "hook/objects/thread.h"

namespace tube::hook {

struct Array {
  Slot* slot = nullptr;
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  uint32_t element_bytes = 0;  // 0: no plain layout, only the driver can check a copy
  uint64_t parent = 0;         // id of the mipmapped array or array that it is a part of
  Kind parent_kind = Kind::kArray;

  uint64_t id() const { return slot->id; }
};

// nullptr: no live array. Any thread.
Array* find_array(const void* handle);
// Whether a copy of this region (bytes, rows, slices) surely lies in the array.
bool inside(const Array& array, const uint64_t (&origin)[3], const uint64_t (&extent)[3]);
// The arrays of a context that was reset or destroyed: their handles become invalid.
void forget_arrays(const Context* context, Retired* gone);
// A CUarray or CUmipmappedArray by its id, for calls that answer one.
void* array_handle(Kind kind, uint64_t id);

}  // namespace tube::hook

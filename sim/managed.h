// Managed memory is device memory of the simulator that never moves; this is what is remembered about it (managed.cc).
#pragma once

#include "sim/state.h"

namespace tube::sim {

// Device memory of `kind`, entered in the map. Takes the lock.
CUresult allocate_memory(Context* context, uint64_t bytes, RangeKind kind, CUdeviceptr* out);
// The allocation is gone: so is its advice. With the lock held.
void forget_managed(const Range& range);

}  // namespace tube::sim

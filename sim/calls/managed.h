// Managed memory is device memory of the simulator that never moves; this is what is remembered
// about it (managed.cc).
#pragma once

#include "sim/machine/state.h"

namespace tube::sim {

// Device memory of `kind`, entered in the map. Takes the lock.
CUresult allocate_memory(Context* context, uint64_t bytes, RangeKind kind, CUdeviceptr* out);
// Memory that advice may be given for. With the lock held.
void remember_managed(uint64_t base, uint64_t bytes);
// The allocation is gone: so is its advice. With the lock held.
void forget_managed(const Range& range);

}  // namespace tube::sim

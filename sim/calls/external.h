// External memory and semaphores: what cuMemExportToShareableHandle made, as memory of another API,
// and files that stand for semaphores.
//
// A semaphore's descriptor is a memory file named "tube-sim-semaphore", sealed against shrinking,
// whose first eight bytes are its value: a timeline is waited for until it is at least the value
// asked for; a plain one until it is 1, and then becomes 0. Nobody but tests has one.
#pragma once

#include <functional>

#include "sim/machine/state.h"

namespace tube::sim {

// The file behind an exported allocation (vmm.cc): a duplicate, its size and device. False: not
// one.
bool duplicate_exported(int fd, int* duplicate, uint64_t* bytes, Device** device);

// `place` finds room for the levels (array.cc). With the lock held when it is called.
CUresult create_mipmapped(Context* context, CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR& d,
                          unsigned levels,
                          const std::function<CUresult(uint64_t bytes, uint64_t* base)>& place);

// A range of kind kExternal is gone from the map.
void release_external(const Range& range);

}  // namespace tube::sim

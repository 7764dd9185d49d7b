// Where simulated memory comes from: host mappings, accounted against a device's memory.
//
// Blocks under 32 MiB are cut from 64 MiB chunks (best fit, neighbours merge again); larger ones
// are mappings of their own. Chunks are never unmapped, and freed pages go back to the host, so a
// kernel that still holds a stale pointer reads zeros instead of crashing the process. New memory
// reads as zero. Memory of cuMemAlloc comes from mappings of memory files, because another process
// can open it (ipc.cc).
#pragma once

#include <cstdint>

#include "sim/machine/state.h"

namespace tube::sim {

// Reserves device memory and enters it in the map. `range` says kind, device, context, requested;
// base and size are filled in. CUDA_ERROR_OUT_OF_MEMORY when the device has less left. With the
// lock held.
CUresult allocate_range(State& s, Range range, uint64_t align, uint64_t* base);

// Gives a removed range's memory back. With the lock held.
void release_range(State& s, const Range& range);

// Accounting alone (cuMemCreate). False when the device is full.
bool account(Device& device, uint64_t bytes);
void unaccount(Device& device, uint64_t bytes);

// The memory file behind an address of cuMemAlloc memory, and where in it; the fd stays the heap's.
// Either may be null. False when there is none. With the lock held.
bool backing_of(uint64_t address, int* fd, uint64_t* offset);

// Host memory for cuMemHostAlloc; page aligned, null when the host has none.
void* map_host(uint64_t bytes);

// Raises the soft limit on open files to the hard one, once. True when that may help a failed call.
bool raise_fd_limit();

}  // namespace tube::sim

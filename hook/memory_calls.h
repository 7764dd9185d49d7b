// What the memory chapters' entry points share (call_memory.cc, call_managed.cc, call_pointer.cc, call_pool.cc). Any thread, with a
// current context.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "hook/memory_map.h"

namespace tube::hook {

inline bool host_memory(MemoryKind kind) { return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered; }

// Memory of this client's pinned slot, entered in the memory map as `kind` (kPinned or kManaged).
CUresult allocate_pinned(uint64_t bytes, unsigned flags, MemoryKind kind, uint64_t* address);
// Waits for the program's streams first.
CUresult free_pinned(const Allocation& allocation);
// The same and forgets the advice (call_managed.cc).
CUresult free_managed(const Allocation& allocation);

// Pool allocations count for their pool until they are freed (call_pool.cc). `pool` may be gone.
void leave_pool(CUmemoryPool pool, uint64_t bytes);
// A pointer of cuMemPoolImportPointer goes out of sight; its work must be over (call_pool_share.cc).
CUresult close_pool_pointer(const Allocation& allocation);

}  // namespace tube::hook

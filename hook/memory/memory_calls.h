// What the memory chapters' entry points share (calls/memory.cc, calls/managed.cc,
// calls/pointer.cc, calls/pool.cc). Any thread, with a current context.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "hook/memory/memory_map.h"

namespace tube::hook {

inline bool host_memory(MemoryKind kind) {
  return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered;
}

// free_pinned() (allocator.h), and forgets the advice (calls/managed.cc).
CUresult free_managed(const Allocation& allocation);
// A module's managed variable comes into sight, and goes with its module. Advice works on it as on
// any managed memory.
void add_managed_variable(Context* context, uint64_t address, uint64_t bytes);
void remove_managed_variable(uint64_t address);

// Pool allocations count for their pool until they are freed (calls/pool.cc). `pool` may be gone.
// The answer: how many of its freed bytes may be kept (pool_cache.h).
uint64_t leave_pool(CUmemoryPool pool, uint64_t bytes);
// A pointer of cuMemPoolImportPointer goes out of sight; its work must be over
// (calls/pool_share.cc).
CUresult close_pool_pointer(const Allocation& allocation);
// Held while the proxy opens or closes memory of others and the memory map learns of it: an address
// that comes again is entered behind its end. Rank 0.
Lock& opening_memory();
// Memory that the program imported from its own pool: true when this free ends such an import, not
// the allocation.
bool free_own_import(const Allocation& allocation);

// A mapped buffer of external memory goes; its work must be over (calls/external_objects.cc).
CUresult free_external(const Allocation& allocation);

}  // namespace tube::hook

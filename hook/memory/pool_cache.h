// Freed stream-ordered memory that the program is likely to ask for again: it stays the program's,
// and the next allocation of that size in that stream is answered here, without a message. So a
// loop that allocates and frees makes no round trips.
//
// A driver's pools hold freed memory until a synchronisation, and beyond it up to the pool's
// release threshold. Here it is held for kSyncs synchronisations more, so that a loop which
// synchronises at each turn keeps its memory too, and at most kMostBytes of it beyond the
// thresholds; when the GPU's memory runs out everything goes back. Reuse is in the same stream
// only, whose order makes it safe. Any thread; the lock (rank 3) is held while frees are posted.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "hook/memory/memory_map.h"
#include "sharedmem/abi.h"

namespace tube::hook {

struct Context;
struct Stream;

// What an allocation takes in the proxy: allocations that take the same are alike.
constexpr uint64_t pool_bytes(uint64_t bytes) {
  const uint64_t unit = bytes > abi::kLargestInSlab ? abi::kBlockUnit : abi::kPieceUnit;
  return (bytes + unit - 1) & ~(unit - 1);
}

// The freed allocation, no longer in the memory map, is kept. False: it must be freed (its pool is
// shared, or too much is kept).
// `most`: what the pool may keep in all (leave_pool()); the oldest goes back for it.
bool keep_in_pool(Stream* stream, const Allocation& allocation, uint64_t most);
// Memory of `context` that was freed into `pool` in that stream. False: none of that size.
bool take_from_pool(const Stream* stream, const Context* context, CUmemoryPool pool, uint64_t bytes,
                    uint64_t* address);

// The program has synchronised: what was not taken for long goes back. One load when nothing is
// kept.
void pools_synchronised();
// Everything goes back: at once, or behind its streams' work, which is waited for, for two seconds
// at most (it may wait for this thread). False: there was nothing, or only memory whose stream
// captures and has not done the work before.
bool release_kept_memory();
// What a driver's pools would have given back of the GPU (the proxy's number), in bytes: what is
// kept beyond the thresholds and was synchronised since. One load when nothing is kept.
uint64_t kept_memory_of(uint32_t device);
// Gives back what the pool keeps beyond `keep` bytes; nullptr never names a pool.
void trim_kept_memory(CUmemoryPool pool, uint64_t keep);
// The stream is about to end.
void release_kept_of(const Stream* stream);
// The context ends, and its memory with it.
void forget_kept_of(const Context* context);

}  // namespace tube::hook

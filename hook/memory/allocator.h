// The hook's one allocator: where the program's memory comes from, device and pinned.
//
// A request is answered from what the program freed lately where that is kept (pool_cache.h,
// pinned_cache.h), or from blocks that the proxy offers (sharedmem/offers.h), with a posted record;
// else by the proxy, which is a round trip. When the proxy has none, what is kept
// goes back and the proxy is asked once more. What comes is entered in the memory map under an id
// that no other allocation has.
//
// Any thread, without a lock. Sizes are the program's, not 0. The result is the driver's:
// CUDA_ERROR_OUT_OF_MEMORY is said once in the log; a thread whose capture forbids the call gets
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "hook/memory/memory_map.h"

namespace tube::hook {

struct Context;
struct Stream;

// cuMemAlloc, in the current context.
CUresult allocate_device(uint64_t bytes, uint64_t* address);
// In stream order, from a pool of `context`'s GPU. The pool's own account is the caller's.
CUresult allocate_pooled(const Stream* stream, Context* context, CUmemoryPool pool, uint64_t bytes,
                         uint64_t* address);
// Memory of this client's pinned slot, entered as `kind` (kPinned or kManaged).
CUresult allocate_pinned(uint64_t bytes, unsigned flags, MemoryKind kind, uint64_t* address);

// Gives back what is kept, and waits until its streams have come there, for two seconds at most.
// False: nothing was kept.
bool give_kept_back();
// For calls that take GPU memory in other ways (handles, arrays, nodes of graphs): `ask` has the
// proxy's answer, and is called once more as above.
template <class Ask>
CUresult ask_for_gpu_memory(Ask ask) {
  CUresult result = ask();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && give_kept_back()) result = ask();
  return result;
}

// What a free waits for first: the work of the context that the memory belongs to, whichever is
// current. Memory of pools and graphs belongs to none, and waits for the current one's.
CUresult finish_work_on(const Allocation& allocation);
// With that wait. What is freed need not be entered any more: CUDA_ERROR_INVALID_VALUE when another
// thread freed it meanwhile.
CUresult free_device(const Allocation& allocation);
CUresult free_pinned(const Allocation& allocation);

}  // namespace tube::hook

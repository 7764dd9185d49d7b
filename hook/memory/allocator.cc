#include "hook/memory/allocator.h"

#include "base/log.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/pinned_cache.h"
#include "hook/memory/pool_cache.h"
#include "hook/memory/slab_leases.h"
#include "hook/objects/support.h"

namespace tube::hook {
namespace {

// Once: programs that cache memory (PyTorch) run into this, free some and try again.
void say_out_of_memory(const char* kind, uint64_t bytes) {
  static Once said;
  if (!said.first()) return;
  log_warn(
      "out of %s memory: %llu bytes are not to be had (CUDA_ERROR_OUT_OF_MEMORY); `tubectl ps` "
      "shows who holds how much",
      kind, static_cast<unsigned long long>(bytes));
}

// `give_back`: false when nothing was kept, so that asking again is of no use.
template <class Ask, class GiveBack>
CUresult ask_twice(const char* kind, uint64_t bytes, Ask ask, GiveBack give_back) {
  CUresult result = ask();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && give_back()) result = ask();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) say_out_of_memory(kind, bytes);
  return result;
}

// Memory that is there already: the address at once, and a record that says so.
bool take_offered(Context* context, uint64_t bytes, shared::OfferedBlock* block) {
  if (bytes <= abi::kLargestInSlab) return false;
  *block = connection().offers.take(context->device, bytes);
  if (block->number == 0) return false;
  Request<wire::tubeMemTake> r;
  r.in_context(context);
  r->offer = block->number;
  r->dptr = block->address;
  r->bytes = bytes;
  (void)r.post();  // a proxy that is gone says so at the next call
  return true;
}

// `leases`: where the piece of a slab may come from, and go back to, without asking.
CUresult ask_for_device(Context* context, uint64_t bytes, bool leases,
                        shared::OfferedBlock* block) {
  if (take_offered(context, bytes, block)) return CUDA_SUCCESS;
  if (leases && (block->address = cut_piece(context, bytes)) != 0) return CUDA_SUCCESS;
  const auto ask = [&] {
    wire::tubeMemAlloc_reply reply{};
    CUresult result = CUDA_SUCCESS;
    {
      Request<wire::tubeMemAlloc> r;
      r.in_context(context);
      r->bytes = bytes;
      r->leases = leases ? 1 : 0;
      result = r.call(&reply);
    }
    if (result == CUDA_SUCCESS && reply.leased != 0) slab_was_leased(context, reply.dptr, bytes);
    *block = connection().offers.granted(reply.offer, reply.dptr);
    return result;
  };
  return ask_twice("GPU", bytes, ask, give_kept_back);
}

CUresult ask_for_pinned(Context* context, uint64_t bytes, unsigned flags, uint64_t* address) {
  const auto ask = [&] {
    wire::tubePinnedAlloc_reply reply{};
    Request<wire::tubePinnedAlloc> r;
    r.in_context(context);
    r->bytes = pinned_bytes(bytes);
    r->flags = flags;
    const CUresult result = r.call(&reply);
    *address = reply.address;
    return result;
  };
  return ask_twice("pinned", bytes, ask, release_kept_pinned);
}

}  // namespace

bool give_kept_back() {
  const bool leases_ended = end_empty_leases();
  return release_kept_memory() || leases_ended;
}

CUresult allocate_device(uint64_t bytes, uint64_t* address) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Context* context = making_context();
  shared::OfferedBlock block;
  if (const CUresult r = ask_for_device(context, bytes, true, &block); r != CUDA_SUCCESS) return r;
  *address = block.address;
  Allocation made{block.address, bytes, next_unique(), context, MemoryKind::kDevice, 0};
  made.offer = block.number;
  made.offer_generation = block.generation;
  memory_map().insert(made);
  return CUDA_SUCCESS;
}

CUresult allocate_pooled(const Stream* stream, Context* context, CUmemoryPool pool, uint64_t bytes,
                         uint64_t* address) {
  if (!take_from_pool(stream, context, pool, bytes, address)) {
    shared::OfferedBlock block;
    if (const CUresult r = ask_for_device(context, pool_bytes(bytes), false, &block);
        r != CUDA_SUCCESS)
      return r;
    *address = block.address;
  }
  memory_map().insert(
      {*address, bytes, next_unique(), context, MemoryKind::kDevice, kFromPool, pool});
  return CUDA_SUCCESS;
}

CUresult allocate_pinned(uint64_t bytes, unsigned flags, MemoryKind kind, uint64_t* address) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Context* context = making_context();
  if (!take_pinned(context, bytes, address)) {
    if (const CUresult r = ask_for_pinned(context, bytes, flags, address); r != CUDA_SUCCESS)
      return r;
  }
  memory_map().insert({*address, bytes, next_unique(), context, kind, flags});
  return CUDA_SUCCESS;
}

CUresult finish_work_on(const Allocation& allocation) {
  const bool of_no_context =
      (allocation.flags & kFromPool) != 0 &&
      (allocation.kind == MemoryKind::kDevice || allocation.kind == MemoryKind::kOpened);
  return sync_owner(of_no_context || allocation.kind == MemoryKind::kGraph ? current_context()
                                                                           : allocation.context);
}

CUresult free_device(const Allocation& allocation) {
  const CUresult finished = finish_work_on(allocation);
  Allocation removed;
  if (!memory_map().remove(allocation.base, MemoryKind::kDevice, &removed))
    return CUDA_ERROR_INVALID_VALUE;
  if (removed.flags == kFromPool) leave_pool(removed.pool, removed.size_bytes);
  CUresult freed = CUDA_SUCCESS;
  if (!free_piece(removed.context, removed.base, removed.size_bytes, &freed)) {
    Request<wire::tubeMemFree> r;
    r.in_context(removed.context);
    r->dptr = removed.base;
    r->offer = removed.offer;
    freed = r.post();
    connection().offers.give_back(removed.offer, removed.offer_generation);
  }
  return finished != CUDA_SUCCESS ? finished : freed;
}

CUresult free_pinned(const Allocation& allocation) {
  const CUresult finished = finish_work_on(allocation);
  Allocation removed;
  if (!memory_map().remove(allocation.base, allocation.kind, &removed))
    return CUDA_ERROR_INVALID_VALUE;
  if (finished == CUDA_SUCCESS && keep_pinned(removed, marks_beside(removed.context)))
    return CUDA_SUCCESS;
  Request<wire::tubePinnedFree> r;
  r.in_context(allocation.context);
  r->address = allocation.base;
  const CUresult freed = r.post();
  return finished != CUDA_SUCCESS ? finished : freed;
}

}  // namespace tube::hook

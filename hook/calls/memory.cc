// Allocation and host memory; pointer queries are in pointer.cc. Allocating is a round trip
// unless freed memory was kept (pinned_cache.h); freeing waits for this program's own streams
// (natively cuMemFree waits for the context) and is posted; queries are answered here.
#include <cstring>

#include "base/log.h"
#include "hook/memory/graph_memory.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/memory_map.h"
#include "hook/memory/pinned_cache.h"
#include "hook/memory/pool_cache.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint64_t kPitchAlignment = 512;
constexpr unsigned kHostAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

uint64_t next_buffer_id() {
  static std::atomic<uint64_t> id{1};
  return id.fetch_add(1, std::memory_order_relaxed);
}

// Once: programs that cache memory (PyTorch) run into this, free some and try again.
void say_out_of_memory(const char* kind, uint64_t bytes) {
  static Once said;
  if (!said.first()) return;
  log_warn(
      "out of %s memory: %llu bytes are not to be had (CUDA_ERROR_OUT_OF_MEMORY); `tubectl ps` "
      "shows who holds how much",
      kind, static_cast<unsigned long long>(bytes));
}

CUresult allocate_device(uint64_t bytes, uint64_t* address) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  wire::tubeMemAlloc_reply reply{};
  const auto ask = [&] {
    Request<wire::tubeMemAlloc> r;
    r->bytes = bytes;
    return r.call(&reply);
  };
  CUresult result = ask();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && release_kept_memory()) {
    (void)sync_device_of(current_context());
    result = ask();
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) say_out_of_memory("GPU", bytes);
  if (result != CUDA_SUCCESS) return result;
  memory_map().insert(
      {reply.dptr, bytes, next_buffer_id(), current_context(), MemoryKind::kDevice, 0});
  *address = reply.dptr;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult allocate_pinned(uint64_t bytes, unsigned flags, MemoryKind kind, uint64_t* address) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (!take_pinned(current_context(), bytes, address)) {
    const auto ask = [&] {
      wire::tubePinnedAlloc_reply reply{};
      Request<wire::tubePinnedAlloc> r;
      r->bytes = pinned_bytes(bytes);
      r->flags = flags;
      const CUresult result = r.call(&reply);
      *address = reply.address;
      return result;
    };
    CUresult result = ask();
    if (result == CUDA_ERROR_OUT_OF_MEMORY && release_kept_pinned()) result = ask();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) say_out_of_memory("pinned", bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  memory_map().insert({*address, bytes, next_buffer_id(), current_context(), kind, flags});
  return CUDA_SUCCESS;
}

CUresult free_pinned(const Allocation& a) {
  const CUresult finished = sync_all_contexts();
  Allocation removed;
  if (!memory_map().remove(a.base, a.kind, &removed)) return CUDA_ERROR_INVALID_VALUE;
  if (finished == CUDA_SUCCESS && keep_pinned(removed)) return CUDA_SUCCESS;
  Request<wire::tubePinnedFree> r;
  r.in_context(a.context);
  r->address = a.base;
  const CUresult freed = r.post();
  return finished != CUDA_SUCCESS ? finished : freed;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (const CUresult r = guard(Needs::kContext); r != CUDA_SUCCESS) {
    if (r == CUDA_ERROR_NOT_INITIALIZED && dptr != nullptr) *dptr = 0;
    return r;
  }
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dptr = 0;
  if (bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult r = allocate_device(bytesize, &address);
  if (r == CUDA_SUCCESS) *dptr = address;
  return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = (WidthInBytes + kPitchAlignment - 1) & ~(kPitchAlignment - 1);
  uint64_t bytes = 0, address = 0;
  if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, static_cast<uint64_t>(Height), &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult r = allocate_device(bytes, &address); r != CUDA_SUCCESS) return r;
  *dptr = address;
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

// What frees works without a current context; in a dead one it does not.
namespace {
CUresult guard_free() {
  return current_context() == nullptr ? CUDA_SUCCESS : guard(Needs::kContext);
}
}  // namespace

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (const CUresult r = guard_free(); r != CUDA_SUCCESS) return r;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (is_graph_memory(dptr)) {
    const CUresult finished = sync_all_contexts();
    const CUresult freed = free_graph_memory(dptr);
    return finished != CUDA_SUCCESS ? finished : freed;
  }
  Allocation a;
  const bool found = memory_map().find(dptr, &a);
  if (found && a.base == dptr && a.kind == MemoryKind::kManaged && (a.flags & kVariable) == 0)
    return free_managed(a);
  if (found && a.base == dptr && a.kind == MemoryKind::kExternal) {
    const CUresult finished = sync_all_contexts();
    const CUresult freed = free_external(a);
    return finished != CUDA_SUCCESS ? finished : freed;
  }
  if (found && a.base == dptr && a.kind == MemoryKind::kOpened && a.flags == kFromPool) {
    const CUresult finished = sync_all_contexts();
    const CUresult closed = close_pool_pointer(a);
    return finished != CUDA_SUCCESS ? finished : closed;
  }
  if (found && a.base == dptr && a.flags == kFromPool && free_own_import(a))
    return sync_device_of(a.context);
  if (!found || a.base != dptr || a.kind != MemoryKind::kDevice) {
    if (found || !connection().in_device_window(dptr)) return CUDA_ERROR_INVALID_VALUE;
    a.context =
        current_context();  // stream-ordered memory may be freed by this call too; the proxy knows
    a.base = 0;
  }
  const CUresult finished = sync_device_of(a.context);
  const bool known = a.base != 0;
  if (known && !memory_map().remove(dptr, MemoryKind::kDevice, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (known && a.flags == kFromPool) leave_pool(a.pool, a.size_bytes);
  Request<wire::tubeMemFree> r;
  r.in_context(a.context);
  r->dptr = dptr;
  const CUresult freed = known ? r.post() : r.call();
  return finished != CUDA_SUCCESS ? finished : freed;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  wire::tubeMemGetInfo_reply reply{};
  CUresult result;
  {
    Request<wire::tubeMemGetInfo> r;
    result = r.call(&reply);
  }
  if (result != CUDA_SUCCESS) return result;
  if (free != nullptr) *free = reply.free;
  if (total != nullptr) *total = reply.total;
  return CUDA_SUCCESS;
}

// ---- host memory ----

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  if (pp == nullptr || (Flags & ~kHostAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytesize == 0) {
    *pp = nullptr;
    return CUDA_SUCCESS;
  }
  uint64_t address = 0;
  const CUresult r = allocate_pinned(bytesize, Flags, MemoryKind::kPinned, &address);
  if (r == CUDA_SUCCESS) *pp = reinterpret_cast<void*>(address);
  return r;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return hook::cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void* p) {
  if (const CUresult r = guard_free(); r != CUDA_SUCCESS) return r;
  if (p == nullptr) return CUDA_SUCCESS;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  const auto address = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (!memory_map().find(address, &a) || a.base != address || a.kind != MemoryKind::kPinned)
    return CUDA_ERROR_INVALID_VALUE;
  return free_pinned(a);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  Allocation a;
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (!memory_map().find(address, &a) || !host_memory(a.kind)) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = address;  // pinned and registered memory have one address for everybody
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  Allocation a;
  if (pFlags == nullptr || !memory_map().find(reinterpret_cast<uint64_t>(p), &a) ||
      (!host_memory(a.kind) && a.kind != MemoryKind::kManaged)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pFlags = (a.flags & ~kVariable) | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  if (granularity == nullptr || prop == nullptr || static_cast<unsigned>(option) > 1)
    return CUDA_ERROR_INVALID_VALUE;
  const Process& p = process();
  auto device = static_cast<uint32_t>(prop->location.id);
  // Asked for a place that is none, or for host memory (NCCL, before it tries cuMemCreate), the
  // driver answers all the same.
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device >= p.device_count) device = 0;
  const info::DeviceInfo& d = connection().device_infos[p.devices[device]];
  *granularity = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? d.allocation_granularity
                                                            : d.allocation_granularity_recommended;
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

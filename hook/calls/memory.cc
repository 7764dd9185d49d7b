// Allocation and host memory; pointer queries are in pointer.cc. Allocating is a round trip
// unless freed memory was kept (pinned_cache.h); freeing waits for the streams of the
// context that the memory belongs to, as natively, and is posted; queries are answered here.
#include "hook/memory/allocator.h"
#include "hook/memory/graph_memory.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/memory_map.h"
#include "hook/memory/pool_cache.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint64_t kPitchAlignment = 512;
constexpr unsigned kHostAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
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
  if (pitch < WidthInBytes) return CUDA_ERROR_INVALID_VALUE;
  *pPitch = pitch;  // when there is no memory, too
  uint64_t bytes = 0, address = 0;
  if (__builtin_mul_overflow(pitch, static_cast<uint64_t>(Height), &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult r = allocate_device(bytes, &address); r != CUDA_SUCCESS) return r;
  *dptr = address;
  return CUDA_SUCCESS;
}

// Calls that free work without a current context, but not in a dead one.
namespace {
CUresult guard_free() {
  return current_context() == nullptr ? CUDA_SUCCESS : guard(Needs::kContext);
}

// Frees also when a stream has failed; its error is the answer then.
template <class Free>
CUresult behind_work_on(const Allocation& allocation, Free free) {
  const CUresult finished = finish_work_on(allocation);
  const CUresult freed = free();
  return finished != CUDA_SUCCESS ? finished : freed;
}
}  // namespace

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (const CUresult r = guard_free(); r != CUDA_SUCCESS) return r;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Allocation a;
  if (!memory_map().find(dptr, &a) || a.base != dptr) return CUDA_ERROR_INVALID_VALUE;
  switch (a.kind) {
    case MemoryKind::kDevice:
      if (a.flags == kFromPool && free_own_import(a)) return finish_work_on(a);
      return free_device(a);
    case MemoryKind::kManaged:
      return (a.flags & kVariable) != 0 ? CUDA_ERROR_INVALID_VALUE : free_managed(a);
    case MemoryKind::kGraph: return behind_work_on(a, [&] { return free_graph_memory(dptr); });
    case MemoryKind::kExternal: return behind_work_on(a, [&] { return free_external(a); });
    case MemoryKind::kOpened:
      if (a.flags != kFromPool) return CUDA_ERROR_INVALID_VALUE;  // cuIpcCloseMemHandle's
      return behind_work_on(a, [&] { return close_pool_pointer(a); });
    case MemoryKind::kPinned:
    case MemoryKind::kMapped:
    case MemoryKind::kGlobal:
    case MemoryKind::kRegistered: break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  wire::tubeMemGetInfo_reply reply{};
  const uint64_t kept = kept_memory_of(current_context()->device);
  CUresult result;
  {
    Request<wire::tubeMemGetInfo> r;
    r->kept = kept;
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

// Memory pools and stream-ordered allocation.
//
// The address exists as soon as cuMemAllocAsync returns, which is stricter memory accounting than a
// real pool needs and never wrong. cuMemFreeAsync marks the range; it goes back when the stream
// gets there. Nothing is cached for reuse, so the release threshold is only remembered.
#include <algorithm>
#include <unordered_map>

#include "sim/machine/heap.h"
#include "sim/machine/pool_memory.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

CUresult alloc_async(Context* context, CUdeviceptr* dptr, size_t bytes, Pool* pool,
                     bool default_pool, CUstream handle) {
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (default_pool) pool = stream->context->device->current_pool;
  else if (live<Pool>(s, pool, Kind::kPool) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  if (!stream->capture)
    if (CUresult r = check_capture_unsafe(s)) return r;
  if (CUresult r = pool_allocate(s, pool, bytes, dptr)) return r;
  if (!stream->capture) return CUDA_SUCCESS;
  AllocWork work;
  work.params.poolProps = pool->props;
  work.params.bytesize = bytes;
  work.params.dptr = *dptr;
  work.memory = graph_memory(*dptr);
  return issue(lock, stream, std::move(work));
}

CUresult free_async(Context* context, CUdeviceptr dptr, CUstream handle) {
  State& s = state();
  Lock lock(s.mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (dptr == 0) return CUDA_SUCCESS;
  auto range = s.map.find(dptr);
  if (!range || range->base != dptr || range->freeing) return CUDA_ERROR_INVALID_VALUE;
  FreeWork work;
  work.address = dptr;
  GraphAllocation* of_graph = graph_allocation(dptr);
  if (stream->capture) {
    if (of_graph == nullptr || of_graph->graph_frees) return CUDA_ERROR_INVALID_VALUE;
    of_graph->graph_frees = true;
    return issue(lock, stream, work);
  }
  if (CUresult r = check_capture_unsafe(s)) return r;
  if (of_graph != nullptr) {  // the address stays the node's
    if (!of_graph->allocated) return CUDA_ERROR_INVALID_VALUE;
    of_graph->allocated = false;
    return issue(lock, stream, EmptyWork{});
  }
  if (range->kind != RangeKind::kPool && range->kind != RangeKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  work.return_to_pool = true;
  s.map.update(dptr, [](Range& r) { r.freeing = true; });
  return issue(lock, stream, work);
}

CUresult pool_of(CUmemoryPool handle, Pool** pool) {
  *pool = live<Pool>(state(), handle, Kind::kPool);
  return *pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  zero(dptr);
  SIM_ENTER_STREAM(context, hStream);
  return alloc_async(context, dptr, bytesize, nullptr, true, hStream);
}
SIM_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                         CUstream hStream) {
  zero(dptr);
  SIM_ENTER_STREAM(context, hStream);
  return alloc_async(context, dptr, bytesize, reinterpret_cast<Pool*>(pool), false, hStream);
}
SIM_API CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return free_async(context, dptr, hStream);
}

SIM_API CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  SIM_ENTER(kInit);
  if (pool == nullptr || poolProps == nullptr ||
      poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  Device* device = device_at(poolProps->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned char byte : poolProps->reserved)
    if (byte != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(poolProps->handleTypes);
  if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC}) !=
      0)
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  auto* p = new Pool;
  p->device = device;
  p->props = *poolProps;
  p->readable = p->writable = 1ull << device->ordinal;
  s.live.emplace(p, Kind::kPool);
  *pool = reinterpret_cast<CUmemoryPool>(p);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (p->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_capture_unsafe(s)) return r;
  // Allocations outlive their pool; the struct stays until the last has gone.
  s.live.erase(p);
  if (p->device->current_pool == p) p->device->current_pool = p->device->default_pool;
  if (p->used == 0) delete p;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (CUresult r = check_capture_unsafe(state())) return r;
  shrink_pool(p, minBytesToKeep);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      p->reuse_event = *static_cast<int*>(value);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      p->reuse_opportunistic = *static_cast<int*>(value);
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      p->reuse_internal = *static_cast<int*>(value);
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      p->release_threshold = *static_cast<cuuint64_t*>(value);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      p->reserved_high = p->reserved;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      p->used_high = p->used;
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* wide = static_cast<cuuint64_t*>(value);
  auto* flag = static_cast<int*>(value);
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: *flag = p->reuse_event; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: *flag = p->reuse_opportunistic; break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *flag = p->reuse_internal; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *wide = p->release_threshold; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *wide = p->reserved; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *wide = p->reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *wide = p->used; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *wide = p->used_high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (map == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (device_at(map[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t bit = 1ull << map[i].location.id;
    if (map[i].location.id == p->device->ordinal &&
        map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_DEVICE;
    p->readable =
        map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE ? p->readable | bit : p->readable & ~bit;
    p->writable =
        map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? p->writable | bit : p->writable & ~bit;
  }
  s.map.for_each([p](Range& r) {
    if (r.pool != p) return;
    r.readable = p->readable;
    r.writable = p->writable;
  });
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                    CUmemLocation* location) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(memPool, &p)) return r;
  if (flags == nullptr || location == nullptr || device_at(location->id) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t bit = 1ull << location->id;
  *flags = (p->writable & bit) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : (p->readable & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

static CUresult get_pool(CUmemoryPool* out, CUdevice dev, bool is_default) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return is_default ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  *out = reinterpret_cast<CUmemoryPool>(is_default ? device->default_pool : device->current_pool);
  return CUDA_SUCCESS;
}

static CUresult set_pool(CUdevice dev, CUmemoryPool pool) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (p->device != device) return CUDA_ERROR_INVALID_VALUE;
  device->current_pool = p;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  SIM_ENTER(kInit);
  return get_pool(pool_out, dev, true);
}
SIM_API CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  SIM_ENTER(kInit);
  return get_pool(pool, dev, false);
}
SIM_API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  SIM_ENTER(kInit);
  return set_pool(dev, pool);
}

static CUresult check_location(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      location->type == CU_MEM_LOCATION_TYPE_INVALID)
    return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (device_at(location->id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                        CUmemAllocationType type) {
  SIM_ENTER(kInit);
  if (CUresult r = check_location(location, type)) return r;
  return get_pool(pool_out, location->id, true);
}
SIM_API CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                 CUmemAllocationType type) {
  SIM_ENTER(kInit);
  if (CUresult r = check_location(location, type)) return r;
  return get_pool(pool, location->id, false);
}
SIM_API CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                 CUmemoryPool pool) {
  SIM_ENTER(kInit);
  if (CUresult r = check_location(location, type)) return r;
  return set_pool(location->id, pool);
}

// Pool memory is this process's own and cannot be shared: only the checks are the driver's.
static CUresult check_handle_type(CUmemAllocationHandleType type, unsigned long long flags) {
  return flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                                  CUmemAllocationHandleType handleType,
                                                  unsigned long long flags) {
  SIM_ENTER(kInit);
  Lock lock(state().mutex);
  Pool* p = nullptr;
  if (CUresult r = pool_of(pool, &p)) return r;
  if (handle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_handle_type(handleType, flags)) return r;
  return p->props.handleTypes == handleType ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void*,
                                                    CUmemAllocationHandleType handleType,
                                                    unsigned long long flags) {
  SIM_ENTER(kInit);
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_handle_type(handleType, flags)) return r;
  return CUDA_ERROR_UNKNOWN;  // no descriptor is a pool's
}
SIM_API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  SIM_ENTER(kContext);
  auto range = state().map.find(ptr);
  if (shareData_out == nullptr || !range || range->kind != RangeKind::kPool || range->base != ptr)
    return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  const bool shareable = live<Pool>(state(), range->pool, Kind::kPool) != nullptr &&
                         range->pool->props.handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  return shareable ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool,
                                        CUmemPoolPtrExportData*) {
  zero(ptr_out);
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}

// Stream-ordered allocation, emulated: the driver's pools would hand out addresses outside the
// windows. An allocation is ready at once; a free happens when the stream gets there, or the memory
// waits for the next allocation (pool_cache.h). Pools are names with attributes, and count what the
// program has from them; sharing them is in pool_share.cc.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "hook/memory/allocator.h"
#include "hook/memory/graph_memory.h"
#include "hook/memory/memory_calls.h"
#include "hook/memory/memory_map.h"
#include "hook/memory/pool_cache.h"
#include "hook/memory/slab_leases.h"
#include "hook/objects/pool.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint64_t kReservedUnit = 32u << 20;  // the driver's pools grow by that much
// What a pool holds at most beside twice of what the program ever had from it at once. Memory that
// was freed serves again in its own stream and size only, so once would be too little; a driver's
// pool grows hardly beyond that.
constexpr uint64_t kKeptBeyond = 64u << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // of a pool: sizes near them cannot wrap

struct Pools {
  Lock lock;  // rank 2
  Pool* defaults[info::kMaxDevices] = {};
  Pool* current[info::kMaxDevices] = {};
};
Pools& pools() {
  static Pools* p = new Pools;
  return *p;
}

uint64_t whole_units(uint64_t bytes) {
  return (bytes + kReservedUnit - 1) / kReservedUnit * kReservedUnit;
}

// Bytes to be taken from the pool; false when it may not grow that far.
bool ask_pool(Pool* p, uint64_t bytes) {
  Locked locked(pools().lock);
  const uint64_t most = p->max_bytes != 0 ? std::min(p->max_bytes, kMostBytes) : kMostBytes;
  if (bytes > most - p->used - p->asked_for) return false;
  p->asked_for += bytes;
  return true;
}

// What was asked for is there, or was refused, which leaves no trace in the pool's figures.
void enter_pool(Pool* p, uint64_t bytes, bool there) {
  Locked locked(pools().lock);
  p->asked_for -= bytes;
  if (!there) return;
  p->used += bytes;
  p->used_high = std::max(p->used_high, p->used);
  p->taken += pool_bytes(bytes);
  p->taken_high = std::max(p->taken_high, p->taken);
  p->reserved = std::max(p->reserved, whole_units(p->used));
  p->reserved_high = std::max(p->reserved_high, p->reserved);
}

// Gives unused memory back, down to `keep` bytes. Lock held.
void shrink(Pool* p, uint64_t keep) {
  p->reserved = std::max(whole_units(p->used), std::min(p->reserved, keep));
}

}  // namespace

Pool* find_pool(CUmemoryPool handle) {
  Slot* slot = objects().find(Kind::kMemPool, handle);
  return slot == nullptr ? nullptr : static_cast<Pool*>(slot->object);
}

CUmemoryPool handle_of(const Pool* p) {
  return static_cast<CUmemoryPool>(objects().handle_of(p->slot));
}

uint64_t leave_pool(CUmemoryPool handle, uint64_t bytes) {
  Pool* p = find_pool(handle);
  if (p == nullptr) return 0;
  Locked locked(pools().lock);
  p->used -= std::min(p->used, bytes);
  p->taken -= std::min(p->taken, pool_bytes(bytes));
  shrink(p, p->release_threshold);
  return 2 * p->taken_high + kKeptBeyond - p->taken;
}

Pool* make_pool(uint32_t device) {
  Slot* slot = objects().allocate(Kind::kMemPool);
  if (slot == nullptr) return nullptr;
  auto* p = static_cast<Pool*>(slot->object);
  if (p == nullptr) p = new (std::nothrow) Pool;
  if (p == nullptr) return nullptr;
  slot->object = p;
  *p = Pool{};
  p->slot = slot;
  p->visible_device = device;
  p->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  objects().publish(slot);
  return p;
}

namespace {

bool valid_device(CUdevice dev) {
  return dev >= 0 && static_cast<uint32_t>(dev) < process().device_count;
}

bool reaches(CUdevice dev, const Pool* pool) {
  const Process& p = process();
  return connection()
             .device_infos[p.devices[dev]]
             .can_access_peer[p.devices[pool->visible_device]] != 0;
}

Pool* default_pool(CUdevice dev) {
  Locked locked(pools().lock);
  Pool*& p = pools().defaults[dev];
  if (p == nullptr) p = make_pool(static_cast<uint32_t>(dev));
  if (pools().current[dev] == nullptr) pools().current[dev] = p;
  return p;
}

Pool* current_pool(uint32_t device) {
  if (default_pool(static_cast<CUdevice>(device)) == nullptr) return nullptr;
  Locked locked(pools().lock);
  return pools().current[device];
}

// `named` nullptr: from the current pool of the stream's device.
CUresult allocate(CUdeviceptr* dptr, size_t bytes, CUstream hStream, const CUmemoryPool* named) {
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  Pool* pool = named != nullptr ? find_pool(*named) : nullptr;
  if (named != nullptr && (pool == nullptr || pool->imported)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  const uint32_t device = pool == nullptr ? stream->context->visible_device : pool->visible_device;
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  if (capturing(stream)) return capture_allocation(stream, process().devices[device], bytes, dptr);
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Context* context = unending_context(device);
  if (pool == nullptr) pool = current_pool(device);
  if (context == nullptr || pool == nullptr || !ask_pool(pool, bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = 0;
  const CUresult result = allocate_pooled(stream, context, handle_of(pool), bytes, &address);
  enter_pool(pool, bytes, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) *dptr = address;
  return result;
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, hStream, nullptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate(dptr, bytesize, hStream, &pool);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  if (capturing(stream)) return free_graph_memory(stream, dptr);
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (is_graph_memory(dptr)) return free_graph_memory(stream, dptr);
  Allocation a;
  const bool pooled = memory_map().find(dptr, &a) && a.base == dptr && a.flags == kFromPool;
  if (pooled && free_own_import(a)) return CUDA_SUCCESS;
  if (pooled && a.kind == MemoryKind::kOpened) {
    const CUresult finished =
        sync_stream(stream);  // its owner frees it; here it only goes out of sight
    const CUresult closed = close_pool_pointer(a);
    return finished != CUDA_SUCCESS ? finished : closed;
  }
  if (!memory_map().remove(dptr, MemoryKind::kDevice, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (a.flags == kFromPool) {
    const uint64_t may_keep = leave_pool(a.pool, a.size_bytes);
    if (keep_in_pool(stream, a, may_keep)) return CUDA_SUCCESS;
  }
  end_lease_of(dptr);  // when its place is free again, the proxy knows
  Request<wire::tubeMemFreeAsync> r(stream);
  r->stream = stream->id;
  r->dptr = dptr;
  return r.post();
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const Pool* p = default_pool(dev);
  if (p == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pool_out = handle_of(p);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  if (pool == nullptr || !valid_device(dev)) return CUDA_ERROR_INVALID_VALUE;
  const Pool* p = current_pool(static_cast<uint32_t>(dev));
  if (p == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pool = handle_of(p);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Pool* p = find_pool(pool);
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_VALUE;
  if (p == nullptr || p->visible_device != static_cast<uint32_t>(dev))
    return CUDA_ERROR_INVALID_VALUE;
  Locked locked(pools().lock);
  pools().current[dev] = p;
  return CUDA_SUCCESS;
}

static CUresult check_props(const CUmemPoolProps& props) {
  if (props.location.type == CU_MEM_LOCATION_TYPE_HOST ||
      props.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (props.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !valid_device(props.location.id))
    return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(props.handleTypes);
  if ((types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC}) !=
      0)
    return CUDA_ERROR_INVALID_VALUE;
  for (const unsigned char byte : props.reserved) {
    if (byte != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (pool == nullptr || poolProps == nullptr ||
      poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_props(*poolProps); r != CUDA_SUCCESS) return r;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Pool* p = make_pool(static_cast<uint32_t>(poolProps->location.id));
  if (p == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  p->shareable = (static_cast<unsigned>(poolProps->handleTypes) &
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  p->max_bytes = poolProps->maxSize;
  *pool = handle_of(p);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  Pool* p = find_pool(pool);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  trim_kept_memory(pool, 0);
  Locked locked(pools().lock);
  if (pools().defaults[p->visible_device] == p) return CUDA_ERROR_INVALID_VALUE;
  if (pools().current[p->visible_device] == p)
    pools().current[p->visible_device] = pools().defaults[p->visible_device];
  return objects().remove(p->slot) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  Pool* p = find_pool(pool);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  trim_kept_memory(pool, minBytesToKeep);
  Locked locked(pools().lock);
  shrink(p, minBytesToKeep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Pool* p = find_pool(pool);
  if (p == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&p->release_threshold, value, 8);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&p->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value, 4);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      uint64_t high = 0;
      std::memcpy(&high, value, sizeof high);
      if (high != 0) return CUDA_ERROR_INVALID_VALUE;  // it can only be set back
      Locked locked(pools().lock);
      if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) p->used_high = p->used;
      else p->reserved_high = p->reserved;
      return CUDA_SUCCESS;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const Pool* p = find_pool(pool);
  if (p == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(value, &p->release_threshold, 8);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &p->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], 4);
      return CUDA_SUCCESS;
    default: break;
  }
  Locked locked(pools().lock);
  switch (attr) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      std::memcpy(value, &p->reserved, 8);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      std::memcpy(value, &p->reserved_high, 8);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: std::memcpy(value, &p->used, 8); return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: std::memcpy(value, &p->used_high, 8); return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// All of the proxy's GPUs reach the memory as far as the hardware lets them; what was asked for is
// remembered.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  Pool* p = find_pool(pool);
  if (p == nullptr || (map == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].flags == 2 ||
        static_cast<unsigned>(map[i].flags) > 3)
      return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(map[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
    const bool own = static_cast<uint32_t>(map[i].location.id) == p->visible_device;
    if (own && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_DEVICE;
    if (!own && !reaches(map[i].location.id, p)) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (size_t i = 0; i < count; ++i) p->access[map[i].location.id] = map[i].flags;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  const Pool* p = find_pool(memPool);
  if (p == nullptr || flags == nullptr || location == nullptr || !valid_device(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = static_cast<CUmemAccess_flags>(p->access[location->id]);
  return CUDA_SUCCESS;
}

static CUresult device_of(const CUmemLocation* location, CUmemAllocationType type,
                          CUdevice* device) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
      location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !valid_device(location->id))
    return CUDA_ERROR_INVALID_VALUE;
  *device = location->id;
  return CUDA_SUCCESS;
}
CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult r = device_of(location, type, &device);
  return r != CUDA_SUCCESS ? r : hook::cuDeviceGetDefaultMemPool(pool_out, device);
}
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult r = device_of(location, type, &device);
  return r != CUDA_SUCCESS ? r : hook::cuDeviceGetMemPool(pool, device);
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUdevice device = 0;
  const CUresult r = device_of(location, type, &device);
  return r != CUDA_SUCCESS ? r : hook::cuDeviceSetMemPool(device, pool);
}

}  // namespace tube::hook

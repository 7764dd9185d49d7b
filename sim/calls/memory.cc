// cuMemAlloc and its family, pinned and managed host memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "sim/calls/managed.h"
#include "sim/machine/attributes.h"
#include "sim/machine/heap.h"
#include "sim/machine/pool_memory.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
CUresult allocate_memory(Context* context, uint64_t bytes, RangeKind kind, CUdeviceptr* out) {
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  Range range;
  range.requested = bytes;
  range.kind = kind;
  range.device = context->device->ordinal;
  range.context = base_context(context);
  uint64_t base = 0;
  if (CUresult r = allocate_range(s, range, kAllocAlign, &base)) return r;
  *out = base;
  return CUDA_SUCCESS;
}

namespace {

// cuMemFree waits for the whole context that the memory belongs to, as the real driver does; memory
// of none (pools') for the current one's.
CUresult free_memory(Context* context, CUdeviceptr dptr) {
  if (dptr == 0) return CUDA_SUCCESS;
  State& s = state();
  Lock lock(s.mutex);
  auto range = s.map.find(dptr);
  if (!range || range->base != dptr || range->freeing) return CUDA_ERROR_INVALID_VALUE;
  if ((range->kind != RangeKind::kDevice && range->kind != RangeKind::kManaged &&
       range->kind != RangeKind::kPool && range->kind != RangeKind::kExternal) ||
      range->of_module)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_capture_unsafe(s)) return r;
  Context* owner = range->context != nullptr ? range->context : context;
  if (owner != nullptr)
    if (CUresult r = quiesce(lock, owner)) return r;
  if (GraphAllocation* of_graph = graph_allocation(dptr);
      of_graph != nullptr) {  // the address stays the node's
    if (!of_graph->allocated) return CUDA_ERROR_INVALID_VALUE;
    of_graph->allocated = false;
    return CUDA_SUCCESS;
  }
  if (range->kind == RangeKind::kPool) {
    lock.unlock();
    return finish_pool_free(dptr);
  }
  auto gone = s.map.remove(dptr);
  if (!gone) return CUDA_ERROR_INVALID_VALUE;  // two threads freed it
  if (gone->kind == RangeKind::kManaged) forget_managed(*gone);
  release_range(s, *gone);
  return CUDA_SUCCESS;
}

constexpr unsigned kHostAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult host_alloc(Context* context, void** pp, size_t bytes, unsigned flags) {
  if (pp == nullptr || (flags & ~kHostAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *pp = nullptr;
    return CUDA_SUCCESS;
  }
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  void* p = map_host(bytes);
  if (p == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.base = reinterpret_cast<uint64_t>(p);
  range.size = (bytes + 4095) / 4096 * 4096;
  range.requested = bytes;
  range.kind = RangeKind::kHost;
  range.device = context->device->ordinal;
  range.context = base_context(context);
  range.id = s.new_id();
  range.host_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  s.map.insert(range);
  *pp = p;
  return CUDA_SUCCESS;
}

// The real driver pins every page, for writing unless told otherwise.
bool pages_accessible(uint64_t base, uint64_t bytes, bool write) {
  FILE* maps = std::fopen("/proc/thread-self/maps", "re");
  if (maps == nullptr) return false;
  uint64_t at = base, from = 0, to = 0;
  char permissions[8] = {}, line[4352];
  while (at < base + bytes && std::fgets(line, sizeof line, maps) != nullptr) {
    if (std::sscanf(line, "%lx-%lx %7s", &from, &to, permissions) != 3 || to <= at) continue;
    if (from > at || permissions[0] != 'r' || (write && permissions[1] != 'w')) break;
    at = to;
  }
  std::fclose(maps);
  return at >= base + bytes;
}

CUresult host_register(Context* context, void* p, size_t bytes, unsigned flags) {
  if (p == nullptr || bytes == 0 || (flags & ~kRegisterFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t base = reinterpret_cast<uint64_t>(p);
  int read_only = 0;
  device_attribute(*context->device, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
                   &read_only);
  // Before the lock: it takes a millisecond where the process has thousands of mappings.
  const bool accessible =
      pages_accessible(base, bytes, (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0);
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  if ((flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 && read_only == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
    return CUDA_ERROR_INVALID_VALUE;  // there is no such memory here
  if (base + bytes < base) return CUDA_ERROR_INVALID_VALUE;
  if (auto there = s.map.intersecting(base, bytes); !there.empty())
    return there.back().kind == RangeKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                       : CUDA_ERROR_INVALID_VALUE;
  if (!accessible) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  range.base = base;
  range.size = range.requested = bytes;
  range.kind = RangeKind::kRegistered;
  range.device = context->device->ordinal;
  range.context = base_context(context);
  range.id = s.new_id();
  range.host_flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
  return s.map.insert(range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

// A host range that `p` lies in, of one of the two host kinds.
std::optional<Range> host_range(const void* p) {
  auto range = state().map.find(reinterpret_cast<uint64_t>(p));
  if (!range || !range->is_host()) return std::nullopt;
  return range;
}

CUresult alloc_pitch(Context* context, CUdeviceptr* dptr, size_t* pitch, size_t width,
                     size_t height, unsigned element) {
  if (dptr == nullptr || pitch == nullptr || width == 0 || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = (width + 511) / 512 * 512;
  if (row < width) return CUDA_ERROR_INVALID_VALUE;
  *pitch = row;
  if (height > UINT64_MAX / row) return CUDA_ERROR_OUT_OF_MEMORY;
  return allocate_memory(context, row * height, RangeKind::kDevice, dptr);
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  zero(free, total);
  SIM_ENTER_CONTEXT(context);
  Device& d = *context->device;
  if (total != nullptr) *total = d.spec.memory_bytes;
  if (free != nullptr) *free = d.spec.memory_bytes - d.used_bytes.load();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  zero(dptr);
  SIM_ENTER_CONTEXT(context);
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_memory(context, bytesize, RangeKind::kDevice, dptr);
}

SIM_API CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                    size_t Height, unsigned int ElementSizeBytes) {
  zero(dptr, pPitch);
  SIM_ENTER_CONTEXT(context);
  return alloc_pitch(context, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
}

SIM_API CUresult cuMemFree_v2(CUdeviceptr dptr) {
  Context* context = nullptr;
  if (CUresult entered = enter_to_free(__func__, &context)) return entered;
  return free_memory(context, dptr);
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  zero(pbase, psize);
  SIM_ENTER_CONTEXT(context);
  (void)context;
  auto range = state().map.find(dptr);
  if (!range || (range->kind == RangeKind::kMapped && range->readable == 0))
    return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range->base;
  if (psize != nullptr) *psize = range->requested;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  zero(pp);
  SIM_ENTER_CONTEXT(context);
  return host_alloc(context, pp, bytesize, Flags);
}

SIM_API CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  zero(pp);
  SIM_ENTER_CONTEXT(context);
  return host_alloc(context, pp, bytesize, 0);
}

SIM_API CUresult cuMemFreeHost(void* p) {
  Context* context = nullptr;
  if (CUresult entered = enter_to_free(__func__, &context)) return entered;
  if (p == nullptr) return CUDA_SUCCESS;
  State& s = state();
  Lock lock(s.mutex);
  if (CUresult r = check_capture_unsafe(s)) return r;
  auto range = s.map.find(reinterpret_cast<uint64_t>(p));
  if (!range || range->base != reinterpret_cast<uint64_t>(p) || range->kind != RangeKind::kHost)
    return CUDA_ERROR_INVALID_VALUE;
  Context* owner = range->context != nullptr ? range->context : context;
  if (owner != nullptr)
    if (CUresult r = quiesce(lock, owner)) return r;
  auto gone = s.map.remove(range->base);
  if (!gone) return CUDA_ERROR_INVALID_VALUE;
  release_range(s, *gone);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  SIM_ENTER_CONTEXT(context);
  return host_register(context, p, bytesize, Flags);
}

SIM_API CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  SIM_ENTER_CONTEXT(context);
  return host_register(context, p, bytesize, Flags);
}

SIM_API CUresult cuMemHostUnregister(void* p) {
  SIM_ENTER_HANDLE(context);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  auto range = s.map.find(reinterpret_cast<uint64_t>(p));
  if (!range) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (range->kind != RangeKind::kRegistered || range->base != reinterpret_cast<uint64_t>(p))
    return CUDA_ERROR_INVALID_VALUE;
  // Work that still uses the pages must be through before the program may unmap them.
  if (CUresult r = quiesce(lock, range->context != nullptr ? range->context : context)) return r;
  s.map.remove(range->base);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  zero(pdptr);
  SIM_ENTER_CONTEXT(context);
  (void)context;
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!host_range(p)) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  SIM_ENTER_CONTEXT(context);
  (void)context;
  auto range = state().map.find(reinterpret_cast<uint64_t>(p));
  if (pFlags == nullptr || !range || (!range->is_host() && range->kind != RangeKind::kManaged))
    return CUDA_ERROR_INVALID_VALUE;
  *pFlags = range->host_flags;
  return CUDA_SUCCESS;
}

// Allocation, host memory and pointer queries. Allocating is a round trip; freeing waits for this program's own streams
// (natively cuMemFree waits for the context) and is posted; queries are answered here.
#include <cstring>

#include "base/log.h"
#include "hook/graph_memory.h"
#include "hook/memory_map.h"
#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint64_t kPitchAlignment = 512;
constexpr unsigned kHostAllocFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

bool host_memory(MemoryKind kind) { return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered; }

uint64_t next_buffer_id() {
  static std::atomic<uint64_t> id{1};
  return id.fetch_add(1, std::memory_order_relaxed);
}

// Once: programs that cache memory (PyTorch) run into this, free some and try again.
void say_out_of_memory(const char* kind, uint64_t bytes) {
  static Once said;
  if (!said.first()) return;
  log_warn("out of %s memory: %llu bytes are not to be had (CUDA_ERROR_OUT_OF_MEMORY); `tubectl ps` shows who holds how much", kind,
           static_cast<unsigned long long>(bytes));
}

CUresult allocate_device(uint64_t bytes, uint64_t* address) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  wire::tubeMemAlloc_reply reply{};
  CUresult result;
  {
    Request<wire::tubeMemAlloc> r;
    r->bytes = bytes;
    result = r.call(&reply);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) say_out_of_memory("GPU", bytes);
  if (result != CUDA_SUCCESS) return result;
  memory_map().insert({reply.dptr, bytes, next_buffer_id(), current_context(), MemoryKind::kDevice, 0});
  *address = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult allocate_pinned(uint64_t bytes, unsigned flags, uint64_t* address) {
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  wire::tubePinnedAlloc_reply reply{};
  CUresult result;
  {
    Request<wire::tubePinnedAlloc> r;
    r->bytes = bytes;
    r->flags = flags;
    result = r.call(&reply);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) say_out_of_memory("pinned", bytes);
  if (result != CUDA_SUCCESS) return result;
  memory_map().insert({reply.address, bytes, next_buffer_id(), current_context(), MemoryKind::kPinned, flags});
  *address = reply.address;
  return CUDA_SUCCESS;
}

// What a pointer is when no allocation of ours holds it: mapped by the VMM calls or a pool, if it lies in the window.
bool find_allocation(uint64_t address, Allocation* a) {
  if (memory_map().find(address, a)) return true;
  const Connection& c = connection();
  if (!c.in_device_window(address)) return false;
  *a = Allocation{address, 0, 0, current_context(), MemoryKind::kDevice, 0};
  return true;
}

template <class T>
void store(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
}

// One attribute into *data, which has the type the driver documents. `a` nullptr: a pointer that CUDA does not know.
CUresult pointer_attribute(CUpointer_attribute attribute, uint64_t pointer, const Allocation* a, void* data) {
  const bool pinned = a != nullptr && host_memory(a->kind);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      store<CUcontext>(data, a != nullptr && a->context != nullptr ? a->context->handle() : nullptr);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
      store<unsigned>(data, pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
      store<CUdeviceptr>(data, pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!pinned) return CUDA_ERROR_INVALID_VALUE;
      store<uint64_t>(data, pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
      store<unsigned long long>(data, a->buffer_id);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      store<unsigned>(data, a != nullptr && a->kind == MemoryKind::kDevice && a->buffer_id != 0 && a->flags != kFromPool ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      store<unsigned>(data, 0);
      return a == nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      store<int>(data, a == nullptr || a->context == nullptr ? -2 : static_cast<int>(a->context->visible_device));
      return a == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
      store<CUdeviceptr>(data, a->base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
      store<size_t>(data, a->size_bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      store<int>(data, a != nullptr ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      store<uint64_t>(data, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      store<unsigned>(data, a == nullptr ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      store<CUmemoryPool>(data, nullptr);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult r = allocate_device(bytesize, &address);
  if (r == CUDA_SUCCESS) *dptr = address;
  return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes) {
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = (WidthInBytes + kPitchAlignment - 1) & ~(kPitchAlignment - 1);
  uint64_t bytes = 0, address = 0;
  if (pitch < WidthInBytes || __builtin_mul_overflow(pitch, static_cast<uint64_t>(Height), &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult r = allocate_device(bytes, &address); r != CUDA_SUCCESS) return r;
  *dptr = address;
  *pPitch = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (is_graph_memory(dptr)) {
    const CUresult finished = sync_all_contexts();
    const CUresult freed = free_graph_memory(dptr);
    return finished != CUDA_SUCCESS ? finished : freed;
  }
  Allocation a;
  const bool found = memory_map().find(dptr, &a);
  if (!found || a.base != dptr || a.kind != MemoryKind::kDevice) {
    if (found || !connection().in_device_window(dptr)) return CUDA_ERROR_INVALID_VALUE;
    a.context = current_context();  // stream-ordered memory may be freed by this call too; the proxy knows
    a.base = 0;
  }
  const CUresult finished = sync_all_contexts();
  const bool known = a.base != 0;
  if (known && !memory_map().remove(dptr, MemoryKind::kDevice, &a)) return CUDA_ERROR_INVALID_VALUE;
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

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Allocation a;
  if (!memory_map().find(dptr, &a)) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = a.base;
  if (psize != nullptr) *psize = a.size_bytes;
  return CUDA_SUCCESS;
}

// ---- host memory ------------------------------------------------------------------------------------------------------

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  if (pp == nullptr || bytesize == 0 || (Flags & ~kHostAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  const CUresult r = allocate_pinned(bytesize, Flags, &address);
  if (r == CUDA_SUCCESS) *pp = reinterpret_cast<void*>(address);
  return r;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return hook::cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemFreeHost(void* p) {
  if (p == nullptr) return CUDA_SUCCESS;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  const auto address = reinterpret_cast<uint64_t>(p);
  Allocation a;
  if (!memory_map().find(address, &a) || a.base != address || a.kind != MemoryKind::kPinned) return CUDA_ERROR_INVALID_VALUE;
  const CUresult finished = sync_all_contexts();
  if (!memory_map().remove(address, MemoryKind::kPinned, &a)) return CUDA_ERROR_INVALID_VALUE;
  Request<wire::tubePinnedFree> r;
  r.in_context(a.context);
  r->address = address;
  const CUresult freed = r.post();
  return finished != CUDA_SUCCESS ? finished : freed;
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
  if (pFlags == nullptr || !memory_map().find(reinterpret_cast<uint64_t>(p), &a) || !host_memory(a.kind)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pFlags = a.flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

// ---- pointers ---------------------------------------------------------------------------------------------------------

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Allocation a;
  const bool known = find_allocation(ptr, &a);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  return pointer_attribute(attribute, ptr, &a, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Allocation a;
  const bool known = find_allocation(ptr, &a);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memset(data[i], 0, 4);
    // For a pointer that CUDA does not know this call succeeds with zeros.
    const CUresult r = pointer_attribute(attributes[i], ptr, known ? &a : nullptr, data[i]);
    if (r == CUDA_SUCCESS || !known) {
      if (!known && (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER || attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
                     attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)) {
        std::memset(data[i], 0, 8);
      }
      continue;
    }
    if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
      std::memset(data[i], 0, 8);  // device memory has none
      continue;
    }
    return r;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Allocation a;
  if (value == nullptr || !find_allocation(ptr, &a)) return CUDA_ERROR_INVALID_VALUE;
  return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option) {
  if (granularity == nullptr || prop == nullptr || static_cast<unsigned>(option) > 1) return CUDA_ERROR_INVALID_VALUE;
  const Process& p = process();
  auto device = static_cast<uint32_t>(prop->location.id);
  const bool host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST || prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                    prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  if (host) device = 0;  // NCCL asks before it tries cuMemCreate, which then says that there is none
  if (!host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (device >= p.device_count) return CUDA_ERROR_INVALID_DEVICE;
  const info::DeviceInfo& d = connection().device_infos[p.devices[device]];
  *granularity = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? d.allocation_granularity : d.allocation_granularity_recommended;
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

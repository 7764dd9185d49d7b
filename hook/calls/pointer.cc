// What CUDA knows about an address: answered from the memory map, and for addresses of the driver's
// own mappings (a reservation, memory of the window that no entry holds) from what the window says.
// No message, except to ask what mapped memory is open to.
#include <cstring>

#include "hook/memory/memory_calls.h"
#include "hook/memory/reservations.h"
#include "hook/objects/pool.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// What the answer is about: an allocation, and for mapped memory the reservation around it.
struct Known {
  Allocation a;
  uint64_t range_base = 0, range_bytes = 0;
};

bool find_known(uint64_t address, Known* k) {
  if (!memory_map().find(address, &k->a)) return false;
  k->range_base = k->a.base;
  k->range_bytes = k->a.size_bytes;
  if (k->a.kind == MemoryKind::kMapped)
    (void)reservation_of(address, &k->range_base, &k->range_bytes);
  return true;
}

template <class T>
CUresult store(void* data, T value) {
  std::memcpy(data, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): of a handle
  return CUDA_SUCCESS;
}

// Mapped memory is a range for CUDA while some GPU may reach it. Waits for the proxy.
bool accessible(uint64_t mapping) {
  for (int device = 0; device < static_cast<int>(process().device_count); ++device) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    unsigned long long flags = 0;
    if (hook::cuMemGetAccess(&flags, &location, mapping) == CUDA_SUCCESS && flags != 0) return true;
  }
  return false;
}

uint64_t page_down(uint64_t address) { return address & ~uint64_t{4095}; }

// What the driver maps for it: pages of host memory, 2 MiB blocks of device memory.
uint64_t mapping_unit(MemoryKind kind) {
  return kind == MemoryKind::kRegistered || kind == MemoryKind::kPinned ? 4096 : uint64_t{2} << 20;
}

CUresult where(CUpointer_attribute attribute, uint64_t pointer, const Known& k, void* data) {
  const Allocation& a = k.a;
  const uint64_t unit = mapping_unit(a.kind);
  const uint64_t first = a.base & ~(unit - 1),
                 last = (a.base + a.size_bytes + unit - 1) & ~(unit - 1);
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return store<CUdeviceptr>(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host_memory(a.kind) && a.kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return store<uint64_t>(data, pointer);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return store<CUdeviceptr>(data, k.range_base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return store<size_t>(data, k.range_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return store<uint64_t>(data, a.kind == MemoryKind::kMapped       ? a.base
                                   : a.kind == MemoryKind::kRegistered ? page_down(a.base)
                                                                       : first);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return store<size_t>(data, a.kind == MemoryKind::kMapped ? a.size_bytes : last - first);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// GPUDirect's tokens are zeros since it needs none. Asking makes memory operations synchronous, as
// with the driver.
CUresult tokens(const Known& k, void* data) {
  const bool device = (k.a.kind == MemoryKind::kDevice && k.a.flags != kFromPool) ||
                      k.a.kind == MemoryKind::kGlobal || k.a.kind == MemoryKind::kManaged;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  std::memset(data, 0, sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS));
  (void)memory_map().set_sync_memops(k.a.base, true);
  return CUDA_SUCCESS;
}

// What the current GPU may do with it. Both enumerations have the same values. Waits for the proxy
// when it is mapped memory.
unsigned access_to(const Allocation& a) {
  static_assert(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ == unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ} &&
                CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE ==
                    unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  const Context* current = current_context();
  const Pool* pool = (a.flags & kFromPool) != 0 ? find_pool(a.pool) : nullptr;
  if (a.kind != MemoryKind::kMapped && pool == nullptr)
    return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  if (current == nullptr) return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
  if (pool != nullptr) return static_cast<unsigned>(pool->access[current->visible_device]);
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE,
                               static_cast<int>(current->visible_device)};
  unsigned long long flags = 0;
  return hook::cuMemGetAccess(&flags, &location, a.base) == CUDA_SUCCESS
             ? static_cast<unsigned>(flags)
             : unsigned{CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE};
}

CUresult what(CUpointer_attribute attribute, const Known& k, void* data) {
  const Allocation& a = k.a;
  switch (static_cast<int>(attribute)) {
    // Mapped and pool memory belong to no context.
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return store<CUcontext>(data, a.context == nullptr || a.kind == MemoryKind::kMapped ||
                                            a.flags == kFromPool || a.flags == kVariable
                                        ? nullptr
                                        : a.context->handle());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return store<unsigned>(data, host_memory(a.kind) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return tokens(k, data);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return store<unsigned>(data, a.sync_memops || a.kind == MemoryKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return store<unsigned long long>(data, a.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return store<unsigned>(data, a.kind == MemoryKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return store<int>(data,
                        a.context == nullptr ? 0 : static_cast<int>(a.context->visible_device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return store<unsigned>(data, a.kind == MemoryKind::kDevice && a.flags != kFromPool ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_MAPPED: return store<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return store<unsigned>(data, access_to(a));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return store<CUmemoryPool>(
          data, objects().find(Kind::kMemPool, a.pool) != nullptr ? a.pool : nullptr);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return store<uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return store<unsigned>(data, 0);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// One attribute into *data, which has the type the driver documents.
CUresult known_attribute(CUpointer_attribute attribute, uint64_t pointer, const Known& k,
                         void* data) {
  const CUresult r = where(attribute, pointer, k, data);
  return r == CUDA_SUCCESS || attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER
             ? r
             : what(attribute, k, data);
}

// For a pointer that CUDA does not know, and for an attribute that does not apply: zero, of the
// attribute's width.
void no_attribute(CUpointer_attribute attribute, void* data) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: (void)store<int>(data, CU_DEVICE_INVALID); return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: (void)store<unsigned>(data, 0); return;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return;
    default: (void)store<uint64_t>(data, 0); return;
  }
}

bool is_attribute(CUpointer_attribute a) {
  return a >= CU_POINTER_ATTRIBUTE_CONTEXT && a <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  if (pbase == nullptr && psize == nullptr) return CUDA_SUCCESS;  // nothing is asked
  if (const CUresult r = guard(Needs::kContext); r != CUDA_SUCCESS) return r;
  Known k;
  if (!find_known(dptr, &k) || (k.a.kind == MemoryKind::kMapped && !accessible(k.a.base)))
    return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = k.a.base;
  if (psize != nullptr) *psize = k.a.size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (data == nullptr || !is_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  Known k;
  return find_known(ptr, &k) ? known_attribute(attribute, ptr, k, data) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  Known k;
  const bool known = find_known(ptr, &k);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr || !is_attribute(attributes[i])) return CUDA_ERROR_INVALID_VALUE;
    if (!known || known_attribute(attributes[i], ptr, k, data[i]) != CUDA_SUCCESS)
      no_attribute(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned on = 0;
  std::memcpy(&on, value, sizeof on);
  return memory_map().set_sync_memops(ptr, on != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tube::hook

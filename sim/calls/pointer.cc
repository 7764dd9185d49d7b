// cuPointer*: what the address map knows about an address.
#include <cstring>

#include "sim/machine/state.h"

namespace tube::sim {
namespace {

template <typename T>
CUresult give(void* data, T value) {
  std::memcpy(data, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): of a handle
  return CUDA_SUCCESS;
}

// For mapped memory the range attributes are the reservation's, the mapping attributes the
// mapping's.
CUresult range_attribute(void* data, const Range& r, bool start) {
  uint64_t base = r.base, size = r.requested;
  if (r.kind == RangeKind::kMapped) {
    Lock lock(state().mutex);
    reservation_of(r.base, &base, &size);
  }
  return start ? give(data, reinterpret_cast<void*>(base)) : give<size_t>(data, size);
}

// What the driver would map for it: whole pages of host memory, blocks of 2 MiB of device memory.
uint64_t mapping_unit(const Range& r) {
  return r.kind == RangeKind::kMapped ? 1 : r.is_host() ? 4096 : kGranularity;
}
uint64_t mapping_first(const Range& r) { return r.base / mapping_unit(r) * mapping_unit(r); }
uint64_t mapping_end(const Range& r) {
  return (r.base + r.requested + mapping_unit(r) - 1) / mapping_unit(r) * mapping_unit(r);
}

CUresult known(void* data, CUpointer_attribute attribute, const Range& r, CUdeviceptr ptr) {
  State& s = state();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      Context* c = r.kind == RangeKind::kManaged && r.of_module ? nullptr : r.context;
      return give(data, reinterpret_cast<CUcontext>(c));
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(data, r.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return give<CUdeviceptr>(data, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!r.is_host() && r.kind != RangeKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return give(data, reinterpret_cast<void*>(ptr));
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      if (r.kind != RangeKind::kDevice && r.kind != RangeKind::kSymbol &&
          r.kind != RangeKind::kManaged)
        return CUDA_ERROR_INVALID_VALUE;
      s.map.update(r.base, [](Range& there) {
        there.sync_memops = true;
      });  // asking has this effect on a real driver
      return give(data, CUDA_POINTER_ATTRIBUTE_P2P_TOKENS{});
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give<unsigned>(data, r.sync_memops || r.kind == RangeKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return give<unsigned long long>(data, r.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give<unsigned>(data, r.kind == RangeKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give<int>(data, r.kind == RangeKind::kImported && r.context != nullptr
                                 ? r.context->device->ordinal
                                 : r.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give<unsigned>(data, r.kind == RangeKind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return range_attribute(data, r, true);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return range_attribute(data, r, false);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(data, reinterpret_cast<void*>(mapping_first(r)));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give<size_t>(data, mapping_end(r) - mapping_first(r));
    case CU_POINTER_ATTRIBUTE_MAPPED: return give<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return give<uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return give<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      Context* c = current_context();
      uint64_t bit = c == nullptr ? 0 : 1ull << c->device->ordinal;
      bool restricted = r.kind == RangeKind::kMapped || r.kind == RangeKind::kPool;
      unsigned flags = !restricted || (r.writable & bit) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                       : (r.readable & bit) != 0              ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                              : CU_MEM_ACCESS_FLAGS_PROT_NONE;
      return give<unsigned>(data, flags);
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      Lock lock(s.mutex);
      bool alive = live<Pool>(s, r.pool, Kind::kPool) != nullptr;
      return give(data, alive ? reinterpret_cast<CUmemoryPool>(r.pool) : nullptr);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return give<unsigned long long>(data, r.id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return give<unsigned>(data, 0);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Zero, of the attribute's width.
CUresult unknown(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return give<int>(data, -2);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return give<unsigned>(data, 0);
    default: return give<uint64_t>(data, 0);
  }
}

bool valid(CUpointer_attribute a) {
  return a >= CU_POINTER_ATTRIBUTE_CONTEXT && a <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  SIM_ENTER(kInit);
  if (data == nullptr || !valid(attribute)) return CUDA_ERROR_INVALID_VALUE;
  auto range = state().map.find(ptr);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return known(data, attribute, *range, ptr);
}

SIM_API CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                        void** data, CUdeviceptr ptr) {
  SIM_ENTER(kInit);
  if (attributes == nullptr || data == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto range = state().map.find(ptr);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (!valid(attributes[i]) || data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // An attribute that does not apply reads as zero here; only the single query fails.
    if (!range || known(data[i], attributes[i], *range, ptr) != CUDA_SUCCESS)
      unknown(data[i], attributes[i]);
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                       CUdeviceptr ptr) {
  SIM_ENTER(kInit);
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  bool on = *static_cast<const unsigned*>(value) != 0;
  bool found = state().map.update(ptr, [on](Range& r) { r.sync_memops = on; });
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

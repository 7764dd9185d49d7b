// Managed memory: pinned memory that both processes have at one address, so the GPU and the program
// see the same bytes and nothing ever migrates (docs/limits.md). Advice and prefetches are checked,
// remembered and answered as the driver does; no message.
#include "hook/memory/allocator.h"
#include "hook/memory/memory_calls.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "protocol/managed_ranges.h"

namespace tube::hook {
namespace {

struct Advice {
  Lock lock;  // rank 3
  managed::Ranges ranges;
};
Advice& advice() {
  static Advice* a = new Advice;  // leaked: calls arrive until the very end
  return *a;
}

// [p, p + count) lies in one managed allocation.
CUresult check_range(CUdeviceptr p, size_t count) {
  Allocation a;
  if (count == 0 || !memory_map().find(p, &a) || a.kind != MemoryKind::kManaged)
    return CUDA_ERROR_INVALID_VALUE;
  return count <= a.size_bytes - (p - a.base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult advise(CUdeviceptr p, size_t count, CUmem_advise what, const CUmemLocation& location,
                CUresult no_device) {
  if (const CUresult r = check_range(p, count); r != CUDA_SUCCESS) return r;
  Locked locked(advice().lock);
  return advice().ranges.advise(p, count, what, location, process().device_count, no_device);
}

CUresult prefetch(CUdeviceptr p, size_t count, const CUmemLocation& location, unsigned flags,
                  CUstream hStream) {
  CUresult error = CUDA_SUCCESS;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (find_stream(hStream, &error) == nullptr) return error;
  if (const CUresult r = check_range(p, count); r != CUDA_SUCCESS) return r;
  Locked locked(advice().lock);
  return advice().ranges.prefetch(p, count, location, process().device_count);
}

// What all batches have in common; they may not go to the legacy stream.
CUresult check_batch(const CUdeviceptr* pointers, const size_t* sizes, size_t count,
                     unsigned long long flags, CUstream hStream) {
  CUresult error = CUDA_SUCCESS;
  if (pointers == nullptr || sizes == nullptr || count == 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (stream->legacy()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult r = check_range(pointers[i], sizes[i]); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult prefetch_batch(CUdeviceptr* pointers, size_t* sizes, size_t count,
                        CUmemLocation* locations, size_t* starts, size_t number,
                        unsigned long long flags, CUstream hStream) {
  if (const CUresult r = check_batch(pointers, sizes, count, flags, hStream); r != CUDA_SUCCESS)
    return r;
  if (locations == nullptr ||
      !managed::good_starts(starts, number, count, managed::Repeats::kAllowed))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < number; ++i) {
    if (const CUresult r = managed::check_location(locations[i], process().device_count);
        r != CUDA_SUCCESS)
      return r;
  }
  Locked locked(advice().lock);
  size_t group = 0;
  for (size_t i = 0; i < count; ++i) {
    while (group + 1 < number && starts[group + 1] == i) ++group;
    (void)advice().ranges.prefetch(pointers[i], sizes[i], locations[group], process().device_count);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult free_managed(const Allocation& allocation) {
  {
    Locked locked(advice().lock);
    advice().ranges.remove(allocation.base, allocation.size_bytes);
  }
  return free_pinned(allocation);
}

void add_managed_variable(Context* context, uint64_t address, uint64_t bytes) {
  memory_map().insert({address, bytes, next_unique(), context, MemoryKind::kManaged, kVariable});
  Locked locked(advice().lock);
  advice().ranges.add(address, bytes);
}

void remove_managed_variable(uint64_t address) {
  Allocation a;
  if (!memory_map().remove(address, MemoryKind::kManaged, &a)) return;
  Locked locked(advice().lock);
  advice().ranges.remove(address, a.size_bytes);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  if (const CUresult r = allocate_pinned(bytesize, flags, MemoryKind::kManaged, &address);
      r != CUDA_SUCCESS)
    return r;
  *dptr = address;
  Locked locked(advice().lock);
  advice().ranges.add(address, bytesize);
  return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise what, CUdevice device) {
  return advise(devPtr, count, what, managed::location_of(device), CUDA_ERROR_INVALID_DEVICE);
}
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise what,
                        CUmemLocation location) {
  return advise(devPtr, count, what, location, CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  return prefetch(devPtr, count, managed::location_of(dstDevice), 0, hStream);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  return prefetch(devPtr, count, location, flags, hStream);
}
CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                        hStream);
}

// The contents may be anything afterwards: they stay.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  return check_batch(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                        hStream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  if (const CUresult r = check_range(devPtr, count); r != CUDA_SUCCESS) return r;
  Locked locked(advice().lock);
  return advice().ranges.attribute(data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_range(devPtr, count); r != CUDA_SUCCESS) return r;
  Locked locked(advice().lock);
  for (size_t i = 0; i < numAttributes; ++i) {
    if (const CUresult r =
            advice().ranges.attribute(data[i], dataSizes[i], attributes[i], devPtr, count);
        r != CUDA_SUCCESS)
      return r;
  }
  return CUDA_SUCCESS;
}

// Attachment restricts which streams may use the memory; here all of them always may.
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  CUresult error = CUDA_SUCCESS;
  const Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_MEM_ATTACH_SINGLE && stream->legacy()) return CUDA_ERROR_INVALID_VALUE;
  Allocation a;
  if (!memory_map().find(dptr, &a) || a.kind != MemoryKind::kManaged || a.base != dptr)
    return CUDA_ERROR_INVALID_VALUE;
  return length == 0 || length == a.size_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tube::hook

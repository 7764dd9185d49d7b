// Managed memory: one address for host and devices, which in the simulator all memory has. It never
// moves: advice and prefetches are checked and remembered (protocol/managed_ranges.h), discards
// leave the bytes. Codes are those of a device with concurrent access.
#include "sim/calls/managed.h"

#include "protocol/managed_ranges.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

// Guarded by State::mutex; leaked.
managed::Ranges& ranges() {
  static auto* r = new managed::Ranges;
  return *r;
}

uint32_t device_count() { return static_cast<uint32_t>(state().devices.size()); }

CUresult check_range(CUdeviceptr p, size_t count) {
  auto range = state().map.find(p);
  const bool good = count > 0 && range && range->kind == RangeKind::kManaged &&
                    count <= range->requested - (p - range->base);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult advise(CUdeviceptr p, size_t count, CUmem_advise advice, const CUmemLocation& location,
                CUresult no_device) {
  if (CUresult r = check_range(p, count)) return r;
  Lock lock(state().mutex);
  return ranges().advise(p, count, advice, location, device_count(), no_device);
}

CUresult prefetch(Context* context, CUdeviceptr p, size_t count, const CUmemLocation& location,
                  unsigned flags, CUstream handle) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (CUresult r = check_range(p, count)) return r;
  return ranges().prefetch(p, count, location, device_count());
}

CUresult check_batch(Lock& lock, Context* context, const CUdeviceptr* pointers, const size_t* sizes,
                     size_t count, unsigned long long flags, CUstream handle) {
  if (pointers == nullptr || sizes == nullptr || count == 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, handle, &stream)) return r;
  if (stream == context->legacy_stream) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (CUresult r = check_range(pointers[i], sizes[i])) return r;
  }
  return CUDA_SUCCESS;
}

CUresult prefetch_batch(Context* context, CUdeviceptr* pointers, size_t* sizes, size_t count,
                        CUmemLocation* locations, size_t* starts, size_t number,
                        unsigned long long flags, CUstream handle) {
  Lock lock(state().mutex);
  if (CUresult r = check_batch(lock, context, pointers, sizes, count, flags, handle)) return r;
  if (locations == nullptr ||
      !managed::good_starts(starts, number, count, managed::Repeats::kAllowed))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < number; ++i) {
    if (CUresult r = managed::check_location(locations[i], device_count())) return r;
  }
  size_t group = 0;
  for (size_t i = 0; i < count; ++i) {
    while (group + 1 < number && starts[group + 1] == i) ++group;
    ranges().prefetch(pointers[i], sizes[i], locations[group], device_count());
  }
  return CUDA_SUCCESS;
}

}  // namespace

void remember_managed(uint64_t base, uint64_t bytes) { ranges().add(base, bytes); }
void forget_managed(const Range& range) { ranges().remove(range.base, range.size); }

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  zero(dptr);
  SIM_ENTER_CONTEXT(context);
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = allocate_memory(context, bytesize, RangeKind::kManaged, dptr)) return r;
  Lock lock(state().mutex);
  ranges().add(*dptr, bytesize);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                             CUdevice device) {
  SIM_ENTER(kContext);
  return advise(devPtr, count, advice, tube::managed::location_of(device),
                CUDA_ERROR_INVALID_DEVICE);
}
SIM_API CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                CUmemLocation location) {
  SIM_ENTER(kContext);
  return advise(devPtr, count, advice, location, CUDA_ERROR_INVALID_VALUE);
}
SIM_API CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                    CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return prefetch(context, devPtr, count, tube::managed::location_of(dstDevice), 0, hStream);
}
SIM_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                       unsigned int flags, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return prefetch(context, devPtr, count, location, flags, hStream);
}
SIM_API CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                         CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                         size_t numPrefetchLocs, unsigned long long flags,
                                         CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return prefetch_batch(context, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                        numPrefetchLocs, flags, hStream);
}
SIM_API CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                        unsigned long long flags, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  Lock lock(state().mutex);
  return check_batch(lock, context, dptrs, sizes, count, flags, hStream);
}
SIM_API CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                                   CUmemLocation* prefetchLocs,
                                                   size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                                   unsigned long long flags, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return prefetch_batch(context, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                        numPrefetchLocs, flags, hStream);
}

SIM_API CUresult cuMemRangeGetAttribute(void* data, size_t dataSize,
                                        CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                        size_t count) {
  SIM_ENTER(kContext);
  if (CUresult r = check_range(devPtr, count)) return r;
  Lock lock(state().mutex);
  return ranges().attribute(data, dataSize, attribute, devPtr, count);
}
SIM_API CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes,
                                         CUmem_range_attribute* attributes, size_t numAttributes,
                                         CUdeviceptr devPtr, size_t count) {
  SIM_ENTER(kContext);
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_range(devPtr, count)) return r;
  Lock lock(state().mutex);
  for (size_t i = 0; i < numAttributes; ++i) {
    if (CUresult r = ranges().attribute(data[i], dataSizes[i], attributes[i], devPtr, count))
      return r;
  }
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                        unsigned int flags) {
  SIM_ENTER_STREAM(context, hStream);
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, hStream, &stream)) return r;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_MEM_ATTACH_SINGLE && stream == context->legacy_stream)
    return CUDA_ERROR_INVALID_VALUE;
  auto range = state().map.find(dptr);
  if (!range || range->kind != RangeKind::kManaged || range->base != dptr)
    return CUDA_ERROR_INVALID_VALUE;
  return length == 0 || length == range->requested ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

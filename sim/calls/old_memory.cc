// The ABI from before CUDA 3.2, without arrays and copies: sizes and device addresses of 32 bits.
//
// As on a real driver (H200, 13.0) they answer CUDA_ERROR_INVALID_CONTEXT in every context but one
// of cuCtxCreate's first form.
#include <algorithm>
#include <limits>

#include "sim/calls/old_calls.h"

using namespace tube::sim;

// A size as such a call tells it.
static unsigned saturated(size_t size) {
  return static_cast<unsigned>(std::min<size_t>(size, std::numeric_limits<unsigned>::max()));
}

SIM_API CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  size_t wide = 0;
  const CUresult r = cuDeviceTotalMem_v2(bytes == nullptr ? nullptr : &wide, dev);
  if (r == CUDA_SUCCESS) *bytes = saturated(wide);
  return r;
}

SIM_API CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  SIM_ENTER(kContext);
  size_t wide_free = 0, wide_total = 0;
  const CUresult r = in_old_context([&] { return cuMemGetInfo_v2(&wide_free, &wide_total); });
  if (free != nullptr) *free = saturated(wide_free);
  if (total != nullptr) *total = saturated(wide_total);
  return r;
}
SIM_API CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  SIM_ENTER(kContext);
  CUdeviceptr wide = 0;
  const CUresult r =
      in_old_context([&] { return cuMemAlloc_v2(dptr == nullptr ? nullptr : &wide, bytesize); });
  return r == CUDA_SUCCESS ? narrow(wide, dptr) : r;
}
SIM_API CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pitch, unsigned int width,
                                 unsigned int height, unsigned int element) {
  SIM_ENTER(kContext);
  CUdeviceptr wide = 0;
  size_t wide_pitch = 0;
  const CUresult r = in_old_context([&] {
    return cuMemAllocPitch_v2(dptr == nullptr ? nullptr : &wide,
                              pitch == nullptr ? nullptr : &wide_pitch, width, height, element);
  });
  if (r != CUDA_SUCCESS) return r;
  (void)narrow(wide_pitch, pitch);
  return narrow(wide, dptr);
}
SIM_API CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  SIM_ENTER(kContext);
  return in_old_context([&] { return cuMemFree_v2(dptr); });
}
SIM_API CUresult cuMemAllocHost(void** pp, unsigned int bytesize) {
  SIM_ENTER(kContext);
  return in_old_context([&] { return cuMemAllocHost_v2(pp, bytesize); });
}
SIM_API CUresult cuMemGetAddressRange(CUdeviceptr_v1* base, unsigned int* size,
                                      CUdeviceptr_v1 dptr) {
  SIM_ENTER(kContext);
  if (base == nullptr && size == nullptr) return CUDA_SUCCESS;
  CUdeviceptr wide = 0;
  size_t wide_size = 0;
  const CUresult r =
      in_old_context([&] { return cuMemGetAddressRange_v2(&wide, &wide_size, dptr); });
  if (r != CUDA_SUCCESS) return r;
  (void)narrow(wide_size, size);
  return narrow(wide, base);
}
SIM_API CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1* dptr, void* p, unsigned int flags) {
  SIM_ENTER(kContext);
  CUdeviceptr wide = 0;
  const CUresult r = in_old_context(
      [&] { return cuMemHostGetDevicePointer_v2(dptr == nullptr ? nullptr : &wide, p, flags); });
  return r == CUDA_SUCCESS ? narrow(wide, dptr) : r;
}
SIM_API CUresult cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule module,
                                   const char* name) {
  SIM_ENTER(kContext);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr wide = 0;
  size_t wide_bytes = 0;
  const CUresult r = in_old_context([&] {
    return cuModuleGetGlobal_v2(dptr == nullptr ? nullptr : &wide,
                                bytes == nullptr ? nullptr : &wide_bytes, module, name);
  });
  if (r != CUDA_SUCCESS) return r;
  (void)narrow(wide_bytes, bytes);
  return narrow(wide, dptr);
}

// The ABI from before CUDA 3.2, without arrays and copies: sizes and device addresses of 32 bits.
//
// As on a real driver (H200, 13.0): a context that could hold such addresses is not to be had, and the calls answer
// CUDA_ERROR_INVALID_CONTEXT.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "sim/state.h"

using namespace tube::sim;

SIM_API CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  size_t wide = 0;
  const CUresult r = cuDeviceTotalMem_v2(bytes == nullptr ? nullptr : &wide, dev);
  if (r == CUDA_SUCCESS) *bytes = static_cast<unsigned>(std::min<uint64_t>(wide, std::numeric_limits<unsigned>::max()));
  return r;
}

SIM_API CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) { return cuCtxCreate_v2(pctx, flags, dev); }

SIM_API CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  SIM_ENTER(kContext);
  if (free != nullptr) *free = 0;
  if (total != nullptr) *total = 0;
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemAlloc(CUdeviceptr_v1*, unsigned int) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemAllocPitch(CUdeviceptr_v1*, unsigned int*, unsigned int, unsigned int, unsigned int) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemFree(CUdeviceptr_v1) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemAllocHost(void**, unsigned int) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemGetAddressRange(CUdeviceptr_v1* base, unsigned int* size, CUdeviceptr_v1) {
  SIM_ENTER(kContext);
  return base == nullptr && size == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1*, void*, unsigned int) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuModuleGetGlobal(CUdeviceptr_v1*, unsigned int*, CUmodule module, const char*) {
  SIM_ENTER(kContext);
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
}

// The ABI from before CUDA 3.2, without arrays and copies: sizes and device addresses of 32 bits.
//
// Only a context made by the first cuCtxCreate can hold them, and no driver for today's GPUs makes such a context: it answers
// CUDA_ERROR_OUT_OF_MEMORY, and in any other context every call with such an address or size answers
// CUDA_ERROR_INVALID_CONTEXT (H200, 13.0). What needs no context works: the total memory, capped at the largest number.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "hook/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  size_t wide = 0;
  const CUresult r = hook::cuDeviceTotalMem_v2(bytes == nullptr ? nullptr : &wide, dev);
  if (r == CUDA_SUCCESS) *bytes = static_cast<unsigned>(std::min<uint64_t>(wide, std::numeric_limits<unsigned>::max()));
  return r;
}

CUresult cuCtxCreate(CUcontext* pctx, unsigned int, CUdevice dev) {
  int32_t number = 0;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = device_number(dev, &number);
  return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

CUresult cuMemGetInfo(unsigned int*, unsigned int*) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemAlloc(CUdeviceptr_v1*, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemAllocPitch(CUdeviceptr_v1*, unsigned int*, unsigned int, unsigned int, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemFree(CUdeviceptr_v1) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemAllocHost(void**, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemGetAddressRange(CUdeviceptr_v1*, unsigned int*, CUdeviceptr_v1) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1*, void*, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuModuleGetGlobal(CUdeviceptr_v1*, unsigned int*, CUmodule, const char*) { return CUDA_ERROR_INVALID_CONTEXT; }

}  // namespace tube::hook

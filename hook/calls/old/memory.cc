// The ABI from before CUDA 3.2, without arrays and copies: sizes and device addresses of 32 bits.
//
// Only a context of their time could hold them. The first cuCtxCreate makes one like any other, and
// in such a one every call with an address or size of 32 bits answers CUDA_ERROR_INVALID_CONTEXT
// (H200, 13.0). What needs no context works: the total memory, capped at the largest number.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  size_t wide = 0;
  const CUresult r = hook::cuDeviceTotalMem_v2(bytes == nullptr ? nullptr : &wide, dev);
  if (r == CUDA_SUCCESS)
    *bytes = static_cast<unsigned>(std::min<uint64_t>(wide, std::numeric_limits<unsigned>::max()));
  return r;
}

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return hook::cuCtxCreate_v2(pctx, flags, dev);
}

CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  if (free != nullptr) *free = 0;
  if (total != nullptr) *total = 0;
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemAlloc(CUdeviceptr_v1*, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemAllocPitch(CUdeviceptr_v1*, unsigned int*, unsigned int, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemFree(CUdeviceptr_v1) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemAllocHost(void**, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemGetAddressRange(CUdeviceptr_v1* base, unsigned int* size, CUdeviceptr_v1) {
  return base == nullptr && size == nullptr ? CUDA_SUCCESS
                                            : CUDA_ERROR_INVALID_CONTEXT;  // nothing is asked
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1*, void*, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuModuleGetGlobal(CUdeviceptr_v1*, unsigned int*, CUmodule module, const char*) {
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace tube::hook

// The ABI from before CUDA 3.2 of arrays, copies and memsets. Such calls want a context that was
// made by cuCtxCreate of that age, with 32-bit addresses, and there is none on a 64-bit machine:
// the driver answers CUDA_ERROR_INVALID_CONTEXT in every other one (H200, driver 580). Describing
// an array looks for the array first.
#include "hook/objects/array.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {

CUresult cuMemcpyAtoA(CUarray, unsigned int, CUarray, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyAtoD(CUdeviceptr_v1, CUarray, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyAtoH(void*, CUarray, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyAtoHAsync(void*, CUarray, unsigned int, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyDtoA(CUarray, unsigned int, CUdeviceptr_v1, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyDtoD(CUdeviceptr_v1, CUdeviceptr_v1, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1, CUdeviceptr_v1, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyDtoH(void*, CUdeviceptr_v1, unsigned int) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemcpyDtoHAsync(void*, CUdeviceptr_v1, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyHtoA(CUarray, unsigned int, const void*, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyHtoAAsync(CUarray, unsigned int, const void*, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyHtoD(CUdeviceptr_v1, const void*, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1, const void*, unsigned int, CUstream) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1*) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1*) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1*, CUstream) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1*) { return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1*, CUstream) { return CUDA_ERROR_INVALID_CONTEXT; }

CUresult cuMemsetD8(CUdeviceptr_v1, unsigned char, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemsetD16(CUdeviceptr_v1, unsigned short, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemsetD32(CUdeviceptr_v1, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemsetD2D8(CUdeviceptr_v1, unsigned int, unsigned char, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemsetD2D16(CUdeviceptr_v1, unsigned int, unsigned short, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuMemsetD2D32(CUdeviceptr_v1, unsigned int, unsigned int, unsigned int, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuArrayCreate(CUarray*, const CUDA_ARRAY_DESCRIPTOR_v1*) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuArray3DCreate(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR_v1*) {
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuTexRefSetAddress(unsigned int*, CUtexref, CUdeviceptr_v1, unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuTexRefSetAddress2D(CUtexref, const CUDA_ARRAY_DESCRIPTOR_v1*, CUdeviceptr_v1,
                              unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuTexRefGetAddress(CUdeviceptr_v1*, CUtexref) { return CUDA_ERROR_INVALID_CONTEXT; }

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1*, CUarray hArray) {
  return find_array(hArray) != nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1*, CUarray hArray) {
  return find_array(hArray) != nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tube::hook

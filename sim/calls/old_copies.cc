// The ABI from before CUDA 3.2 of arrays, copies and memsets. Such calls want a context of
// cuCtxCreate's first form: in every other one the driver answers CUDA_ERROR_INVALID_CONTEXT (H200,
// driver 580). Describing an array looks for the array first. Of arrays, and of copies with a
// description, nothing is done in such a context either: nobody is known to have one.
#include "sim/calls/array.h"
#include "sim/calls/old_calls.h"

namespace tube::sim {
namespace {

bool is_array(const void* handle) {
  Lock lock(state().mutex);
  return live<Array>(state(), handle, Kind::kArray) != nullptr;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuMemcpyAtoA(CUarray, unsigned int, CUarray, unsigned int, unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyAtoD(CUdeviceptr_v1, CUarray, unsigned int, unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyAtoH(void*, CUarray, unsigned int, unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyAtoHAsync(void*, CUarray, unsigned int, unsigned int, CUstream) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyDtoA(CUarray, unsigned int, CUdeviceptr_v1, unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyDtoD(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemcpyDtoD_v2(dst, src, bytes); });
}
SIM_API CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes,
                                   CUstream stream) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemcpyDtoDAsync_v2(dst, src, bytes, stream); });
}
SIM_API CUresult cuMemcpyDtoH(void* dst, CUdeviceptr_v1 src, unsigned int bytes) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemcpyDtoH_v2(dst, src, bytes); });
}
SIM_API CUresult cuMemcpyDtoHAsync(void* dst, CUdeviceptr_v1 src, unsigned int bytes,
                                   CUstream stream) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemcpyDtoHAsync_v2(dst, src, bytes, stream); });
}
SIM_API CUresult cuMemcpyHtoA(CUarray, unsigned int, const void*, unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyHtoAAsync(CUarray, unsigned int, const void*, unsigned int, CUstream) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpyHtoD(CUdeviceptr_v1 dst, const void* src, unsigned int bytes) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemcpyHtoD_v2(dst, src, bytes); });
}
SIM_API CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dst, const void* src, unsigned int bytes,
                                   CUstream stream) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemcpyHtoDAsync_v2(dst, src, bytes, stream); });
}
SIM_API CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1*) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1*) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1*, CUstream) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1*) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1*, CUstream) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}

SIM_API CUresult cuMemsetD8(CUdeviceptr_v1 dst, unsigned char value, unsigned int count) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemsetD8_v2(dst, value, count); });
}
SIM_API CUresult cuMemsetD16(CUdeviceptr_v1 dst, unsigned short value, unsigned int count) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemsetD16_v2(dst, value, count); });
}
SIM_API CUresult cuMemsetD32(CUdeviceptr_v1 dst, unsigned int value, unsigned int count) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemsetD32_v2(dst, value, count); });
}
SIM_API CUresult cuMemsetD2D8(CUdeviceptr_v1 dst, unsigned int pitch, unsigned char value,
                              unsigned int width, unsigned int height) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemsetD2D8_v2(dst, pitch, value, width, height); });
}
SIM_API CUresult cuMemsetD2D16(CUdeviceptr_v1 dst, unsigned int pitch, unsigned short value,
                               unsigned int width, unsigned int height) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemsetD2D16_v2(dst, pitch, value, width, height); });
}
SIM_API CUresult cuMemsetD2D32(CUdeviceptr_v1 dst, unsigned int pitch, unsigned int value,
                               unsigned int width, unsigned int height) {
  SIM_ENTER(kInit);
  return in_old_context([&] { return cuMemsetD2D32_v2(dst, pitch, value, width, height); });
}

SIM_API CUresult cuArrayCreate(CUarray*, const CUDA_ARRAY_DESCRIPTOR_v1*) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuArray3DCreate(CUarray*, const CUDA_ARRAY3D_DESCRIPTOR_v1*) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}

SIM_API CUresult cuTexRefSetAddress(unsigned int*, CUtexref, CUdeviceptr_v1, unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuTexRefSetAddress2D(CUtexref, const CUDA_ARRAY_DESCRIPTOR_v1*, CUdeviceptr_v1,
                                      unsigned int) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API CUresult cuTexRefGetAddress(CUdeviceptr_v1*, CUtexref) {
  SIM_ENTER(kInit);
  return CUDA_ERROR_INVALID_CONTEXT;
}

SIM_API CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1*, CUarray hArray) {
  SIM_ENTER_CONTEXT(context);
  return is_array(hArray) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}
SIM_API CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1*, CUarray hArray) {
  SIM_ENTER_CONTEXT(context);
  return is_array(hArray) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

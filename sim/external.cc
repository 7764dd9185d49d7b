// External memory and semaphores, atomics over links: the driver's argument checks. No descriptor is one of a graphics API
// here, and the links of the simulated machine have no native atomics.
#include <fcntl.h>

#include "sim/state.h"

namespace tube::sim {
namespace {

template <class Desc>
bool reserved_is_zero(const Desc& desc) {
  for (unsigned int word : desc.reserved)
    if (word != 0) return false;
  return true;
}

CUresult no_atomics(unsigned* capabilities, const CUatomicOperation* operations, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (operations[i] < CU_ATOMIC_OPERATION_INTEGER_ADD || operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    capabilities[i] = 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuImportExternalMemory(CUexternalMemory* extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  SIM_ENTER(kContext);
  if (extMem_out == nullptr || d == nullptr || d->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || d->size == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d->flags & ~unsigned{CUDA_EXTERNAL_MEMORY_DEDICATED}) != 0 || !reserved_is_zero(*d)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNKNOWN;
}
SIM_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr*, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC*) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray*, CUexternalMemory, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC*) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuDestroyExternalMemory(CUexternalMemory) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuImportExternalSemaphore(CUexternalSemaphore* extSem_out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* d) {
  SIM_ENTER(kContext);
  if (extSem_out == nullptr || d == nullptr || d->flags != 0 || !reserved_is_zero(*d)) return CUDA_ERROR_INVALID_VALUE;
  return d->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS*, unsigned int, CUstream) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore*, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*, unsigned int, CUstream) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}
SIM_API CUresult cuDestroyExternalSemaphore(CUexternalSemaphore) {
  SIM_ENTER(kContext);
  return CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations, unsigned int count,
                                                   CUdevice dev) {
  SIM_ENTER(kInit);
  if (capabilities == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return no_atomics(capabilities, operations, count);
}
SIM_API CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations, unsigned int count,
                                                  CUdevice srcDevice, CUdevice dstDevice) {
  SIM_ENTER(kInit);
  if (capabilities == nullptr || operations == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(srcDevice) == nullptr || device_at(dstDevice) == nullptr || srcDevice == dstDevice) return CUDA_ERROR_INVALID_DEVICE;
  return no_atomics(capabilities, operations, count);
}

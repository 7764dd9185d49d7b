// Atomics over links, of which the simulated machine has none.
#include "sim/machine/state.h"

namespace tube::sim {
namespace {

CUresult no_atomics(unsigned* capabilities, const CUatomicOperation* operations, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (operations[i] < CU_ATOMIC_OPERATION_INTEGER_ADD || operations[i] >= CU_ATOMIC_OPERATION_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    capabilities[i] = 0;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                                   const CUatomicOperation* operations,
                                                   unsigned int count, CUdevice dev) {
  SIM_ENTER(kInit);
  if (capabilities == nullptr || operations == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (device_at(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return no_atomics(capabilities, operations, count);
}
SIM_API CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                                  const CUatomicOperation* operations,
                                                  unsigned int count, CUdevice srcDevice,
                                                  CUdevice dstDevice) {
  SIM_ENTER(kInit);
  if (capabilities == nullptr || operations == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (device_at(srcDevice) == nullptr || device_at(dstDevice) == nullptr || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  return no_atomics(capabilities, operations, count);
}

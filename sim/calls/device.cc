// cuDevice*: names, numbers, attributes, peers.
#include <cstdio>
#include <cstring>

#include "sim/machine/attributes.h"
#include "sim/machine/devices.h"

using namespace tube::sim;

#define SIM_DEVICE(variable, ordinal)    \
  Device* variable = device_at(ordinal); \
  if (variable == nullptr) return CUDA_ERROR_INVALID_DEVICE

SIM_API CUresult cuDriverGetVersion(int* driverVersion) {
  SIM_ENTER(kNothing);
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_ENTER(kInit);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, ordinal);
  *device = d->ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetCount(int* count) {
  SIM_ENTER(kInit);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(state().devices.size());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  SIM_ENTER(kInit);
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  std::snprintf(name, static_cast<size_t>(len), "%s", d->spec.name.c_str());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  SIM_ENTER(kInit);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *uuid = d->uuid;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SIM_ENTER(kInit);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *uuid = d->uuid;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  zero(bytes);
  SIM_ENTER(kInit);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *bytes = d->spec.memory_bytes;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  return device_attribute(*d, attrib, pi) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SIM_ENTER(kInit);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  *major = d->spec.sm / 10;
  *minor = d->spec.sm % 10;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  SIM_ENTER(kInit);
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  auto get = [d](CUdevice_attribute a) {
    int v = 0;
    device_attribute(*d, a, &v);
    return v;
  };
  *prop = {get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
           {get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
           {get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
           get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
           get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
           get(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
           get(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
           get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
           get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
           get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pciBusId == nullptr || len < 13) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0",
                static_cast<unsigned>(d->spec.pci_bus) & 0xff);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  SIM_ENTER(kInit);
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0;
  if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (std::sscanf(pciBusId, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (auto& d : state().devices) {
    if (domain != 0 || slot != 0 || static_cast<unsigned>(d->spec.pci_bus) != bus) continue;
    *dev = d->ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  SIM_ENTER(kInit);
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  (void)d;
  return CUDA_ERROR_NOT_SUPPORTED;  // Windows only, as on a real Linux driver
}

static bool plain_format(CUarray_format format) {
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT: return true;
    default: return false;
  }
}

SIM_API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements,
                                                    CUarray_format format, unsigned numChannels,
                                                    CUdevice dev) {
  SIM_ENTER(kInit);
  if (maxWidthInElements == nullptr || (numChannels != 1 && numChannels != 2 && numChannels != 4) ||
      !plain_format(format))
    return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  (void)d;
  *maxWidthInElements = 268435456;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(d, dev);
  (void)d;
  (void)type;  // no kind is supported, the unknown ones included
  *pi = 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  SIM_ENTER(kInit);
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(a, dev);
  SIM_DEVICE(b, peerDev);
  *canAccessPeer = peer_capable(state(), *a, *b) ? 1 : 0;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib,
                                         CUdevice srcDevice, CUdevice dstDevice) {
  SIM_ENTER(kInit);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIM_DEVICE(a, srcDevice);
  SIM_DEVICE(b, dstDevice);
  if (a == b) return CUDA_ERROR_INVALID_DEVICE;
  if (attrib < 1 || attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
    return CUDA_ERROR_INVALID_VALUE;
  bool nvlink = state().fabric->nvlink(a->physical, b->physical) > 0;
  switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = nvlink ? 0 : 1; break;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = peer_capable(state(), *a, *b) ? 1 : 0;
      break;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = nvlink ? 1 : 0; break;
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: *value = 0; break;
  }
  return CUDA_SUCCESS;
}

// cuInit and every device query: answered from the proxy's info file (protocol/device_info.h), no
// message.
#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hook/objects/support.h"
#include "hook/process/visible_devices.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

// nullptr: no such ordinal.
const info::DeviceInfo* info_of(CUdevice device) {
  const Process& p = process();
  if (device < 0 || static_cast<uint32_t>(device) >= p.device_count) return nullptr;
  return &connection().device_infos[p.devices[device]];
}

int parse_pci(const char* text, unsigned field[4]) {
  field[0] = 0;
  field[3] = 0;
  const int full = std::sscanf(text, "%x:%x:%x.%x", &field[0], &field[1], &field[2], &field[3]);
  if (full >= 3) return full;
  field[0] = 0;
  return std::sscanf(text, "%x:%x.%x", &field[1], &field[2], &field[3]);
}

}  // namespace

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return initialise();
}

CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Process& p = process();
  *driverVersion = p.state() == State::kReady ? static_cast<int>(p.connection->info->driver_version)
                                              : CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (info_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(process().device_count);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(len), "%.*s", static_cast<int>(sizeof d->name - 1),
                d->name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, d->uuid, sizeof d->uuid);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (d->luid_result != 0) return static_cast<CUresult>(d->luid_result);
  std::memcpy(luid, d->luid, sizeof d->luid);
  *deviceNodeMask = d->luid_node_mask;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = connection().visible_total(d->total_bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const info::DeviceInfo* d = info_of(dev);
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const auto id = static_cast<uint32_t>(attrib);
  if (id >= info::kAttributeCount) return CUDA_ERROR_INVALID_VALUE;
  if (d->attribute_results[id] != 0) return static_cast<CUresult>(d->attribute_results[id]);
  *pi = d->attributes[id];
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *major = d->compute_major;
  *minor = d->compute_minor;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const int32_t* a = d->attributes;
  prop->maxThreadsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  for (int i = 0; i < 3; ++i) {
    prop->maxThreadsDim[i] = a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i];
    prop->maxGridSize[i] = a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i];
  }
  prop->sharedMemPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK];
  prop->totalConstantMemory = a[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY];
  prop->SIMDWidth = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  prop->memPitch = a[CU_DEVICE_ATTRIBUTE_MAX_PITCH];
  prop->regsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
  prop->clockRate = a[CU_DEVICE_ATTRIBUTE_CLOCK_RATE];
  prop->textureAlign = a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (pciBusId == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (std::strlen(d->pci_bus_id) >= static_cast<size_t>(len)) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(pciBusId, static_cast<size_t>(len), "%s", d->pci_bus_id);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned wanted[4], have[4];
  if (parse_pci(pciBusId, wanted) < 2) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < process().device_count; ++i) {
    parse_pci(info_of(static_cast<CUdevice>(i))->pci_bus_id, have);
    if (std::memcmp(wanted, have, sizeof wanted) == 0) {
      *dev = static_cast<CUdevice>(i);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  const info::DeviceInfo* d = info_of(dev);
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr || info_of(peerDev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = dev == peerDev ? 0 : d->can_access_peer[process().devices[peerDev]];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  const info::DeviceInfo* d = info_of(srcDevice);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr || info_of(dstDevice) == nullptr || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  if (static_cast<uint32_t>(attrib) >= info::kP2pAttributeCount || attrib == 0)
    return CUDA_ERROR_INVALID_VALUE;
  *value = d->p2p[process().devices[dstDevice]][attrib];
  return CUDA_SUCCESS;
}

namespace {
bool plain_format(CUarray_format format) {
  constexpr uint64_t kIntegers =
      1ull << CU_AD_FORMAT_UNSIGNED_INT8 | 1ull << CU_AD_FORMAT_UNSIGNED_INT16 |
      1ull << CU_AD_FORMAT_UNSIGNED_INT32 | 1ull << CU_AD_FORMAT_SIGNED_INT8 |
      1ull << CU_AD_FORMAT_SIGNED_INT16 | 1ull << CU_AD_FORMAT_SIGNED_INT32;
  constexpr uint64_t kFloats = 1ull << CU_AD_FORMAT_HALF | 1ull << CU_AD_FORMAT_FLOAT;
  return static_cast<unsigned>(format) < 64 &&
         ((kIntegers | kFloats) >> static_cast<unsigned>(format) & 1) != 0;
}
}  // namespace

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  const bool channels = numChannels == 1 || numChannels == 2 || numChannels == 4;
  if (maxWidthInElements == nullptr || !channels || !plain_format(format))
    return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *maxWidthInElements = d->texture_width_max;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  const info::DeviceInfo* d = info_of(dev);
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (d == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pi = 0;  // a share of the GPU per context cannot be had inside a shared context
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* wanted = std::getenv("CUDA_MODULE_LOADING");
  *mode = wanted != nullptr && strcasecmp(wanted, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING
                                                                : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

// What the proxy's GPUs look like: the content of the `info` memory file (sharedmem/abi.h).
//
// The proxy fills it once at start from the backend, seals it against writing and sends it with
// every Welcome. The hook maps it read-only and answers every cuDevice* query from it, so such a
// query costs no message. It lies outside the ring's trust rules: the proxy is the writer, the file
// is sealed.
//
//   InfoHeader, then device_count x DeviceInfo, then nothing. Devices are in the proxy's order (its
//   ordinals); the hook applies the client's own CUDA_VISIBLE_DEVICES on top.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tube::info {

inline constexpr uint64_t kInfoMagic = 0x31304f464e494254ull;  // "TBINFO01"
inline constexpr uint32_t kMaxDevices = 32;
inline constexpr uint32_t kAttributeCount =
    192;                                     // CUdevice_attribute ids 0..191; 13.0 knows 1..147
inline constexpr uint32_t kLimitCount = 16;  // CUlimit ids
inline constexpr uint32_t kFunctionAttributeCount = 16;  // CUfunction_attribute ids 0..15
inline constexpr uint32_t kP2pAttributeCount = 8;        // CUdevice_P2PAttribute ids 1..6

struct InfoHeader {
  uint64_t magic;
  uint32_t driver_version;       // cuDriverGetVersion of the backend
  uint32_t device_count;         // <= kMaxDevices
  uint32_t device_stride_bytes;  // sizeof(DeviceInfo) of the writer
  uint32_t backend_is_sim;       // 1: the simulated GPU
  int32_t proxy_pid;
  uint32_t module_loading_mode;  // CUmoduleLoadingMode the backend reported
  char workflow[72];             // NUL-terminated; for error lines
};
static_assert(sizeof(InfoHeader) == 104);

struct DeviceInfo {
  char name[256];
  uint8_t uuid[16];
  uint8_t luid[8];
  uint64_t total_bytes;             // cuDeviceTotalMem
  uint64_t allocation_granularity;  // cuMemGetAllocationGranularity, minimum, pinned device memory
  uint64_t allocation_granularity_recommended;
  uint32_t luid_node_mask;
  int32_t luid_result;     // CUresult of cuDeviceGetLuid
  int32_t least_priority;  // cuCtxGetStreamPriorityRange
  int32_t greatest_priority;
  char pci_bus_id[32];  // cuDeviceGetPCIBusId
  int32_t compute_major;
  int32_t compute_minor;
  int32_t attributes[kAttributeCount];
  int32_t attribute_results[kAttributeCount];  // CUresult per attribute; not 0: answer this
  uint64_t limits[kLimitCount];                // cuCtxGetLimit in the fresh primary context
  int32_t limit_results[kLimitCount];
  int32_t p2p[kMaxDevices][kP2pAttributeCount];  // [peer ordinal][CUdevice_P2PAttribute]
  int32_t can_access_peer[kMaxDevices];
  uint32_t api_version;         // cuCtxGetApiVersion of the primary context
  uint32_t cache_config;        // cuCtxGetCacheConfig
  uint32_t primary_flags;       // cuDevicePrimaryCtxGetState flags
  uint32_t texture_width_max;   // cuDeviceGetTexture1DLinearMaxWidth for one float channel
  uint32_t exec_affinity_bits;  // bit k: cuDeviceGetExecAffinitySupport(k)
  uint32_t reserved0;
};
static_assert(offsetof(DeviceInfo, total_bytes) == 280);
static_assert(offsetof(DeviceInfo, attributes) == 360);
static_assert(sizeof(DeviceInfo) % 8 == 0);

inline constexpr uint64_t info_bytes(uint32_t devices) {
  return sizeof(InfoHeader) + uint64_t{devices} * sizeof(DeviceInfo);
}

}  // namespace tube::info

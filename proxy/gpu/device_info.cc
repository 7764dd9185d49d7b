// Fills the info file (protocol/device_info.h) from the backend: everything a client may ask about
// a GPU without a message. Runs once, at start; about 200 driver queries per GPU.
#include <cstdio>
#include <cstring>
#include <vector>

#include <unistd.h>

#include "protocol/device_info.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

namespace {

void fill_attributes(const Driver& driver, const Gpu& gpu, info::DeviceInfo& out) {
  for (uint32_t id = 0; id < info::kAttributeCount; ++id) {
    int value = 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (id != 0)
      result = driver.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(id), gpu.device);
    out.attributes[id] = result == CUDA_SUCCESS ? value : 0;
    out.attribute_results[id] = result;
  }
  // Managed memory is pinned memory here (hook/calls/managed.cc): it is there, and neither migrates
  // nor faults in. Pageable access cannot cross to another process. Multicast and decompression are
  // not forwarded.
  for (CUdevice_attribute hidden :
       {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
        CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST}) {
    out.attributes[hidden] = 0;
  }
  out.attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] =
      0;  // NCCL would use what answers "not supported" here
  out.compute_major = out.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
  out.compute_minor = out.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
}

// Needs the GPU's context current.
void fill_context(const Driver& driver, const Gpu& gpu, info::DeviceInfo& out) {
  driver.cuCtxGetStreamPriorityRange(&out.least_priority, &out.greatest_priority);
  for (uint32_t id = 0; id < info::kLimitCount; ++id) {
    size_t value = 0;
    out.limit_results[id] = driver.cuCtxGetLimit(&value, static_cast<CUlimit>(id));
    out.limits[id] = value;
  }
  unsigned int version = 0;
  if (driver.cuCtxGetApiVersion(gpu.context, &version) == CUDA_SUCCESS) out.api_version = version;
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
  if (driver.cuCtxGetCacheConfig(&cache) == CUDA_SUCCESS) out.cache_config = cache;
  unsigned int flags = 0;
  int active = 0;
  if (driver.cuDevicePrimaryCtxGetState(gpu.device, &flags, &active) == CUDA_SUCCESS)
    out.primary_flags = flags;
  size_t width = 0;
  if (driver.cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, gpu.device) ==
      CUDA_SUCCESS) {
    out.texture_width_max = static_cast<uint32_t>(width);
  }
}

void fill_device(const Driver& driver, const Gpus& gpus, const Gpu& gpu, info::DeviceInfo& out) {
  std::snprintf(out.name, sizeof(out.name), "%s", gpu.name.c_str());
  std::memcpy(out.uuid, &gpu.uuid, sizeof(out.uuid));
  char luid[8] = {};
  unsigned int node_mask = 0;
  out.luid_result = driver.cuDeviceGetLuid(luid, &node_mask, gpu.device);
  std::memcpy(out.luid, luid, sizeof(luid));
  out.luid_node_mask = node_mask;
  out.total_bytes = gpu.total_bytes;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = gpu.device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0;
  if (driver.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
      CUDA_SUCCESS) {
    out.allocation_granularity = granularity;
  }
  if (driver.cuMemGetAllocationGranularity(&granularity, &prop,
                                           CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS) {
    out.allocation_granularity_recommended = granularity;
  }
  driver.cuDeviceGetPCIBusId(out.pci_bus_id, sizeof(out.pci_bus_id), gpu.device);
  fill_attributes(driver, gpu, out);
  for (uint32_t peer = 0; peer < gpus.count() && peer < info::kMaxDevices; ++peer) {
    if (&gpus[peer] == &gpu) continue;
    int reachable = 0;
    driver.cuDeviceCanAccessPeer(&reachable, gpu.device, gpus[peer].device);
    out.can_access_peer[peer] = reachable;
    for (uint32_t id = 1; id < info::kP2pAttributeCount; ++id) {
      int value = 0;
      if (driver.cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(id), gpu.device,
                                         gpus[peer].device) == CUDA_SUCCESS) {
        out.p2p[peer][id] = value;
      }
    }
  }
  for (uint32_t type = 0; type < 32 && type < CU_EXEC_AFFINITY_TYPE_MAX; ++type) {
    int supported = 0;
    if (driver.cuDeviceGetExecAffinitySupport(&supported, static_cast<CUexecAffinityType>(type),
                                              gpu.device) == CUDA_SUCCESS &&
        supported) {
      out.exec_affinity_bits |= 1u << type;
    }
  }
  driver.cuCtxSetCurrent(gpu.context);
  fill_context(driver, gpu, out);
}

}  // namespace

Result<UniqueFd> Gpus::make_info_file(const std::string& workflow, bool is_sim) const {
  const uint32_t devices = count() < info::kMaxDevices ? count() : info::kMaxDevices;
  std::vector<std::byte> file(info::info_bytes(devices));
  auto* header = reinterpret_cast<info::InfoHeader*>(file.data());
  header->magic = info::kInfoMagic;
  header->driver_version = static_cast<uint32_t>(driver_version_);
  header->device_count = devices;
  header->device_stride_bytes = sizeof(info::DeviceInfo);
  header->backend_is_sim = is_sim;
  header->proxy_pid = getpid();
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  driver_.cuModuleGetLoadingMode(&mode);
  header->module_loading_mode = mode;
  std::snprintf(header->workflow, sizeof(header->workflow), "%s", workflow.c_str());
  auto* device = reinterpret_cast<info::DeviceInfo*>(header + 1);
  for (uint32_t i = 0; i < devices; ++i) fill_device(driver_, *this, *gpus_[i], device[i]);
  if (!gpus_.empty()) driver_.cuCtxSetCurrent(gpus_[0]->context);
  return shared::create_constant_file("tube-info", file.data(), file.size());
}

}  // namespace tube::proxy

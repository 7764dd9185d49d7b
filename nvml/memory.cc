// A GPU's memory: the real library's answer, made to agree with cuMemGetInfo of the same process.
#include "nvml/memory.h"

#include "nvml/nvml_abi.h"
#include "nvml/proxy_view.h"
#include "nvml/real_nvml.h"

namespace tube::nvml {

bool read_uuid(nvmlDevice_t device, char uuid[kUuidBytes]) {
  auto* get = real<nvmlReturn_t(nvmlDevice_t, char*, unsigned)>("nvmlDeviceGetUUID");
  uuid[0] = '\0';
  return get != nullptr && get(device, uuid, kUuidBytes) == NVML_SUCCESS;
}

namespace {

// False: nothing to change. What the driver keeps for itself counts as used, as in the real answer.
bool see(nvmlDevice_t device, unsigned long long* total, unsigned long long* free) {
  char uuid[kUuidBytes];
  Seen seen{*free, *total};
  if (!read_uuid(device, uuid) || !ask_seen(uuid, &seen)) return false;
  *total = seen.total_bytes;
  *free = seen.free_bytes;
  return true;
}

}  // namespace
}  // namespace tube::nvml

using namespace tube::nvml;

extern "C" __attribute__((visibility("default"))) nvmlReturn_t nvmlDeviceGetMemoryInfo(
    nvmlDevice_t device, nvmlMemory_t* memory) {
  auto* get = real<nvmlReturn_t(nvmlDevice_t, nvmlMemory_t*)>("nvmlDeviceGetMemoryInfo");
  if (get == nullptr) return missing();
  const nvmlReturn_t code = get(device, memory);
  if (code != NVML_SUCCESS) return code;
  if (see(device, &memory->total, &memory->free)) memory->used = memory->total - memory->free;
  return code;
}

extern "C" __attribute__((visibility("default"))) nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(
    nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  auto* get = real<nvmlReturn_t(nvmlDevice_t, nvmlMemory_v2_t*)>("nvmlDeviceGetMemoryInfo_v2");
  if (get == nullptr) return missing();
  const nvmlReturn_t code = get(device, memory);
  if (code != NVML_SUCCESS) return code;
  const unsigned long long real_total = memory->total;
  if (!see(device, &memory->total, &memory->free)) return code;
  // A limit's total is smaller: the driver's own part lies outside of it.
  if (memory->total != real_total || memory->total - memory->free < memory->reserved)
    memory->reserved = 0;
  memory->used = memory->total - memory->free - memory->reserved;
  return code;
}

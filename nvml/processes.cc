// Processes with compute work on a GPU: natively each function would be one. The proxy, which is
// the one that the real library knows, is replaced by its functions with what they hold; what
// remains (the context, code, memory that is held ready) stays the proxy's.
#include <algorithm>
#include <vector>

#include "nvml/memory.h"
#include "nvml/nvml_abi.h"
#include "nvml/proxy_view.h"
#include "nvml/real_nvml.h"

namespace tube::nvml {
namespace {

constexpr unsigned kMostProcesses = 65536;

template <class Info>
using Call = nvmlReturn_t(nvmlDevice_t, unsigned*, Info*);

// The whole list of the real library.
template <class Info>
nvmlReturn_t read_all(Call<Info>* get, nvmlDevice_t device, std::vector<Info>* list) {
  for (unsigned room = 64; room <= kMostProcesses; room *= 2) {
    list->assign(room, Info{});
    unsigned count = room;
    const nvmlReturn_t code = get(device, &count, list->data());
    if (code == NVML_ERROR_INSUFFICIENT_SIZE) continue;
    list->resize(code == NVML_SUCCESS ? std::min(count, room) : 0);
    return code;
  }
  return NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlProcessInfo_v1_t function_info(const Holder& holder, const nvmlProcessInfo_v1_t*) {
  return {holder.pid, holder.bytes};
}
// In the same part of the GPU as the proxy.
nvmlProcessInfo_v2_t function_info(const Holder& holder, const nvmlProcessInfo_v2_t* proxy) {
  return {holder.pid, holder.bytes, proxy != nullptr ? proxy->gpuInstanceId : kNoInstance,
          proxy != nullptr ? proxy->computeInstanceId : kNoInstance};
}

template <class Info>
void show_functions(const Holders& holders, std::vector<Info>* list) {
  const auto proxy = std::find_if(list->begin(), list->end(), [&](const Info& info) {
    return info.pid == holders.proxy_pid && holders.proxy_pid != 0;
  });
  Info* known = proxy != list->end() ? &*proxy : nullptr;
  std::vector<Info> functions;
  for (const Holder& holder : holders.functions) {
    functions.push_back(function_info(holder, known));
    if (known == nullptr || known->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE) continue;
    known->usedGpuMemory -= std::min<unsigned long long>(known->usedGpuMemory, holder.bytes);
  }
  list->insert(list->end(), functions.begin(), functions.end());
}

template <class Info>
nvmlReturn_t running(const char* name, nvmlDevice_t device, unsigned* count, Info* infos) {
  auto* get = real<Call<Info>>(name);
  if (get == nullptr) return missing();
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  char uuid[kUuidBytes];
  Holders holders;
  if (!read_uuid(device, uuid) || !ask_holders(uuid, &holders)) return get(device, count, infos);
  std::vector<Info> list;
  if (const nvmlReturn_t code = read_all(get, device, &list); code != NVML_SUCCESS) return code;
  show_functions(holders, &list);
  const unsigned room = infos != nullptr ? *count : 0;
  *count = static_cast<unsigned>(list.size());
  if (list.size() > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::copy(list.begin(), list.end(), infos);
  return NVML_SUCCESS;
}

}  // namespace
}  // namespace tube::nvml

#define TUBE_NVML_CALL extern "C" __attribute__((visibility("default"))) nvmlReturn_t

TUBE_NVML_CALL nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned* count,
                                                    nvmlProcessInfo_v1_t* infos) {
  return tube::nvml::running("nvmlDeviceGetComputeRunningProcesses", device, count, infos);
}
TUBE_NVML_CALL nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                       nvmlProcessInfo_v2_t* infos) {
  return tube::nvml::running("nvmlDeviceGetComputeRunningProcesses_v2", device, count, infos);
}
TUBE_NVML_CALL nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                       nvmlProcessInfo_v2_t* infos) {
  return tube::nvml::running("nvmlDeviceGetComputeRunningProcesses_v3", device, count, infos);
}

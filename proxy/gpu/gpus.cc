#include "proxy/gpu/gpus.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/memory_probe.h"

namespace tube::proxy {

bool is_sticky(CUresult result) {
  switch (static_cast<int>(result)) {
    case 214:
    case 220:
    case 226:
    case 700:
    case 702:
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
    case 721:
    case 810:
    case 911: return true;
    default:  // not our enum: newer drivers know more results than this list
      return false;
  }
}

std::string result_text(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName == nullptr || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      name == nullptr)
    name = "CUresult";
  return std::string(name) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

Gpu::Gpu() = default;
Gpu::~Gpu() = default;

Gpus::Gpus(const Driver& driver) : driver_(driver), gate_(driver) {}
Gpus::~Gpus() { close(); }

Status Gpus::open() {
  MemoryProbe probe;
  if (CUresult error = driver_.cuInit(0); error == CUDA_ERROR_NO_DEVICE) {
    return errorf("no GPU: cuInit answers %s; check --gpus and CUDA_VISIBLE_DEVICES",
                  result_text(driver_, error).c_str());
  } else if (error != CUDA_SUCCESS) {
    return errorf("the driver does not start: cuInit answers %s",
                  result_text(driver_, error).c_str());
  }
  int count = 0;
  if (CUresult error = driver_.cuDeviceGetCount(&count); error != CUDA_SUCCESS || count == 0) {
    return errorf(
        "no GPU: cuDeviceGetCount answers %s, count %d; check --gpus and CUDA_VISIBLE_DEVICES",
        result_text(driver_, error).c_str(), count);
  }
  driver_.cuDriverGetVersion(&driver_version_);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (Status status = open_gpu(ordinal, probe); !status.ok()) return status;
  }
  enable_peers();
  return {};
}

Status Gpus::open_gpu(int ordinal, MemoryProbe& probe) {
  Gpu& gpu = *gpus_.emplace_back(std::make_unique<Gpu>());
  gpu.ordinal = ordinal;
  CUresult error = driver_.cuDeviceGet(&gpu.device, ordinal);
  if (driver_.cuDeviceGetUuid_v2(&gpu.uuid, gpu.device) != CUDA_SUCCESS) gpu.uuid = {};
  const std::optional<uint64_t> before = probe.free_bytes(uuid_text(gpu.uuid));
  if (error == CUDA_SUCCESS) error = driver_.cuDevicePrimaryCtxRetain(&gpu.context, gpu.device);
  if (error != CUDA_SUCCESS) {
    return errorf("GPU %d: no context: %s", ordinal, result_text(driver_, error).c_str());
  }
  char name[256] = {};
  driver_.cuDeviceGetName(name, sizeof(name), gpu.device);
  gpu.name = name;
  size_t total = 0;
  driver_.cuDeviceTotalMem_v2(&total, gpu.device);
  gpu.total_bytes = total;
  const std::optional<uint64_t> after = before ? probe.free_bytes(uuid_text(gpu.uuid)) : before;
  if (before && after) gpu.context_bytes = *before - std::min(*before, *after);
  int major = 0;
  int minor = 0;
  driver_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.device);
  driver_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu.device);
  gpu.capability = major * 10 + minor;
  capabilities_.push_back(gpu.capability);
  driver_.cuCtxSetCurrent(gpu.context);
  return {};
}

void Gpus::enable_peers() {
  for (const std::unique_ptr<Gpu>& one : gpus_) {
    Gpu& gpu = *one;
    CUmemAccessDesc own{};
    own.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    own.location.id = gpu.device;
    own.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    gpu.access.push_back(own);
    for (const std::unique_ptr<Gpu>& other : gpus_) {
      Gpu& peer = *other;
      int reachable = 0;
      if (&peer == &gpu ||
          driver_.cuDeviceCanAccessPeer(&reachable, peer.device, gpu.device) != CUDA_SUCCESS ||
          !reachable)
        continue;
      driver_.cuCtxSetCurrent(peer.context);
      CUresult error = driver_.cuCtxEnablePeerAccess(gpu.context, 0);
      if (error != CUDA_SUCCESS && error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        log_warn("GPU %d cannot reach GPU %d: %s", peer.ordinal, gpu.ordinal,
                 result_text(driver_, error).c_str());
        continue;
      }
      CUmemAccessDesc desc = own;
      desc.location.id = peer.device;
      gpu.access.push_back(desc);
    }
  }
  if (!gpus_.empty()) driver_.cuCtxSetCurrent(gpus_[0]->context);
}

bool Gpus::reaches(uint32_t gpu, uint32_t owner) const {
  if (gpu == owner || gpu >= count() || owner >= count()) return true;
  for (const CUmemAccessDesc& access : gpus_[owner]->access) {
    if (access.location.id == gpus_[gpu]->device) return true;
  }
  return false;
}

void Gpus::close() {
  for (const std::unique_ptr<Gpu>& one : gpus_) {
    Gpu& gpu = *one;
    if (gpu.context != nullptr) driver_.cuDevicePrimaryCtxRelease_v2(gpu.device);
    gpu.context = nullptr;
  }
  gpus_.clear();
}

std::string uuid_text(const CUuuid& uuid) {
  char out[48];
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  std::snprintf(out, sizeof(out),
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
  return out;
}

}  // namespace tube::proxy

#include "proxy/gpu/memory_probe.h"

#include <dlfcn.h>

#include <vector>

#include "base/driver_file.h"
#include "base/env.h"
#include "base/log.h"
#include "proxy/common/contained.h"

namespace tube::proxy {

namespace {

constexpr char kFile[] = "libnvidia-ml.so.1";

std::vector<std::string> candidates() {
  const char* named = env_text(Env::kRealNvml);
  return named != nullptr ? search_library(kFile, named).found : beside_driver(kFile);
}

template <class F>
bool take(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

MemoryProbe::MemoryProbe() {
  (void)contained("the start of NVML", [this] {
    loading_ = std::thread([this] { (void)contained("the start of NVML", [this] { load(); }); });
  });
}

MemoryProbe::~MemoryProbe() {
  if (loading_.joinable()) loading_.join();
  if (ready_) shut_down_();
  if (library_ != nullptr) dlclose(library_);
}

void MemoryProbe::load() {
  for (const std::string& path : candidates()) {
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
  }
  int (*start)() = nullptr;
  if (library_ == nullptr || !take(library_, "nvmlInit_v2", &start) ||
      !take(library_, "nvmlShutdown", &shut_down_) ||
      !take(library_, "nvmlDeviceGetHandleByUUID", &by_uuid_) ||
      !take(library_, "nvmlDeviceGetMemoryInfo", &memory_))
    return;
  const int code = start();
  ready_ = code == 0;
  if (!ready_) log_info("NVML does not start (%d): what contexts take is not known", code);
}

std::optional<uint64_t> MemoryProbe::free_bytes(const std::string& uuid) {
  if (loading_.joinable()) loading_.join();
  void* device = nullptr;
  Memory memory{};
  if (!ready_ || by_uuid_(uuid.c_str(), &device) != 0 || memory_(device, &memory) != 0) return {};
  return memory.free;
}

}  // namespace tube::proxy

// The NVIDIA driver: the library, what it says of itself and its GPUs, and the device nodes it
// needs.
//
// The library is loaded into tubectl and asked directly; no context is made, so no GPU memory is
// used.
#include <dirent.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/driver_file.h"
#include "tools/tubectl/doctor.h"
#include "tools/tubectl/format.h"

namespace tube::ctl {
namespace {

// The few calls needed, by their exported names; CUresult is an int and CUdevice is one too.
struct DriverCalls {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*device_memory)(size_t*, int) = nullptr;
  int (*error_name)(int, const char**) = nullptr;

  bool load(void* library) {
    auto get = [library](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return get(init, "cuInit") && get(version, "cuDriverGetVersion") &&
           get(device_count, "cuDeviceGetCount") && get(device_name, "cuDeviceGetName") &&
           get(device_memory, "cuDeviceTotalMem_v2") && get(error_name, "cuGetErrorName");
  }
  std::string name(int error) const {
    const char* text = nullptr;
    error_name(error, &text);
    return fmt::format("{} ({})", text != nullptr ? text : "unknown error", error);
  }
};

void check_gpus(Findings& findings, const DriverCalls& calls) {
  int count = 0;
  if (int error = calls.init(0); error != 0) {
    findings.push_back({Severity::kProblem, "GPUs", "cuInit answers " + calls.name(error),
                        error == 100 ? "no GPU is visible here: check CUDA_VISIBLE_DEVICES and how "
                                       "the container was given its GPUs"
                                     : "check that kernel module and driver library are of one "
                                       "version (nvidia-smi) and the device nodes below"});
    return;
  }
  if (int error = calls.device_count(&count); error != 0) {
    findings.push_back({Severity::kProblem, "GPUs", "cuDeviceGetCount answers " + calls.name(error),
                        "check nvidia-smi"});
    return;
  }
  for (int device = 0; device < count; ++device) {
    char name[128] = "";
    size_t memory = 0;
    calls.device_name(name, sizeof name, device);
    calls.device_memory(&memory, device);
    findings.push_back({Severity::kFine, fmt::format("GPU {}", device),
                        fmt::format("{}, {}", name, human_bytes(memory)), ""});
  }
}

void check_device_nodes(Findings& findings, bool driver_found) {
  DIR* dir = opendir("/dev");
  std::vector<std::string> closed;
  size_t gpus = 0;
  while (const dirent* entry = dir != nullptr ? readdir(dir) : nullptr) {
    std::string name = entry->d_name;
    bool gpu = name.starts_with("nvidia") && name.size() > 6 &&
               std::all_of(name.begin() + 6, name.end(), isdigit);
    if (!gpu && name != "nvidiactl" && name != "nvidia-uvm") continue;
    gpus += gpu;
    if (access(("/dev/" + name).c_str(), R_OK | W_OK) != 0) closed.push_back("/dev/" + name);
  }
  if (dir != nullptr) closedir(dir);
  for (const std::string& path : closed) {
    findings.push_back(
        {Severity::kProblem, "device node",
         fmt::format("{}: no read and write permission for user {}", path, getuid()),
         "add the user to the group that owns it (ls -l " + path + "), or ask for mode 0666"});
  }
  if (gpus > 0 && closed.empty())
    findings.push_back({Severity::kFine, "device nodes",
                        fmt::format("{} GPU(s) under /dev, all can be opened", gpus), ""});
  if (gpus == 0 && driver_found) {
    findings.push_back(
        {Severity::kProblem, "device nodes", "a driver library is here but no /dev/nvidia0",
         "load the kernel module (nvidia-smi does), or give the container its GPUs"});
  }
}

}  // namespace

void check_driver(Findings& findings) {
  const DriverSearch search = search_driver();
  check_device_nodes(findings, !search.found.empty());
  if (search.found.empty()) {
    findings.push_back(
        {Severity::kNote, "driver",
         fmt::format("no NVIDIA driver: looked for libcuda.so.1 in {} places",
                     search.looked_in.size()),
         "proxies here use the simulated GPU where there is no /dev/nvidia*, and else do not "
         "start; "
         "programs that use the CUDA runtime (cudart, PyTorch) cannot start; "
         "if the driver is elsewhere, point at it with TUBE_REAL_DRIVER=/path/libcuda.so.1"});
    return;
  }
  const std::string& path = search.found.front();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  DriverCalls calls;
  if (library == nullptr || !calls.load(library)) {
    findings.push_back({Severity::kProblem, "driver",
                        fmt::format("{} cannot be used: {}", path,
                                    library == nullptr ? dlerror() : "it lacks driver calls"),
                        "reinstall the driver, or point at another one with TUBE_REAL_DRIVER"});
    return;
  }
  int version = 0;
  calls.version(&version);
  bool new_enough = version >= 13000;
  findings.push_back({new_enough ? Severity::kFine : Severity::kProblem, "driver",
                      fmt::format("{}, CUDA {}.{}", path, version / 1000, version % 1000 / 10),
                      new_enough ? "" : "Tube is made for CUDA 13.0: install driver 580 or newer"});
  check_gpus(findings, calls);
}

}  // namespace tube::ctl

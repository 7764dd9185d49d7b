// NVML of a machine that a file describes (TUBE_SIM_NVML=PATH), read anew at each question:
//
//   gpu UUID TOTAL FREE RESERVED     one line a GPU, in NVML's order; bytes. UUID *: any. FREE may
//   be
//                                    A,B: A at a process's first question, then B
//   process GPU PID BYTES            a process with compute work on it
//
// As many calls as tests need, with NVML's signatures and codes; the rest is not exported, as in an
// old version.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalid = 2, kTooSmall = 7;

struct Process {
  unsigned pid;
  unsigned long long bytes;
};
struct Gpu {
  std::string uuid;
  unsigned long long total, free, later, reserved;
  std::vector<Process> processes;
};

int users = 0;

std::vector<Gpu> machine() {
  std::vector<Gpu> gpus;
  const char* path = std::getenv("TUBE_SIM_NVML");
  std::ifstream file(path != nullptr ? path : "");
  std::string line, word;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    in >> word;
    if (word == "gpu") {
      Gpu gpu;
      in >> gpu.uuid >> gpu.total >> gpu.free;
      gpu.later = gpu.free;
      if (in.peek() == ',') in.ignore() >> gpu.later;
      in >> gpu.reserved;
      gpus.push_back(gpu);
    } else if (word == "process") {
      size_t index = 0;
      Process process{};
      in >> index >> process.pid >> process.bytes;
      if (index < gpus.size()) gpus[index].processes.push_back(process);
    }
  }
  return gpus;
}

// A device is its index, counted from 1.
int find(void* device, Gpu* gpu) {
  if (users == 0) return kUninitialized;
  const std::vector<Gpu> gpus = machine();
  const auto index = reinterpret_cast<uintptr_t>(device);
  if (index == 0 || index > gpus.size()) return kInvalid;
  *gpu = gpus[index - 1];
  return kSuccess;
}

template <class Info>
int list(void* device, unsigned* count, Info* infos) {
  Gpu gpu;
  if (const int code = find(device, &gpu); code != kSuccess) return code;
  const unsigned room = infos != nullptr ? *count : 0;
  *count = static_cast<unsigned>(gpu.processes.size());
  if (*count > room) return kTooSmall;
  for (unsigned i = 0; i < *count; ++i) {
    std::memset(&infos[i], 0xff, sizeof infos[i]);
    infos[i].pid = gpu.processes[i].pid;
    infos[i].bytes = gpu.processes[i].bytes;
  }
  return kSuccess;
}

struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Info1 {
  unsigned pid;
  unsigned long long bytes;
};
struct Info2 {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

#define NVML extern "C" __attribute__((visibility("default")))

NVML int nvmlInit_v2() {
  ++users;
  return kSuccess;
}
NVML int nvmlShutdown() {
  if (users == 0) return kUninitialized;
  --users;
  return kSuccess;
}
NVML const char* nvmlErrorString(int code) { return code == kSuccess ? "Success" : "An Error"; }
NVML int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine().size());
  return users != 0 ? kSuccess : kUninitialized;
}
NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  Gpu gpu;
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return find(*device, &gpu);
}
NVML int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  Gpu gpu;
  if (const int code = find(device, &gpu); code != kSuccess) return code;
  if (gpu.uuid.size() >= length) return kTooSmall;
  std::memcpy(uuid, gpu.uuid.c_str(), gpu.uuid.size() + 1);
  return kSuccess;
}
NVML int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const std::vector<Gpu> gpus = machine();
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid != "*" && gpus[i].uuid != uuid) continue;
    *device = reinterpret_cast<void*>(i + 1);
    return users != 0 ? kSuccess : kUninitialized;
  }
  return kInvalid;
}
NVML int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  static int asked = 0;
  Gpu gpu;
  if (const int code = find(device, &gpu); code != kSuccess) return code;
  const unsigned long long free = asked++ == 0 ? gpu.free : gpu.later;
  *memory = {gpu.total, free, gpu.total - free};
  return kSuccess;
}
NVML int nvmlDeviceGetMemoryInfo_v2(void* device, Memory2* memory) {
  Gpu gpu;
  if (const int code = find(device, &gpu); code != kSuccess) return code;
  *memory = {memory->version, gpu.total, gpu.reserved, gpu.free,
             gpu.total - gpu.free - gpu.reserved};
  return kSuccess;
}
NVML int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, Info1* infos) {
  return list(device, count, infos);
}
NVML int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Info2* infos) {
  return list(device, count, infos);
}
// Many arguments, of both kinds: what an entry that passes calls on must not lose.
NVML double nvmlDeviceGetSamples(void* device, int a, unsigned long long b, void* c, unsigned* d,
                                 long e, long f, long g, double x, double y) {
  return static_cast<double>(reinterpret_cast<uintptr_t>(device)) + 2 * a +
         3 * static_cast<double>(b) + 5 * static_cast<double>(reinterpret_cast<uintptr_t>(c)) +
         7 * static_cast<double>(reinterpret_cast<uintptr_t>(d)) + 11 * static_cast<double>(e) +
         13 * static_cast<double>(f) + 17 * static_cast<double>(g) + 19 * x + 23 * y;
}

// NVML in the proxy, while it starts: how much of a GPU's memory is free before and after the
// context is made, which CUDA itself cannot say without one.
//
// NVIDIA's library is loaded on a thread while the driver starts (tens of milliseconds), and is
// given back when the probe goes. On a machine without it, and with the simulated GPU unless
// TUBE_REAL_NVML names one, nothing is known. One thread asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace tube::proxy {

class MemoryProbe {
 public:
  MemoryProbe();
  ~MemoryProbe();
  MemoryProbe(const MemoryProbe&) = delete;
  MemoryProbe& operator=(const MemoryProbe&) = delete;

  // Of the GPU "GPU-...". The first question waits until the library has started.
  std::optional<uint64_t> free_bytes(const std::string& uuid);

 private:
  struct Memory {
    unsigned long long total, free, used;
  };
  void load();

  std::thread loading_;
  void* library_ = nullptr;
  bool ready_ = false;
  int (*shut_down_)() = nullptr;
  int (*by_uuid_)(const char*, void**) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
};

}  // namespace tube::proxy

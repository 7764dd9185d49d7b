// The real libcuda.so.1 in this process, loaded only to answer cudart's own validity check
// (docs/facts.md): cuInit is called, nothing else; no context, no GPU memory.
//
// cuInit takes 100 to 210 ms. `tubectl run` sets TUBE_PREINIT=1, which starts it in the background
// when the program is loaded (preinit.cc); otherwise the first cudart call pays for it. Started, it
// answers nothing in a child of fork(2), natively too, where a program forks before it starts it.
// So a child whose parent had loaded it loads it again, from a copy of its file in memory (some 90
// MB a child).
#pragma once

#include <string>

#include "base/cuda_api.h"
#include "base/result.h"

namespace tube::hook {

struct RealDriver {
  void* library = nullptr;
  std::string path;
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*get_export_table)(const void**, const CUuuid*) = nullptr;
  CUresult (*device_get_count)(int*) = nullptr;
  CUresult (*device_get_uuid)(CUuuid*, CUdevice) = nullptr;
};

// Loads it (base/driver_file.h says from where), once. The error lists where it was looked for. Any
// thread; blocks while another thread loads.
Result<const RealDriver*> load_real_driver();
// Loads it and calls its cuInit, once, showing it exactly `visible` ("GPU-..,GPU-.."; empty: leave
// the environment alone).
Result<const RealDriver*> start_real_driver(const std::string& visible);
// Until the start that TUBE_PREINIT asked for is over, some seconds at most; for exit handlers.
void wait_for_early_start();
// The GPUs this program sees, as CUDA_VISIBLE_DEVICES text.
std::string visible_uuids();

}  // namespace tube::hook

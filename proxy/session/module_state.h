// What the proxy keeps about a client's libraries, modules and kernels.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/code/image_scan.h"
#include "proxy/code/module_cache.h"
#include "proxy/launch/launch_notes.h"
#include "proxy/launch/launch_watch.h"
#include "proxy/session/objects.h"

namespace tube::proxy {

// A managed variable of a module, and where in the client's pinned slot it lives.
struct PlacedVariable {
  std::string name;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// Those of one module (calls/managed_variables.h).
struct PlacedVariables {
  uint64_t storage = 0;  // in the pinned slot; 0: none
  std::vector<PlacedVariable> variables;
};

struct ModuleState final : ObjectState {
  std::shared_ptr<LoadedModule> module;
  std::shared_ptr<LoadedModule> before;  // a shared one that the client left, while nodes of its
                                         // graphs may have functions of it
  std::vector<uint64_t> globals;         // bases of the variables the client asked for, in Ranges
  PlacedVariables managed;               // with storage in the client's pinned slot
};

struct KernelState final : ObjectState {
  KernelState() = default;
  KernelState(const KernelState&) = default;
  KernelState& operator=(const KernelState&) = delete;
  ~KernelState() override {
    if (launches != nullptr) launches->forget(name.get());
  }

  CUfunction function = nullptr;  // a CUkernel cast, or a module's function: both launch
  CUfunction former =
      nullptr;  // before its module became the client's own, if nodes of graphs may have it
  bool is_library_kernel = false;
  uint64_t on_gpus = 0;  // a library's: bit per GPU where it is known to be loaded
  bool shared = false;   // its module serves others as well
  // Of dynamic shared memory on a GPU, as the client of a shared module knows it; kNoLimit: the
  // driver names none, or nobody has asked there.
  static constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  int32_t dynamic_limit(uint32_t gpu) const {
    return gpu < dynamic_limits.size() ? dynamic_limits[gpu] : kNoLimit;
  }
  void set_dynamic_limit(uint32_t gpu, int32_t bytes) {
    if (dynamic_limits.size() <= gpu) dynamic_limits.resize(gpu + 1, kNoLimit);
    dynamic_limits[gpu] = bytes;
  }
  std::vector<int32_t> dynamic_limits;  // by GPU
  LoadedKernel* loaded = nullptr;       // lives as long as its module
  std::shared_ptr<const std::string> name;
  LaunchNotes* launches = nullptr;  // of its session; nullptr: unit tests
  uint32_t parameter_count = 0;
  uint32_t parameter_bytes = 0;  // end of the last parameter
  uint32_t local_bytes = 0;      // of local memory per thread
  uint32_t writes = 0;           // wire::kKernelPrints, wire::kKernelAsserts
  ImageFacts::Runtime runtime;   // what it uses of the device runtime
  LaunchWatch watch;             // for how long it runs
  uint64_t used_on = 0;          // bit per GPU: launched there, while what it uses is not certain
};

}  // namespace tube::proxy

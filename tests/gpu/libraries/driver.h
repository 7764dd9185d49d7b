// What the compiler libraries' cases need of the driver API: loading an image they made and
// launching kernels of it.
#pragma once
#include <cuda.h>

#include "case.h"

namespace library {

// A module in the runtime's context; unloaded with the object.
class Module {
 public:
  explicit Module(const std::string& image) {
    check(cudaFree(nullptr), "cudaFree", __LINE__);
    check(cuModuleLoadData(&module_, image.c_str()), "cuModuleLoadData", __LINE__);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() { cuModuleUnload(module_); }
  CUfunction function(const char* name) const {
    CUfunction found = nullptr;
    check(cuModuleGetFunction(&found, module_, name), name, __LINE__);
    return found;
  }
  CUdeviceptr global(const char* name, size_t* size_bytes) const {
    CUdeviceptr found = 0;
    check(cuModuleGetGlobal(&found, size_bytes, module_, name), name, __LINE__);
    return found;
  }

 private:
  CUmodule module_ = nullptr;
};

template <typename... Arguments>
void launch(CUfunction function, unsigned grid, unsigned block, unsigned shared_bytes,
            Arguments... arguments) {
  void* addresses[] = {&arguments...};
  check(
      cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared_bytes, nullptr, addresses, nullptr),
      "cuLaunchKernel", __LINE__);
}

// The device's architecture as the compilers name it: prefix_90 for compute capability 9.0.
inline std::string architecture(const char* prefix) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
        "cudaDeviceGetAttribute", __LINE__);
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0),
        "cudaDeviceGetAttribute", __LINE__);
  return std::string(prefix) + "_" + std::to_string(major * 10 + minor);
}

}  // namespace library

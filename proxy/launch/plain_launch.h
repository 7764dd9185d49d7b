// One kernel launch in the form the driver takes it, for a launch, for a kernel node of a graph,
// and for a held launch that becomes one (coalescer.h). Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cuda_api.h"

namespace tube::proxy {

struct PlainLaunch {
  CUfunction function = nullptr;  // or a CUkernel, cast
  bool is_library_kernel = false;
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t shared_bytes = 0;

  bool operator==(const PlainLaunch&) const = default;
};

// Packed parameters as `extra`. Points into itself and into the bytes it was made of: keep both
// until the driver has returned.
class PackedParameters {
 public:
  explicit PackedParameters(std::span<const std::byte> parameters)
      : bytes_(parameters.size()),
        extra_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(parameters.data()),
               CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_END} {}
  PackedParameters(const PackedParameters&) = delete;
  PackedParameters& operator=(const PackedParameters&) = delete;

  // nullptr for a kernel without parameters.
  void** extra() { return bytes_ != 0 ? extra_ : nullptr; }

 private:
  size_t bytes_;
  void* extra_[5];
};

inline CUDA_KERNEL_NODE_PARAMS_v2 kernel_node(const PlainLaunch& launch) {
  CUDA_KERNEL_NODE_PARAMS_v2 node{};
  if (launch.is_library_kernel) {
    node.kern = reinterpret_cast<CUkernel>(launch.function);
  } else {
    node.func = launch.function;
  }
  node.gridDimX = launch.grid[0];
  node.gridDimY = launch.grid[1];
  node.gridDimZ = launch.grid[2];
  node.blockDimX = launch.block[0];
  node.blockDimY = launch.block[1];
  node.blockDimZ = launch.block[2];
  node.sharedMemBytes = launch.shared_bytes;
  return node;
}
inline CUDA_KERNEL_NODE_PARAMS_v2 kernel_node(const PlainLaunch& launch,
                                              PackedParameters& parameters) {
  CUDA_KERNEL_NODE_PARAMS_v2 node = kernel_node(launch);
  node.extra = parameters.extra();
  return node;
}

}  // namespace tube::proxy

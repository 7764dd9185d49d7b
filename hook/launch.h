// Packing a launch, shared by launches and by graph kernel nodes.
#pragma once

#include "hook/kernels.h"

namespace tube::hook {

struct LaunchShape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

// 0, or the code the driver gives at once for a grid, block or shared memory it cannot run.
CUresult check_launch(const Kernel* kernel, const LaunchShape& shape);
// How many bytes of parameters there are; with `extra` those that the program packed itself.
CUresult parameter_bytes(const Kernel* kernel, void** params, void** extra, uint32_t* bytes);
void pack_parameters(const Kernel* kernel, void** params, void** extra, uint32_t bytes, std::byte* out);

}  // namespace tube::hook

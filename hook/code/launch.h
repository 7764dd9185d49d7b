// Packing a launch, shared by launches and by graph kernel nodes.
#pragma once

#include "hook/objects/kernels.h"

namespace tube::hook {

struct LaunchShape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

// Grid, block and shared memory that the driver will take. If not, the caller waits for the
// driver's own answer.
bool surely_launchable(Kernel* kernel, const LaunchShape& shape);
// How many bytes of parameters there are; with `extra` those that the program packed itself.
CUresult parameter_bytes(const Kernel* kernel, void** params, void** extra, uint32_t* bytes);
void pack_parameters(const Kernel* kernel, void** params, void** extra, uint32_t bytes,
                     std::byte* out);

}  // namespace tube::hook

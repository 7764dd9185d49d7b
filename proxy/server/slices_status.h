// What the control socket says of slices (gpu/gpu_slices.h). Any thread.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

namespace tube::proxy {

class GpuSlices;

// Of a GPU: who holds which part, what the others have, and which splits are there.
nlohmann::json gpu_slices_json(const GpuSlices& slices, uint32_t gpu);
// Of a function: the parts that it holds, by GPU.
nlohmann::json function_slices_json(const GpuSlices& slices, uint64_t session);

}  // namespace tube::proxy

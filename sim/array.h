// CUDA arrays: plain pitched memory here, since nothing but copies reads them.
#pragma once

#include "sim/state.h"

namespace tube::sim {

// Bytes per element of a format and channel count, 0 when the format has no plain layout.
uint64_t array_element_bytes(CUarray_format format, unsigned channels);

}  // namespace tube::sim

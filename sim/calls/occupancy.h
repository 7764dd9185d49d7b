// How many blocks fit on a multiprocessor: NVIDIA's occupancy rules for threads, registers, shared
// memory and slots.
#pragma once

#include "sim/calls/function.h"

namespace tube::sim {

// 0 when not even one block fits.
int blocks_per_sm(const Function& f, const Device& device, uint32_t threads,
                  uint64_t dynamic_shared);

}  // namespace tube::sim

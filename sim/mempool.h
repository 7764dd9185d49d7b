// Pool memory for stream-ordered allocation and for graph allocation nodes.
#pragma once

#include <memory>

#include "sim/state.h"

namespace tube::sim {

// With the lock held.
CUresult pool_allocate(State& s, Pool* pool, uint64_t bytes, CUdeviceptr* dptr);
// Frees the address when the last graph that allocates it is gone. Destroyed with the lock held.
std::shared_ptr<void> graph_memory(CUdeviceptr address);

}  // namespace tube::sim

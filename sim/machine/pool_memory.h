// Pool memory for stream-ordered allocation and for graph allocation nodes.
#pragma once

#include <memory>

#include "sim/machine/state.h"

namespace tube::sim {

// With the lock held.
CUresult pool_allocate(State& s, Pool* pool, uint64_t bytes, CUdeviceptr* dptr);
// What the pool says it keeps back beyond what is used: at most `keep` bytes.
void shrink_pool(Pool* pool, uint64_t keep);

// Memory of an allocation node. The address lives as long as a graph has the node, the allocation
// from a launch to its free.
struct GraphAllocation {
  CUdeviceptr address = 0;
  bool allocated = false;    // by a launch, and not freed since
  bool graph_frees = false;  // some graph has a free node for it
};
// Gives the address back when the last graph with the node is gone; what is allocated then stays
// until the program frees it. Destroyed with the lock held.
std::shared_ptr<GraphAllocation> graph_memory(CUdeviceptr address);
// nullptr: not of a graph. With the lock held.
GraphAllocation* graph_allocation(CUdeviceptr address);

}  // namespace tube::sim

// Conditional graph nodes: a handle's value, set by kernels, decides which body graph a node runs,
// and how often.
//
// Values belong to handles, not to instances: launches of one graph follow each other anyway. Any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/graphs/graph.h"

namespace tube::sim {

// Kernels' cudaGraphSetConditional. Unknown handles are ignored. Without the lock.
void set_conditional(uint64_t handle, uint32_t value);

// The node's work from its parameters, with empty body graphs. With the lock held.
CUresult conditional_work(CUDA_CONDITIONAL_NODE_PARAMS* p, Work* work);
// The body that the value chooses now, or nullptr.
const Graph* chosen_body(const ConditionalWork& work);
// The handles below `graph` that get their default value at each launch.
std::vector<uint64_t> defaulted_handles(const Graph& graph);
void assign_defaults(const std::vector<uint64_t>& handles);
// A handle made for this graph that no node took.
bool has_unused_handle(const Graph& graph);
// CUDA_ERROR_INVALID_VALUE when a body holds a type of node that it may not.
CUresult check_bodies(const Graph& graph);

}  // namespace tube::sim

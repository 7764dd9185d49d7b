// What call_graph.cc offers to the typed node calls (call_graph_node.cc).
#pragma once

#include <cstddef>

#include "base/cuda_api.h"

namespace tube::hook {

// A kernel node behind `count` dependencies; `edges`: one per dependency, or nullptr for plain ones. Waits for the proxy.
CUresult add_kernel_node(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS* params);

}  // namespace tube::hook

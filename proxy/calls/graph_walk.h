// Looks into a client's graphs and the graphs inside their nodes: how much the driver holds of
// them, and where a node lies.
//
// A child graph, a clone and an instance are copies that the driver makes: one call brings as many
// nodes as the graph has, and the next one twice as many. Each copy is counted with the object that
// it ends with (Objects::weigh): the child graph's node, the clone, the instance. Nodes with an id
// have a limit of their own (client_limits.h). Session thread only.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube::proxy {

class Session;

// Whether the client may have one more copy of the graph: CUDA_ERROR_OUT_OF_MEMORY at its limit.
// *nodes: what the copy weighs, at least 1. Ask before the driver makes it. Looks at every node
// only for clients that have graphs inside others, or clones.
CUresult admit_copy(Session& session, CUgraph graph, uint64_t* nodes);

// Whether the client's graph `id` is `parent` or has it somewhere inside: it cannot move there.
bool is_around(Session& session, uint64_t id, uint64_t parent);

// The id of a node that the driver named, somewhere in the client's graph `id`; it ends with the
// graph that it lies in. Of a copy with a step, the node that the client knows. 0: none, or the
// limit.
uint64_t name_node_inside(Session& session, uint64_t id, CUgraphNode node);

}  // namespace tube::proxy

// In which part of its GPU an instance of a client's graph runs (gpu/placement.h).
//
// A node runs in its own context, whatever stream its instance is launched into, and an instance
// keeps the contexts of its nodes: changes and updates that name another one are refused
// (bench/slices/probe, docs/decisions/0020-slices.md). So all nodes of a graph are brought into one
// context before an instance is made of it: that of the part where the client's streams are; and
// into the instance's before that is updated. The client sees none of it: its graphs, their nodes
// and what it is told about them are the same.
//
// Nothing is asked or done while no function of the GPU ever held a part. Session thread only.
#pragma once

#include "base/cuda_api.h"

namespace tube::proxy {

struct ExecState;
class Session;

// The context of an instance that is made now; nullptr: the GPU's shared one.
CUcontext instance_context(Session& session);
// Of an instance that is there. `state` may be nullptr.
CUcontext instance_context(const ExecState* state);
// All nodes of the graph and of its child graphs come into `context` (nullptr: the GPU's shared
// one). A node that the driver refuses stays, and bodies of conditional nodes do: they have to be
// where the conditional node is, in the shared one.
void bring_nodes(Session& session, CUgraph graph, CUcontext context);

}  // namespace tube::proxy

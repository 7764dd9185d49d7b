// What other chapters ask of call_capture.cc beyond state.h.
#pragma once

#include "hook/objects/state.h"

namespace tube::hook {

// Asks the proxy for the capture's graph and the nodes the next operation of `stream` will depend
// on.
CUresult capture_graph_info(Stream* stream, CUgraph* graph_out,
                            const CUgraphNode** dependencies_out, const CUgraphEdgeData** edges_out,
                            size_t* count_out);

// For an operation that goes into `stream`, and into its capture: the legacy stream may hold up
// captures of others, and a broken capture takes nothing any more.
CUresult admit_operation(const Stream* stream);
// The driver refused a launch into `stream`: that breaks its capture.
void operation_refused(const Stream* stream);

}  // namespace tube::hook

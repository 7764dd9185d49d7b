// What other chapters ask of call_capture.cc beyond state.h.
#pragma once

#include "hook/state.h"

namespace tube::hook {

// Asks the proxy for the capture's graph and the nodes the next operation of `stream` will depend on.
CUresult capture_graph_info(Stream* stream, CUgraph* graph_out, const CUgraphNode** dependencies_out,
                            const CUgraphEdgeData** edges_out, size_t* count_out);

}  // namespace tube::hook

// What a capture's graph holds so far, for calls that add to it.
#pragma once

#include "hook/calls/capture_info.h"
#include "hook/objects/capture.h"

namespace tube::hook {

// Asks the proxy for the capture's graph and the nodes the next operation of `stream` will depend
// on.
CUresult capture_graph_info(Stream* stream, CUgraph* graph_out,
                            const CUgraphNode** dependencies_out, const CUgraphEdgeData** edges_out,
                            size_t* count_out);

}  // namespace tube::hook

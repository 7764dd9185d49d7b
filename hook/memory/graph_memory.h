// Memory that graphs allocate (nodes and captured cuMemAllocAsync). Its addresses are the driver's,
// outside of the windows, and its frees go to the driver; to copies and queries of this process it
// is like a module's variable. Any thread.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"

namespace tube::hook {

struct Stream;

// An allocation node or a captured allocation got this memory.
void graph_memory_made(CUdeviceptr address, uint64_t bytes);
bool is_graph_memory(CUdeviceptr address);

// cuMemAllocAsync on a capturing stream; `device`: the proxy's ordinal. Waits for the proxy.
CUresult capture_allocation(Stream* stream, uint32_t device, uint64_t bytes, CUdeviceptr* address);
// cuMemFreeAsync on a capturing stream, or of graph memory on any. Waits for the proxy.
CUresult free_graph_memory(Stream* stream, CUdeviceptr address);
// cuMemFree of graph memory; the caller has waited for its streams.
CUresult free_graph_memory(CUdeviceptr address);

}  // namespace tube::hook

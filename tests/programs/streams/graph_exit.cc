// A program that ends in the middle of a graph: its host node leaves by _exit while more launches
// wait behind it. Whoever executed the graph must not wait for that function for ever.
#include "tests/programs/common.h"

static void leave(void* data) {
  printf("in the host node, value %d\n", *static_cast<int*>(data));
  fflush(stdout);
  _exit(7);
}

int main() {
  Gpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  std::vector<uint32_t> host(64, 2);
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  int value = 5;
  const CUDA_HOST_NODE_PARAMS params = {leave, &value};
  CUgraphNode host_node, copy_node;
  CU(cuGraphAddHostNode(&host_node, graph, nullptr, 0, &params));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = host.data();
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = data.pointer;
  copy.WidthInBytes = 256, copy.Height = 1, copy.Depth = 1;
  CU(cuGraphAddMemcpyNode(&copy_node, graph, &host_node, 1, &copy, gpu.context));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 5; ++i) CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  return 0;
}

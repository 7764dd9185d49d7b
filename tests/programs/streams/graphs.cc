// CUDA graphs: captured from two streams, built by hand, updated, launched many times.
#include "tests/programs/common.h"

static const int kCount = 3000;

static void captured(const Module& module) {
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(kCount, 1)),
      other(std::vector<uint32_t>(kCount, 2));
  CUstream main_stream, side;
  CU(cuStreamCreate(&main_stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CUevent fork, join;
  CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));

  CU(cuStreamBeginCapture(main_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CU(cuStreamIsCapturing(main_stream, &status));
  printf("capturing: %d\n", static_cast<int>(status));
  LAUNCH(step, {12}, {256}, 0, main_stream, data.pointer, 3u, 1u, kCount);
  CU(cuEventRecord(fork, main_stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  CU(cuStreamIsCapturing(side, &status));
  printf("side capturing: %d\n", static_cast<int>(status));
  LAUNCH(step, {12}, {256}, 0, side, other.pointer, 5u, 2u, kCount);
  LAUNCH(step, {12}, {256}, 0, main_stream, data.pointer, 7u, 3u, kCount);
  CU(cuEventRecord(join, side));
  CU(cuStreamWaitEvent(main_stream, join, 0));
  CU(cuMemcpyDtoDAsync(data.pointer, other.pointer, 400, main_stream));
  CU(cuMemsetD32Async(other.pointer, 77, 10, main_stream));
  CUgraph graph;
  CU(cuStreamEndCapture(main_stream, &graph));
  CU(cuStreamIsCapturing(main_stream, &status));
  printf("capturing: %d\n", static_cast<int>(status));

  size_t nodes = 0;
  CU(cuGraphGetNodes(graph, nullptr, &nodes));
  std::vector<CUgraphNode> list(nodes);
  CU(cuGraphGetNodes(graph, list.data(), &nodes));
  int kinds[16] = {};
  for (CUgraphNode node : list) {
    CUgraphNodeType type;
    CU(cuGraphNodeGetType(node, &type));
    if (static_cast<int>(type) < 16) ++kinds[static_cast<int>(type)];
  }
  printf("nodes %zu: %d kernels, %d copies, %d memsets\n", nodes, kinds[CU_GRAPH_NODE_TYPE_KERNEL],
         kinds[CU_GRAPH_NODE_TYPE_MEMCPY], kinds[CU_GRAPH_NODE_TYPE_MEMSET]);

  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  print_hash("nothing ran yet", data.read());
  for (int i = 0; i < 20; ++i) CU(cuGraphLaunch(exec, main_stream));
  CU(cuStreamSynchronize(main_stream));
  print_hash("captured data", data.read());
  print_hash("captured other", other.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuEventDestroy(fork));
  CU(cuEventDestroy(join));
  CU(cuStreamDestroy(main_stream));
  CU(cuStreamDestroy(side));
}

static void manual(const Module& module, CUcontext context) {
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(kCount, 1));
  // Pinned, so that the copy is one of the driver's; conformance cases copy to pageable memory.
  uint32_t* host = nullptr;
  CU(cuMemAllocHost(reinterpret_cast<void**>(&host), kCount * 4));
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));

  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = data.pointer;
  set.value = 4;
  set.elementSize = 4;
  set.width = kCount;
  set.height = 1;
  CUgraphNode set_node;
  CU(cuGraphAddMemsetNode(&set_node, graph, nullptr, 0, &set, context));

  CUdeviceptr pointer = data.pointer;
  uint32_t factor = 3, addend = 5;
  int count = kCount;
  void* args[] = {&pointer, &factor, &addend, &count};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = step;
  kernel.gridDimX = 12, kernel.gridDimY = 1, kernel.gridDimZ = 1;
  kernel.blockDimX = 256, kernel.blockDimY = 1, kernel.blockDimZ = 1;
  kernel.kernelParams = args;
  CUgraphNode kernel_node, last_kernel;
  CU(cuGraphAddKernelNode(&kernel_node, graph, &set_node, 1, &kernel));
  factor = 11;
  CU(cuGraphAddKernelNode(&last_kernel, graph, &kernel_node, 1, &kernel));

  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = data.pointer;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = host;
  copy.WidthInBytes = kCount * 4, copy.Height = 1, copy.Depth = 1;
  CUgraphNode copy_node, empty;
  CU(cuGraphAddMemcpyNode(&copy_node, graph, &last_kernel, 1, &copy, context));
  CU(cuGraphAddEmptyNode(&empty, graph, &copy_node, 1));

  size_t edges = 0;
  CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  size_t roots = 0;
  CU(cuGraphGetRootNodes(graph, nullptr, &roots));
  printf("manual graph: %zu edges, %zu roots\n", edges, roots);

  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  print_hash("manual", std::vector<uint32_t>(host, host + kCount));

  addend = 1000;
  CU(cuGraphExecKernelNodeSetParams(exec, last_kernel, &kernel));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  print_hash("updated", std::vector<uint32_t>(host, host + kCount));

  CUgraph clone;
  CU(cuGraphClone(&clone, graph));
  size_t nodes = 0;
  CU(cuGraphGetNodes(clone, nullptr, &nodes));
  printf("clone has %zu nodes\n", nodes);
  CU(cuGraphDestroy(clone));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(stream));
  CU(cuMemFreeHost(host));
}

static void wrong_use(const Module& module) {
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(kCount, 1));
  CUstream stream, other;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  LAUNCH(step, {12}, {256}, 0, stream, data.pointer, 3u, 1u, kCount);
  SHOW(cuStreamSynchronize(stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  SHOW(cuStreamEndCapture(other, &graph));
  SHOW(cuStreamSynchronize(stream));
  CU(cuStreamDestroy(stream));
  CU(cuStreamDestroy(other));
  print_hash("untouched", data.read());
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  captured(module);
  manual(module, gpu.context);
  wrong_use(module);
  return 0;
}

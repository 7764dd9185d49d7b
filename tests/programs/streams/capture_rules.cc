// What a capturing thread may call: each call once inside a capture of its own, then how the
// capture ends. And a capture into a graph that exists already.
#include "tests/programs/common.h"

#include <functional>

struct Rule {
  const char* name;
  std::function<CUresult()> call;
};

static void try_rule(const Rule& rule, CUstream stream, CUfunction step, CUdeviceptr data,
                     CUstreamCaptureMode mode) {
  CU(cuStreamBeginCapture(stream, mode));
  LAUNCH(step, {1}, {32}, 0, stream, data, 3u, 1u, 32);
  const CUresult code = rule.call();
  CUgraph graph = nullptr;
  const CUresult end = cuStreamEndCapture(stream, &graph);
  printf("%s: %s, the capture ends with %s\n", rule.name, code_name(code), code_name(end));
  if (graph != nullptr) CU(cuGraphDestroy(graph));
}

static void rules(const Module& module, CUstreamCaptureMode mode) {
  CUstream stream, other;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  CUevent event;
  CU(cuEventCreate(&event, 0));
  CU(cuEventRecord(event, other));
  CU(cuStreamSynchronize(other));
  const std::string path = beside_executable("kernels.fatbin");
  CUdeviceptr memory = 0;
  void* pinned = nullptr;
  CUevent made = nullptr;
  CUstream made_stream = nullptr;
  CUlibrary library = nullptr;
  CUmodule loaded = nullptr;
  size_t free_bytes, total_bytes, limit;
  uint32_t word = 7;
  int value;
  const Rule all[] = {
      {"nothing", [&] { return CUDA_SUCCESS; }},
      {"cuLibraryLoadFromFile",
       [&] {
         return cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
                                      0);
       }},
      {"cuModuleLoad", [&] { return cuModuleLoad(&loaded, path.c_str()); }},
      {"cuMemAlloc", [&] { return cuMemAlloc(&memory, 4096); }},
      {"cuMemAllocHost", [&] { return cuMemAllocHost(&pinned, 4096); }},
      {"cuEventCreate", [&] { return cuEventCreate(&made, 0); }},
      {"cuStreamCreate", [&] { return cuStreamCreate(&made_stream, CU_STREAM_NON_BLOCKING); }},
      {"cuMemGetInfo", [&] { return cuMemGetInfo(&free_bytes, &total_bytes); }},
      {"cuCtxGetLimit", [&] { return cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE); }},
      {"cuFuncGetAttribute",
       [&] { return cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, step); }},
      {"cuFuncSetAttribute",
       [&] {
         return cuFuncSetAttribute(step, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
       }},
      {"cuEventQuery of an ordinary event", [&] { return cuEventQuery(event); }},
      {"cuEventSynchronize of an ordinary event", [&] { return cuEventSynchronize(event); }},
      {"cuStreamQuery of another stream", [&] { return cuStreamQuery(other); }},
      {"cuStreamSynchronize of another stream", [&] { return cuStreamSynchronize(other); }},
      {"cuStreamQuery of the capturing stream", [&] { return cuStreamQuery(stream); }},
      {"cuStreamSynchronize of the capturing stream", [&] { return cuStreamSynchronize(stream); }},
      {"cuCtxSynchronize", [&] { return cuCtxSynchronize(); }},
      {"cuMemcpyHtoD", [&] { return cuMemcpyHtoD(data.pointer, &word, 4); }},
      {"cuMemcpyDtoH", [&] { return cuMemcpyDtoH(&word, data.pointer, 4); }},
      {"cuMemcpyDtoD", [&] { return cuMemcpyDtoD(data.pointer + 64, data.pointer, 4); }},
      {"cuMemsetD32", [&] { return cuMemsetD32(data.pointer, 1, 4); }},
      {"cuMemsetD32Async on another stream",
       [&] { return cuMemsetD32Async(data.pointer + 192, 1, 4, other); }},
      {"launch on the legacy stream",
       [&] { return try_launch(step, {1}, {32}, 0, nullptr, data.pointer, 3u, 1u, 32); }},
      {"cuMemFree", [&] { return memory == 0 ? CUDA_SUCCESS : cuMemFree(memory); }},
  };
  for (const Rule& rule : all) try_rule(rule, stream, step, data.pointer, mode);
  CU(cuCtxSynchronize());
}

static void capture_to_graph(const Module& module) {
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(1000, 1));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode first;
  CU(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  CU(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  LAUNCH(step, {4}, {256}, 0, stream, data.pointer, 3u, 1u, 1000);
  LAUNCH(step, {4}, {256}, 0, stream, data.pointer, 5u, 2u, 1000);
  CUgraph ended = nullptr;
  CU(cuStreamEndCapture(stream, &ended));
  printf("ends with %s graph\n", ended == graph ? "the same" : "another");
  size_t nodes = 0;
  CU(cuGraphGetNodes(graph, nullptr, &nodes));
  printf("%zu nodes\n", nodes);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  print_hash("captured into a graph", data.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  printf("global\n");
  rules(module, CU_STREAM_CAPTURE_MODE_GLOBAL);
  printf("relaxed\n");
  rules(module, CU_STREAM_CAPTURE_MODE_RELAXED);
  capture_to_graph(module);
  return 0;
}

// What the graph chapters share: a graph with a stream to launch it on, and the parameters most
// cases begin with.
#pragma once

#include <algorithm>
#include <map>

#include "tests/conformance/gate.h"

struct GraphGpu : Gpu {
  CUgraph graph = nullptr;
  CUstream stream = nullptr;
  GraphGpu() {
    CU(cuGraphCreate(&graph, 0));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  CUgraphExec instantiate() { return instantiate(graph); }
  CUgraphExec instantiate(CUgraph g) {
    CUgraphExec exec = nullptr;
    CU(cuGraphInstantiateWithFlags(&exec, g, 0));
    return exec;
  }
  void run(CUgraphExec exec) {
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamSynchronize(stream));
  }
  CUgraph begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    CU(cuStreamBeginCapture(stream, mode));
    return nullptr;
  }
  CUgraph end() {
    CUgraph captured = nullptr;
    CU(cuStreamEndCapture(stream, &captured));
    return captured;
  }
};

// `step` of kernels.cu on one block: data[i] = data[i] * factor + addend.
struct StepArgs {
  CUdeviceptr data;
  uint32_t factor, addend;
  int count;
  void* pointers[4] = {&data, &factor, &addend, &count};
  StepArgs(CUdeviceptr d, uint32_t f, uint32_t a, int n) : data(d), factor(f), addend(a), count(n) {}
  StepArgs(const StepArgs&) = delete;
  StepArgs& operator=(const StepArgs&) = delete;
};

inline CUDA_KERNEL_NODE_PARAMS step_params(CUfunction function, StepArgs& args) {
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = function;
  p.gridDimX = p.gridDimY = p.gridDimZ = 1;
  p.blockDimX = 64, p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = args.pointers;
  return p;
}

inline CUDA_MEMSET_NODE_PARAMS fill_params(CUdeviceptr data, uint32_t value, size_t count) {
  CUDA_MEMSET_NODE_PARAMS p{};
  p.dst = data;
  p.value = value;
  p.elementSize = 4;
  p.width = count;
  p.height = 1;
  return p;
}

inline CUDA_MEMCPY3D copy_params(CUmemorytype to, CUdeviceptr dst, CUmemorytype from, CUdeviceptr src, size_t bytes) {
  CUDA_MEMCPY3D p{};
  p.srcMemoryType = from;
  p.dstMemoryType = to;
  if (from == CU_MEMORYTYPE_HOST) p.srcHost = reinterpret_cast<const void*>(src);
  else p.srcDevice = src;
  if (to == CU_MEMORYTYPE_HOST) p.dstHost = reinterpret_cast<void*>(dst);
  else p.dstDevice = dst;
  p.WidthInBytes = bytes;
  p.Height = p.Depth = 1;
  return p;
}
inline CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

inline const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY: return "memcpy";
    case CU_GRAPH_NODE_TYPE_MEMSET: return "memset";
    case CU_GRAPH_NODE_TYPE_HOST: return "host";
    case CU_GRAPH_NODE_TYPE_GRAPH: return "graph";
    case CU_GRAPH_NODE_TYPE_EMPTY: return "empty";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return "wait event";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return "event record";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: return "semaphore signal";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return "semaphore wait";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return "alloc";
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return "free";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: return "memory operations";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return "conditional";
  }
  return "?";
}
inline const char* type_of(CUgraphNode node) {
  CUgraphNodeType type{};
  CU(cuGraphNodeGetType(node, &type));
  return type_name(type);
}

inline std::vector<CUgraphNode> nodes_of(CUgraph graph) {
  size_t count = 0;
  CU(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) CU(cuGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}
// How many nodes of each type, in the order of the names: the driver may list nodes in any order.
inline void print_types(const char* what, CUgraph graph) {
  std::map<std::string, int> counts;
  for (CUgraphNode node : nodes_of(graph)) ++counts[type_of(node)];
  printf("%s:", what);
  for (const auto& [type, count] : counts) printf(" %d %s", count, type.c_str());
  printf("\n");
}

template <typename T>
void print_values(const char* what, const std::vector<T>& values, size_t count = 4) {
  printf("%s:", what);
  for (size_t i = 0; i < count && i < values.size(); ++i) printf(" %lld", static_cast<long long>(values[i]));
  printf("\n");
}

// A host function's trace: appends a number. Host functions of one chain run one after the other.
struct Trace {
  std::vector<int> seen;
};
struct TraceEntry {
  Trace* trace;
  int number;
};
inline void CUDA_CB trace_host(void* data) {
  const auto* entry = static_cast<const TraceEntry*>(data);
  entry->trace->seen.push_back(entry->number);
}

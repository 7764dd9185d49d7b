// Instances: how they are made, and updated as a whole from another graph.
#include "tests/conformance/graph.h"

CASES_HOLD_STREAMS;

namespace {

const char* update_name(CUgraphExecUpdateResult result) {
  switch (result) {
    case CU_GRAPH_EXEC_UPDATE_SUCCESS: return "success";
    case CU_GRAPH_EXEC_UPDATE_ERROR: return "error";
    case CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED: return "topology changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED: return "type changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED: return "function changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED: return "parameters changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED: return "not supported";
    case CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE: return "unsupported function change";
    case CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED: return "attributes changed";
  }
  return "?";
}

CUgraph new_graph() {
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  return graph;
}

CUgraphNode add_fill(CUgraph graph, CUdeviceptr data, uint32_t value, CUcontext context, const CUgraphNode* behind = nullptr) {
  const auto p = fill_params(data, value, 64);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemsetNode(&node, graph, behind, behind == nullptr ? 0 : 1, &p, context));
  return node;
}

}  // namespace

CASE(update_values) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  add_fill(gpu.graph, data.pointer, 1, gpu.context);
  CUgraphExec exec = gpu.instantiate();
  CUgraph other = new_graph();
  add_fill(other, data.pointer, 2, gpu.context);
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  printf("%s, error node null %d, from null %d\n", update_name(info.result), info.errorNode == nullptr, info.errorFromNode == nullptr);
  gpu.run(exec);
  print_values("data", data.read(), 1);
}

CASE(update_v1) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  add_fill(gpu.graph, data.pointer, 1, gpu.context);
  CUgraphExec exec = gpu.instantiate();
  CUgraph other = new_graph();
  add_fill(other, data.pointer, 3, gpu.context);
  auto* update = conformance::symbol_as<CUresult(CUgraphExec, CUgraph, CUgraphNode*, CUgraphExecUpdateResult*)>("cuGraphExecUpdate");
  CUgraphNode error = nullptr;
  CUgraphExecUpdateResult result{};
  SHOW(update(exec, other, &error, &result));
  printf("%s\n", update_name(result));
  gpu.run(exec);
  print_values("data", data.read(), 1);
}

CASE(update_more_nodes) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  add_fill(gpu.graph, data.pointer, 1, gpu.context);
  CUgraphExec exec = gpu.instantiate();
  CUgraph other = new_graph();
  CUgraphNode first = add_fill(other, data.pointer, 2, gpu.context);
  add_fill(other, data.pointer, 3, gpu.context, &first);
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  printf("%s\n", update_name(info.result));
  gpu.run(exec);
  print_values("as before", data.read(), 1);
}

CASE(update_other_type) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  add_fill(gpu.graph, data.pointer, 1, gpu.context);
  CUgraphExec exec = gpu.instantiate();
  CUgraph other = new_graph();
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, other, nullptr, 0));
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  printf("%s, error node known %d\n", update_name(info.result), info.errorNode == node);
}

CASE(update_other_edges) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, &a, 1));
  CUgraphExec exec = gpu.instantiate();
  CUgraph other = new_graph();
  CU(cuGraphAddEmptyNode(&a, other, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, other, nullptr, 0));
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  printf("%s\n", update_name(info.result));
}

CASE(update_kernel) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  StepArgs first(data.pointer, 2, 0, 64), second(data.pointer, 5, 1, 64);
  auto p = step_params(module.function("step"), first);
  CUgraphNode node = nullptr;
  CU(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec exec = gpu.instantiate();
  CUgraph other = new_graph();
  p.kernelParams = second.pointers;
  CU(cuGraphAddKernelNode(&node, other, nullptr, 0, &p));
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  gpu.run(exec);
  print_values("data", data.read(), 1);
}

CASE(update_host_function) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  CUDA_HOST_NODE_PARAMS p{trace_host, &one};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec exec = gpu.instantiate();
  gpu.run(exec);
  CUgraph other = new_graph();
  p.userData = &two;
  CU(cuGraphAddHostNode(&node, other, nullptr, 0, &p));
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  gpu.run(exec);
  gpu.run(exec);
  print_values("seen", trace.seen);
}

CASE(update_while_the_last_launch_waits) {
  GraphGpu gpu;
  Gate gate;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  CUDA_HOST_NODE_PARAMS p{trace_host, &one};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec exec = gpu.instantiate();
  gate.stop(gpu.stream);
  CU(cuGraphLaunch(exec, gpu.stream));
  CUgraph other = new_graph();
  p.userData = &two;
  CU(cuGraphAddHostNode(&node, other, nullptr, 0, &p));
  CUgraphExecUpdateResultInfo info{};
  CU(cuGraphExecUpdate(exec, other, &info));
  CU(cuGraphLaunch(exec, gpu.stream));
  gate.open();
  CU(cuStreamSynchronize(gpu.stream));
  print_values("seen", trace.seen);
}

CASE(update_pageable_copy) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  std::vector<uint32_t> a(64, 1), b(64, 2);
  auto p = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_HOST, address(a.data()), 256);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  gpu.run(exec);
  print_values("before", data.read(), 1);
  CUgraph other = new_graph();
  p.srcHost = b.data();
  CU(cuGraphAddMemcpyNode(&node, other, nullptr, 0, &p, gpu.context));
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  gpu.run(exec);
  print_values("after", data.read(), 1);
}

CASE(update_bad_arguments) {
  GraphGpu gpu;
  CUgraphExec exec = gpu.instantiate();
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, nullptr, &info));
  SHOW(cuGraphExecUpdate(nullptr, gpu.graph, &info));
}

CASE(update_from_a_capture) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  std::vector<CUgraph> graphs;
  for (uint32_t value = 1; value < 4; ++value) {
    gpu.begin();
    CU(cuMemsetD32Async(data.pointer, value, 64, gpu.stream));
    graphs.push_back(gpu.end());
  }
  CUgraphExec exec = gpu.instantiate(graphs[0]);
  for (CUgraph graph : graphs) {
    CUgraphExecUpdateResultInfo info{};
    SHOW(cuGraphExecUpdate(exec, graph, &info));
    gpu.run(exec);
    print_values("data", data.read(), 1);
  }
}

CASE(instantiate_flags) {
  GraphGpu gpu;
  for (unsigned long long flags : {0ull, 1ull, 2ull, 8ull, 9ull, 16ull, 1ull << 40}) {
    CUgraphExec exec = nullptr;
    const CUresult result = cuGraphInstantiateWithFlags(&exec, gpu.graph, flags);
    printf("%#llx: %s\n", flags, code_name(result));
    if (result != CUDA_SUCCESS) continue;
    cuuint64_t got = 99;
    CU(cuGraphExecGetFlags(exec, &got));
    printf("  flags %#llx\n", static_cast<unsigned long long>(got));
    CU(cuGraphExecDestroy(exec));
  }
  SHOW(cuGraphInstantiateWithFlags(nullptr, gpu.graph, 0));
}

CASE(instantiate_with_params) {
  GraphGpu gpu;
  CUDA_GRAPH_INSTANTIATE_PARAMS p{};
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithParams(&exec, gpu.graph, &p));
  printf("result %d, error node null %d\n", static_cast<int>(p.result_out), p.hErrNode_out == nullptr);
  p = {};
  p.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  p.hUploadStream = gpu.stream;
  SHOW(cuGraphInstantiateWithParams(&exec, gpu.graph, &p));
  SHOW(cuStreamSynchronize(gpu.stream));
  SHOW(cuGraphInstantiateWithParams(&exec, gpu.graph, nullptr));
  SHOW(cuGraphInstantiateWithParams_ptsz(&exec, gpu.graph, &p));
}

CASE(instantiate_old_calls) {
  GraphGpu gpu;
  CUgraphNode error = nullptr;
  char log[64] = "untouched";
  for (const char* name : {"cuGraphInstantiate", "cuGraphInstantiate_v2"}) {
    auto* make = conformance::symbol_as<CUresult(CUgraphExec*, CUgraph, CUgraphNode*, char*, size_t)>(name);
    CUgraphExec exec = nullptr;
    printf("%s: %s\n", name, code_name(make(&exec, gpu.graph, &error, log, sizeof log)));
    printf("%s without outputs: %s\n", name, code_name(make(&exec, gpu.graph, nullptr, nullptr, 0)));
    printf("runs: %s\n", code_name(cuGraphLaunch(exec, gpu.stream)));
    CU(cuStreamSynchronize(gpu.stream));
  }
}

CASE(launches_of_one_instance_are_ordered) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  StepArgs args(data.pointer, 3, 1, 64);
  const auto p = step_params(module.function("step"), args);
  CUgraphNode node = nullptr;
  CU(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec exec = gpu.instantiate();
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 10; ++i) CU(cuGraphLaunch(exec, i % 2 == 0 ? gpu.stream : other));
  CU(cuStreamSynchronize(gpu.stream));
  CU(cuStreamSynchronize(other));
  print_values("data", data.read(), 2);
}

CASE(many_instances_come_and_go) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry entry{&trace, 1};
  CUDA_HOST_NODE_PARAMS p{trace_host, &entry};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  for (int i = 0; i < 300; ++i) {
    CUgraphExec exec = gpu.instantiate();
    CU(cuGraphLaunch(exec, gpu.stream));
    CU(cuGraphExecDestroy(exec));
  }
  CU(cuStreamSynchronize(gpu.stream));
  printf("ran %zu\n", trace.seen.size());
}

CASE(many_graphs_come_and_go) {
  GraphGpu gpu;
  size_t total = 0;
  for (int i = 0; i < 300; ++i) {
    CUgraph graph = new_graph();
    CUgraphNode a = nullptr, b = nullptr;
    CU(cuGraphAddEmptyNode(&a, graph, nullptr, 0));
    CU(cuGraphAddEmptyNode(&b, graph, &a, 1));
    total += nodes_of(graph).size();
    CU(cuGraphDestroy(graph));
  }
  printf("nodes %zu\n", total);
}

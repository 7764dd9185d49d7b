// Conditional nodes: if, if-else, while and switch, decided by default values and by kernels.
#include "tests/conformance/graph.h"

namespace {

struct ConditionalGraph : GraphGpu {
  DeviceArray<uint32_t> data{std::vector<uint32_t>(64, 0)};
  CUgraphConditionalHandle handle = 0;
  CUgraphNode node = nullptr;
  std::vector<CUgraph> bodies;

  explicit ConditionalGraph(unsigned value = 0, unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    CU(cuGraphConditionalHandleCreate(&handle, graph, context, value, flags));
  }
  CUresult add(CUgraphConditionalNodeType type, unsigned size, const CUgraphNode* behind = nullptr) {
    CUgraphNodeParams p{};
    p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    p.conditional.handle = handle;
    p.conditional.type = type;
    p.conditional.size = size;
    p.conditional.ctx = context;
    const CUresult result = cuGraphAddNode(&node, graph, behind, nullptr, behind == nullptr ? 0 : 1, &p);
    if (result == CUDA_SUCCESS) bodies.assign(p.conditional.phGraph_out, p.conditional.phGraph_out + size);
    return result;
  }
  void fill(CUgraph body, uint32_t value) {
    const auto p = fill_params(data.pointer, value, 64);
    CUgraphNode inner = nullptr;
    CU(cuGraphAddMemsetNode(&inner, body, nullptr, 0, &p, context));
  }
};

// The kernels that set a condition are linked with the device runtime for the usual GPU only.
struct Deciders {
  CUmodule module = nullptr;
  Deciders() {
    const CUresult loaded = cuModuleLoadData(&module, read_beside("conditional.fatbin").data());
    if (loaded != CUDA_SUCCESS) SKIP("conditional.fatbin holds no machine code for this GPU");
  }
  CUfunction function(const char* name) const {
    CUfunction f = nullptr;
    CU(cuModuleGetFunction(&f, module, name));
    return f;
  }
};

CUgraphNode add_kernel(CUgraph graph, CUfunction function, void** params, const CUgraphNode* behind = nullptr) {
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = function;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = params;
  CUgraphNode node = nullptr;
  CU(cuGraphAddKernelNode(&node, graph, behind, behind == nullptr ? 0 : 1, &p));
  return node;
}

}  // namespace

CASE(handle) {
  GraphGpu gpu;
  CUgraphConditionalHandle handle = 0;
  SHOW(cuGraphConditionalHandleCreate(&handle, gpu.graph, gpu.context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  printf("made %d\n", handle != 0);
  SHOW(cuGraphConditionalHandleCreate(&handle, gpu.graph, gpu.context, 1, 0));
  SHOW(cuGraphConditionalHandleCreate(&handle, gpu.graph, gpu.context, 1, 2));
  SHOW(cuGraphConditionalHandleCreate(nullptr, gpu.graph, gpu.context, 1, 0));
  SHOW(cuGraphConditionalHandleCreate(&handle, nullptr, gpu.context, 1, 0));
  SHOW(cuGraphConditionalHandleCreate(&handle, gpu.graph, nullptr, 1, 0));
}

CASE(if_taken) {
  ConditionalGraph g(1);
  SHOW(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  printf("type %s, body %d\n", type_of(g.node), g.bodies[0] != nullptr);
  g.fill(g.bodies[0], 5);
  CUgraphExec exec = g.instantiate();
  g.run(exec);
  g.run(exec);
  print_values("data", g.data.read(), 1);
}

CASE(if_not_taken) {
  ConditionalGraph g(0);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  g.fill(g.bodies[0], 5);
  g.run(g.instantiate());
  print_values("data", g.data.read(), 1);
}

CASE(if_else) {
  for (unsigned value : {0u, 1u, 7u}) {
    ConditionalGraph g(value);
    CU(g.add(CU_GRAPH_COND_TYPE_IF, 2));
    g.fill(g.bodies[0], 5);
    g.fill(g.bodies[1], 6);
    g.run(g.instantiate());
    printf("condition %u\n", value);
    print_values("data", g.data.read(), 1);
  }
}

CASE(switch_by_default) {
  for (unsigned value : {0u, 2u, 3u}) {
    ConditionalGraph g(value);
    CU(g.add(CU_GRAPH_COND_TYPE_SWITCH, 3));
    for (uint32_t i = 0; i < 3; ++i) g.fill(g.bodies[i], 10 + i);
    g.run(g.instantiate());
    printf("condition %u\n", value);
    print_values("data", g.data.read(), 1);
  }
}

CASE(while_not_entered) {
  ConditionalGraph g(0);
  SHOW(g.add(CU_GRAPH_COND_TYPE_WHILE, 1));
  g.fill(g.bodies[0], 5);
  g.run(g.instantiate());
  print_values("data", g.data.read(), 1);
}

CASE(bad_parameters) {
  {
    ConditionalGraph g;
    SHOW(g.add(CU_GRAPH_COND_TYPE_IF, 0));
  }
  {
    ConditionalGraph g;
    SHOW(g.add(CU_GRAPH_COND_TYPE_IF, 3));
  }
  {
    ConditionalGraph g;
    SHOW(g.add(CU_GRAPH_COND_TYPE_WHILE, 2));
  }
  {
    ConditionalGraph g;
    SHOW(g.add(CU_GRAPH_COND_TYPE_SWITCH, 0));
  }
  {
    ConditionalGraph g;
    SHOW(g.add(static_cast<CUgraphConditionalNodeType>(9), 1));
  }
}

CASE(handle_used_twice) {
  ConditionalGraph g(1);
  SHOW(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  SHOW(g.add(CU_GRAPH_COND_TYPE_IF, 1));
}

CASE(handle_of_no_node) {
  ConditionalGraph g(1);
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, g.graph, nullptr, 0));
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, g.graph, 0));
}

CASE(body_with_a_host_node) {
  ConditionalGraph g(1);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  const CUDA_HOST_NODE_PARAMS p{trace_host, nullptr};
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddHostNode(&node, g.bodies[0], nullptr, 0, &p));
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, g.graph, 0));
}

CASE(body_captured) {
  ConditionalGraph g(1);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  SHOW(cuStreamBeginCaptureToGraph(g.stream, g.bodies[0], nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuMemsetD32Async(g.data.pointer, 8, 64, g.stream));
  CUgraph body = nullptr;
  SHOW(cuStreamEndCapture(g.stream, &body));
  printf("the same graph %d\n", body == g.bodies[0]);
  g.run(g.instantiate());
  print_values("data", g.data.read(), 1);
}

CASE(body_is_not_the_programs_to_destroy) {
  ConditionalGraph g(1);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  g.fill(g.bodies[0], 4);
  printf("destroyed %d\n", cuGraphDestroy(g.bodies[0]) == CUDA_SUCCESS);
}

CASE(conditional_in_a_conditional) {
  ConditionalGraph g(1);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  CUgraphConditionalHandle inner = 0;
  SHOW(cuGraphConditionalHandleCreate(&inner, g.bodies[0], g.context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  p.conditional.handle = inner;
  p.conditional.type = CU_GRAPH_COND_TYPE_IF;
  p.conditional.size = 1;
  p.conditional.ctx = g.context;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddNode(&node, g.bodies[0], nullptr, nullptr, 0, &p));
  g.fill(p.conditional.phGraph_out[0], 12);
  g.run(g.instantiate());
  print_values("data", g.data.read(), 1);
}

CASE(child_graph_with_a_conditional) {
  ConditionalGraph g(1);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  CUgraph parent = nullptr;
  CU(cuGraphCreate(&parent, 0));
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, g.graph));
}

CASE(clone_with_a_conditional) {
  ConditionalGraph g(1);
  CU(g.add(CU_GRAPH_COND_TYPE_IF, 1));
  CUgraph clone = nullptr;
  SHOW(cuGraphClone(&clone, g.graph));
}

CASE(kernel_decides_if) {
  Gpu first;
  Deciders deciders;
  ConditionalGraph g(0);
  DeviceArray<uint32_t> wanted(std::vector<uint32_t>(1, 1));
  void* params[] = {&g.handle, &wanted.pointer};
  CUgraphNode decide = add_kernel(g.graph, deciders.function("choose"), params);
  SHOW(g.add(CU_GRAPH_COND_TYPE_IF, 1, &decide));
  g.fill(g.bodies[0], 5);
  CUgraphExec exec = g.instantiate();
  g.run(exec);
  print_values("taken", g.data.read(), 1);
  CU(cuMemsetD32(g.data.pointer, 0, 64));
  CU(cuMemsetD32(wanted.pointer, 0, 1));
  CU(cuCtxSynchronize());
  g.run(exec);
  print_values("not taken", g.data.read(), 1);
}

CASE(kernel_decides_switch) {
  Gpu first;
  Deciders deciders;
  ConditionalGraph g(0);
  DeviceArray<uint32_t> wanted(std::vector<uint32_t>(1, 0));
  void* params[] = {&g.handle, &wanted.pointer};
  CUgraphNode decide = add_kernel(g.graph, deciders.function("choose"), params);
  CU(g.add(CU_GRAPH_COND_TYPE_SWITCH, 4, &decide));
  for (uint32_t i = 0; i < 4; ++i) g.fill(g.bodies[i], 20 + i);
  CUgraphExec exec = g.instantiate();
  for (uint32_t value : {3u, 0u, 9u, 1u}) {
    CU(cuMemsetD32(wanted.pointer, value, 1));
    CU(cuCtxSynchronize());
    g.run(exec);
    print_values("data", g.data.read(), 1);
  }
}

CASE(kernel_decides_while) {
  Gpu first;
  Deciders deciders;
  ConditionalGraph g(1);
  DeviceArray<uint32_t> count(std::vector<uint32_t>(1, 0));
  uint32_t limit = 10;
  void* params[] = {&g.handle, &count.pointer, &limit};
  CU(g.add(CU_GRAPH_COND_TYPE_WHILE, 1));
  add_kernel(g.bodies[0], deciders.function("count_below"), params);
  CUgraphExec exec = g.instantiate();
  g.run(exec);
  print_values("count", count.read(), 1);
  g.run(exec);
  print_values("count", count.read(), 1);
}

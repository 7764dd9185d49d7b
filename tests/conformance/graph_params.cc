// Parameters of graph nodes: read back, changed in the graph, changed in an instance; attributes;
// nodes switched off.
#include "tests/conformance/graph.h"

namespace {

struct KernelGraph : GraphGpu {
  Module module{"kernels.fatbin"};
  DeviceArray<uint32_t> data{std::vector<uint32_t>(64, 1)};
  StepArgs args{data.pointer, 3, 4, 64};
  CUDA_KERNEL_NODE_PARAMS params = step_params(module.function("step"), args);
  CUgraphNode node = nullptr;
  KernelGraph() { CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params)); }
};

void print_shape(const CUDA_KERNEL_NODE_PARAMS& p) {
  printf("grid %u %u %u, block %u %u %u, shared %u\n", p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes);
}

}  // namespace

CASE(kernel_get) {
  KernelGraph g;
  CUDA_KERNEL_NODE_PARAMS p{};
  SHOW(cuGraphKernelNodeGetParams(g.node, &p));
  print_shape(p);
  printf("function the same %d\n", p.func == g.params.func);
  printf("factor %u, addend %u, count %d\n", *static_cast<uint32_t*>(p.kernelParams[1]), *static_cast<uint32_t*>(p.kernelParams[2]),
         *static_cast<int*>(p.kernelParams[3]));
  printf("pointer the same %d\n", *static_cast<CUdeviceptr*>(p.kernelParams[0]) == g.data.pointer);
  printf("copies %d\n", p.kernelParams[1] != &g.args.factor);
  SHOW(cuGraphKernelNodeGetParams(g.node, nullptr));
  SHOW(cuGraphKernelNodeGetParams(nullptr, &p));
}

CASE(kernel_get_kern_and_context) {
  KernelGraph g;
  CUDA_KERNEL_NODE_PARAMS p{};
  CU(cuGraphKernelNodeGetParams(g.node, &p));
  printf("kern is null %d, extra is null %d\n", p.kern == nullptr, p.extra == nullptr);
  printf("context the same %d\n", p.ctx == g.context);
}

CASE(kernel_get_of_a_library_kernel) {
  GraphGpu gpu;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "step"));
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  StepArgs args(data.pointer, 2, 2, 64);
  auto p = step_params(nullptr, args);
  p.kern = kernel;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, &p));
  CUDA_KERNEL_NODE_PARAMS got{};
  SHOW(cuGraphKernelNodeGetParams(node, &got));
  printf("named as kernel %d, as function %d\n", got.kern != nullptr, got.func != nullptr);
  printf("the same kernel %d\n", got.kern == kernel);
  gpu.run(gpu.instantiate());
  print_values("data", data.read(), 2);
}

CASE(kernel_get_v1) {
  KernelGraph g;
  auto* get = conformance::symbol_as<CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1*)>("cuGraphKernelNodeGetParams");
  CUDA_KERNEL_NODE_PARAMS_v1 p{};
  SHOW(get(g.node, &p));
  printf("block %u, factor %u\n", p.blockDimX, *static_cast<uint32_t*>(p.kernelParams[1]));
}

CASE(kernel_get_after_set) {
  KernelGraph g;
  StepArgs other(g.data.pointer, 10, 20, 32);
  auto p = step_params(g.params.func, other);
  p.gridDimY = 2, p.sharedMemBytes = 64;
  SHOW(cuGraphKernelNodeSetParams(g.node, &p));
  CUDA_KERNEL_NODE_PARAMS got{};
  CU(cuGraphKernelNodeGetParams(g.node, &got));
  print_shape(got);
  printf("factor %u, addend %u\n", *static_cast<uint32_t*>(got.kernelParams[1]), *static_cast<uint32_t*>(got.kernelParams[2]));
}

// What the getter returned describes the node well enough to add another one like it.
CASE(kernel_get_then_add) {
  KernelGraph g;
  CUDA_KERNEL_NODE_PARAMS got{};
  CU(cuGraphKernelNodeGetParams(g.node, &got));
  CUgraphNode second = nullptr;
  SHOW(cuGraphAddKernelNode(&second, g.graph, &g.node, 1, &got));
  g.run(g.instantiate());
  print_values("data", g.data.read(), 2);
}

CASE(kernel_set_v1) {
  KernelGraph g;
  CUDA_KERNEL_NODE_PARAMS_v1 p{};
  StepArgs other(g.data.pointer, 0, 9, 64);
  p.func = g.params.func;
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
  p.blockDimX = 64;
  p.kernelParams = other.pointers;
  CUgraphExec exec = g.instantiate();
  auto* set_exec = conformance::symbol_as<CUresult(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*)>("cuGraphExecKernelNodeSetParams");
  auto* set = conformance::symbol_as<CUresult(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*)>("cuGraphKernelNodeSetParams");
  SHOW(set_exec(exec, g.node, &p));
  g.run(exec);
  print_values("instance", g.data.read(), 2);
  other.addend = 8;
  SHOW(set(g.node, &p));
  g.run(g.instantiate());
  print_values("graph", g.data.read(), 2);
}

CASE(kernel_set_in_an_instance) {
  KernelGraph g;
  CUgraphExec exec = g.instantiate();
  StepArgs other(g.data.pointer, 0, 100, 64);
  const auto p = step_params(g.params.func, other);
  SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
  SHOW(cuGraphExecKernelNodeSetParams(nullptr, g.node, &p));
  SHOW(cuGraphExecKernelNodeSetParams(exec, nullptr, &p));
  SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, nullptr));
  g.run(exec);
  print_values("instance", g.data.read(), 2);
  CUDA_KERNEL_NODE_PARAMS got{};
  CU(cuGraphKernelNodeGetParams(g.node, &got));
  printf("the graph's node: factor %u\n", *static_cast<uint32_t*>(got.kernelParams[1]));
}

CASE(wrong_type_of_node) {
  KernelGraph g;
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUDA_HOST_NODE_PARAMS host{};
  CUgraph child = nullptr;
  CUevent event = nullptr;
  CUDA_BATCH_MEM_OP_NODE_PARAMS ops{};
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
  CUdeviceptr pointer = 0;
  SHOW(cuGraphMemcpyNodeGetParams(g.node, &copy));
  SHOW(cuGraphMemsetNodeGetParams(g.node, &set));
  SHOW(cuGraphHostNodeGetParams(g.node, &host));
  SHOW(cuGraphChildGraphNodeGetGraph(g.node, &child));
  SHOW(cuGraphEventRecordNodeGetEvent(g.node, &event));
  SHOW(cuGraphEventWaitNodeGetEvent(g.node, &event));
  SHOW(cuGraphBatchMemOpNodeGetParams(g.node, &ops));
  SHOW(cuGraphMemAllocNodeGetParams(g.node, &alloc));
  SHOW(cuGraphMemFreeNodeGetParams(g.node, &pointer));
}

CASE(wrong_type_of_node_to_set) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(64);
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  const auto fill = fill_params(data.pointer, 1, 64);
  const auto copy = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_DEVICE, data.pointer, 64);
  SHOW(cuGraphMemsetNodeSetParams(node, &fill));
  SHOW(cuGraphMemcpyNodeSetParams(node, &copy));
  const CUDA_HOST_NODE_PARAMS host{trace_host, nullptr};
  SHOW(cuGraphHostNodeSetParams(node, &host));
}

CASE(copy_get) {
  GraphGpu gpu;
  DeviceArray<uint32_t> from(64), to(64);
  const auto p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_DEVICE, from.pointer, 128);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUDA_MEMCPY3D got{};
  SHOW(cuGraphMemcpyNodeGetParams(node, &got));
  printf("types %d to %d, extent %zu %zu %zu\n", static_cast<int>(got.srcMemoryType), static_cast<int>(got.dstMemoryType), got.WidthInBytes, got.Height, got.Depth);
  printf("addresses the same %d %d\n", got.srcDevice == from.pointer, got.dstDevice == to.pointer);
  SHOW(cuGraphMemcpyNodeGetParams(node, nullptr));
}

CASE(copy_get_pageable) {
  GraphGpu gpu;
  DeviceArray<uint32_t> to(64);
  std::vector<uint32_t> host(64);
  const auto p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_HOST, address(host.data()), 128);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUDA_MEMCPY3D got{};
  SHOW(cuGraphMemcpyNodeGetParams(node, &got));
  printf("types %d to %d, extent %zu %zu %zu\n", static_cast<int>(got.srcMemoryType), static_cast<int>(got.dstMemoryType), got.WidthInBytes, got.Height, got.Depth);
  printf("addresses the same %d %d\n", got.srcHost == host.data(), got.dstDevice == to.pointer);
}

CASE(copy_set) {
  GraphGpu gpu;
  DeviceArray<uint32_t> a(std::vector<uint32_t>(64, 1)), b(std::vector<uint32_t>(64, 2)), to(std::vector<uint32_t>(64, 0));
  auto p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_DEVICE, a.pointer, 256);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  p.srcDevice = b.pointer;
  SHOW(cuGraphExecMemcpyNodeSetParams(exec, node, &p, gpu.context));
  gpu.run(exec);
  print_values("instance", to.read(), 1);
  gpu.run(gpu.instantiate());
  print_values("graph before", to.read(), 1);
  SHOW(cuGraphMemcpyNodeSetParams(node, &p));
  gpu.run(gpu.instantiate());
  print_values("graph after", to.read(), 1);
}

CASE(copy_set_pageable) {
  GraphGpu gpu;
  DeviceArray<uint32_t> to(std::vector<uint32_t>(64, 0));
  std::vector<uint32_t> a(64, 1), b(64, 2);
  auto p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_HOST, address(a.data()), 128);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  p.srcHost = b.data();
  SHOW(cuGraphExecMemcpyNodeSetParams(exec, node, &p, gpu.context));
  gpu.run(exec);
  print_values("instance", to.read(), 1);
  p.WidthInBytes = 256;
  SHOW(cuGraphExecMemcpyNodeSetParams(exec, node, &p, gpu.context));
  gpu.run(exec);
  print_values("longer", std::vector<uint32_t>{to.read()[63]}, 1);
  p.srcHost = a.data();
  SHOW(cuGraphMemcpyNodeSetParams(node, &p));
  gpu.run(gpu.instantiate());
  print_values("graph", to.read(), 1);
}

// A node of the graph may turn from device to pageable memory and back; its edges stay.
CASE(copy_set_other_memory) {
  GraphGpu gpu;
  DeviceArray<uint32_t> from(std::vector<uint32_t>(64, 3)), to(std::vector<uint32_t>(64, 0));
  std::vector<uint32_t> host(64, 4);
  CUgraphNode before = nullptr, node = nullptr, after = nullptr;
  CU(cuGraphAddEmptyNode(&before, gpu.graph, nullptr, 0));
  auto p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_DEVICE, from.pointer, 256);
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, &before, 1, &p, gpu.context));
  CU(cuGraphAddEmptyNode(&after, gpu.graph, &node, 1));
  p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_HOST, address(host.data()), 256);
  SHOW(cuGraphMemcpyNodeSetParams(node, &p));
  gpu.run(gpu.instantiate());
  print_values("pageable", to.read(), 1);
  p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_DEVICE, from.pointer, 256);
  SHOW(cuGraphMemcpyNodeSetParams(node, &p));
  gpu.run(gpu.instantiate());
  print_values("device", to.read(), 1);
  size_t dependencies = 0, dependents = 0;
  CU(cuGraphNodeGetDependencies(node, nullptr, nullptr, &dependencies));
  CU(cuGraphNodeGetDependentNodes(node, nullptr, nullptr, &dependents));
  printf("edges %zu and %zu, nodes %zu, type %s\n", dependencies, dependents, nodes_of(gpu.graph).size(), type_of(node));
}

CASE(memset_get_and_set) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  auto p = fill_params(data.pointer, 5, 64);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUDA_MEMSET_NODE_PARAMS got{};
  SHOW(cuGraphMemsetNodeGetParams(node, &got));
  printf("value %u, element %u, width %zu, height %zu, address the same %d\n", got.value, got.elementSize, got.width, got.height, got.dst == p.dst);
  CUgraphExec exec = gpu.instantiate();
  p.value = 6;
  SHOW(cuGraphExecMemsetNodeSetParams(exec, node, &p, gpu.context));
  gpu.run(exec);
  print_values("instance", data.read(), 1);
  p.value = 7;
  SHOW(cuGraphMemsetNodeSetParams(node, &p));
  gpu.run(gpu.instantiate());
  print_values("graph", data.read(), 1);
  SHOW(cuGraphMemsetNodeGetParams(node, nullptr));
  SHOW(cuGraphMemsetNodeSetParams(node, nullptr));
}

CASE(host_get_and_set) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2}, three{&trace, 3};
  CUDA_HOST_NODE_PARAMS p{trace_host, &one}, got{};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  SHOW(cuGraphHostNodeGetParams(node, &got));
  printf("the same %d\n", got.fn == trace_host && got.userData == &one);
  CUgraphExec exec = gpu.instantiate();
  p.userData = &two;
  SHOW(cuGraphExecHostNodeSetParams(exec, node, &p));
  gpu.run(exec);
  p.userData = &three;
  SHOW(cuGraphHostNodeSetParams(node, &p));
  gpu.run(exec);
  gpu.run(gpu.instantiate());
  print_values("seen", trace.seen);
  SHOW(cuGraphHostNodeGetParams(node, nullptr));
  SHOW(cuGraphExecHostNodeSetParams(exec, node, nullptr));
}

CASE(event_get_and_set) {
  GraphGpu gpu;
  CUevent a = nullptr, b = nullptr, got = nullptr;
  CU(cuEventCreate(&a, 0));
  CU(cuEventCreate(&b, 0));
  CUgraphNode record = nullptr, wait = nullptr;
  CU(cuGraphAddEventRecordNode(&record, gpu.graph, nullptr, 0, a));
  CU(cuGraphAddEventWaitNode(&wait, gpu.graph, &record, 1, a));
  SHOW(cuGraphEventRecordNodeGetEvent(record, &got));
  printf("the same %d\n", got == a);
  SHOW(cuGraphEventWaitNodeGetEvent(wait, &got));
  printf("the same %d\n", got == a);
  SHOW(cuGraphEventRecordNodeSetEvent(record, b));
  SHOW(cuGraphEventWaitNodeSetEvent(wait, b));
  CU(cuGraphEventRecordNodeGetEvent(record, &got));
  printf("changed %d\n", got == b);
  CUgraphExec exec = gpu.instantiate();
  SHOW(cuGraphExecEventRecordNodeSetEvent(exec, record, a));
  SHOW(cuGraphExecEventWaitNodeSetEvent(exec, wait, a));
  gpu.run(exec);
  SHOW(cuEventQuery(a));
  SHOW(cuGraphEventRecordNodeSetEvent(record, nullptr));
  SHOW(cuGraphEventRecordNodeGetEvent(record, nullptr));
}

CASE(elapsed_time_of_recorded_events) {
  GraphGpu gpu;
  CUevent a = nullptr, b = nullptr;
  CU(cuEventCreate(&a, 0));
  CU(cuEventCreate(&b, 0));
  CUgraphNode first = nullptr, second = nullptr;
  CU(cuGraphAddEventRecordNode(&first, gpu.graph, nullptr, 0, a));
  CU(cuGraphAddEventRecordNode(&second, gpu.graph, &first, 1, b));
  float ms = -1;
  SHOW(cuEventElapsedTime(&ms, a, b));
  gpu.run(gpu.instantiate());
  SHOW(cuEventElapsedTime(&ms, a, b));
  printf("not negative %d\n", ms >= 0);
}

CASE(memory_operations_get_and_set) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = data.pointer;
  op.writeValue.value = 3;
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{gpu.context, 1, &op, 0}, got{};
  CUgraphNode node = nullptr;
  CU(cuGraphAddBatchMemOpNode(&node, gpu.graph, nullptr, 0, &p));
  SHOW(cuGraphBatchMemOpNodeGetParams(node, &got));
  printf("count %u, flags %u, value %u, address the same %d, context the same %d\n", got.count, got.flags, got.paramArray[0].writeValue.value,
         got.paramArray[0].writeValue.address == data.pointer, got.ctx == gpu.context);
  CUgraphExec exec = gpu.instantiate();
  op.writeValue.value = 4;
  SHOW(cuGraphExecBatchMemOpNodeSetParams(exec, node, &p));
  gpu.run(exec);
  print_values("instance", data.read(), 1);
  op.writeValue.value = 5;
  SHOW(cuGraphBatchMemOpNodeSetParams(node, &p));
  gpu.run(gpu.instantiate());
  print_values("graph", data.read(), 1);
  SHOW(cuGraphBatchMemOpNodeGetParams(node, nullptr));
}

CASE(child_set_in_an_instance) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraph child = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode inner = nullptr, node = nullptr;
  auto p = fill_params(data.pointer, 1, 64);
  CU(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &p, gpu.context));
  CU(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, child));
  CUgraphExec exec = gpu.instantiate();
  p.value = 2;
  CU(cuGraphMemsetNodeSetParams(inner, &p));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, child));
  gpu.run(exec);
  print_values("data", data.read(), 1);
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, nullptr));
}

// As XLA does: the child is the node's own from the start, and is changed through the handle that
// the program kept.
CASE(moved_child_set_in_an_instance) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraph child = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode inner = nullptr, node = nullptr;
  auto p = fill_params(data.pointer, 1, 64);
  CU(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &p, gpu.context));
  CUgraphNodeParams typed{};
  typed.type = CU_GRAPH_NODE_TYPE_GRAPH;
  typed.graph.graph = child;
  typed.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  CU(cuGraphAddNode(&node, gpu.graph, nullptr, nullptr, 0, &typed));
  CUgraphExec exec = gpu.instantiate();
  gpu.run(exec);
  print_values("moved", data.read(), 1);
  p.value = 2;
  SHOW(cuGraphMemsetNodeSetParams(inner, &p));
  SHOW(cuGraphExecMemsetNodeSetParams(exec, inner, &p, gpu.context));
  CUgraph other = nullptr;
  CU(cuGraphCreate(&other, 0));
  CUgraphNode theirs = nullptr;
  p.value = 3;
  CU(cuGraphAddMemsetNode(&theirs, other, nullptr, 0, &p, gpu.context));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, other));
  gpu.run(exec);
  print_values("other child", data.read(), 1);
  SHOW(cuGraphDestroy(gpu.graph));
}

CASE(child_with_host_node_set_in_an_instance) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  CUgraph child = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode inner = nullptr, node = nullptr;
  CUDA_HOST_NODE_PARAMS p{trace_host, &one};
  CU(cuGraphAddHostNode(&inner, child, nullptr, 0, &p));
  CU(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, child));
  CUgraphExec exec = gpu.instantiate();
  gpu.run(exec);
  p.userData = &two;
  CU(cuGraphHostNodeSetParams(inner, &p));
  SHOW(cuGraphExecChildGraphNodeSetParams(exec, node, child));
  gpu.run(exec);
  print_values("seen", trace.seen);
}

CASE(typed_set) {
  KernelGraph g;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  CUDA_HOST_NODE_PARAMS host{trace_host, &one};
  CUgraphNode host_node = nullptr;
  CU(cuGraphAddHostNode(&host_node, g.graph, &g.node, 1, &host));
  CUgraphNodeParams p{};
  StepArgs other(g.data.pointer, 0, 50, 64);
  p.type = CU_GRAPH_NODE_TYPE_KERNEL;
  p.kernel.func = g.params.func;
  p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
  p.kernel.blockDimX = 64;
  p.kernel.kernelParams = other.pointers;
  SHOW(cuGraphNodeSetParams(g.node, &p));
  CUgraphExec exec = g.instantiate();
  other.addend = 60;
  SHOW(cuGraphExecNodeSetParams(exec, g.node, &p));
  p = {};
  p.type = CU_GRAPH_NODE_TYPE_HOST;
  p.host = {trace_host, &two};
  SHOW(cuGraphExecNodeSetParams(exec, host_node, &p));
  g.run(exec);
  print_values("data", g.data.read(), 1);
  print_values("seen", trace.seen);
  SHOW(cuGraphNodeSetParams(g.node, &p));
  SHOW(cuGraphNodeSetParams(host_node, nullptr));
  SHOW(cuGraphExecNodeSetParams(exec, host_node, nullptr));
}

CASE(attribute_priority) {
  KernelGraph g;
  CUlaunchAttributeValue value{};
  SHOW(cuGraphKernelNodeGetAttribute(g.node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  printf("priority %d\n", value.priority);
  value.priority = -1;
  SHOW(cuGraphKernelNodeSetAttribute(g.node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  value.priority = 7;
  SHOW(cuGraphKernelNodeGetAttribute(g.node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  printf("priority %d\n", value.priority);
}

CASE(attribute_cooperative) {
  KernelGraph g;
  CUlaunchAttributeValue value{};
  SHOW(cuGraphKernelNodeGetAttribute(g.node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  printf("cooperative %d\n", value.cooperative);
  value.cooperative = 1;
  SHOW(cuGraphKernelNodeSetAttribute(g.node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  g.run(g.instantiate());
  print_values("data", g.data.read(), 1);
}

CASE(attributes_copied) {
  KernelGraph g;
  CUgraphNode other = nullptr;
  CU(cuGraphAddKernelNode(&other, g.graph, nullptr, 0, &g.params));
  CUlaunchAttributeValue value{};
  value.priority = -2;
  CU(cuGraphKernelNodeSetAttribute(g.node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  SHOW(cuGraphKernelNodeCopyAttributes(other, g.node));
  value = {};
  CU(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  printf("priority %d\n", value.priority);
  CUgraphNode empty = nullptr;
  CU(cuGraphAddEmptyNode(&empty, g.graph, nullptr, 0));
  SHOW(cuGraphKernelNodeCopyAttributes(empty, g.node));
  SHOW(cuGraphKernelNodeSetAttribute(empty, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
}

CASE(node_switched_off) {
  KernelGraph g;
  CUgraphExec exec = g.instantiate();
  unsigned enabled = 7;
  SHOW(cuGraphNodeGetEnabled(exec, g.node, &enabled));
  printf("enabled %u\n", enabled);
  SHOW(cuGraphNodeSetEnabled(exec, g.node, 0));
  SHOW(cuGraphNodeGetEnabled(exec, g.node, &enabled));
  printf("enabled %u\n", enabled);
  g.run(exec);
  print_values("off", g.data.read(), 1);
  SHOW(cuGraphNodeSetEnabled(exec, g.node, 1));
  g.run(exec);
  print_values("on", g.data.read(), 1);
  SHOW(cuGraphNodeGetEnabled(exec, g.node, nullptr));
  SHOW(cuGraphNodeSetEnabled(nullptr, g.node, 1));
}

CASE(node_that_cannot_be_switched_off) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  CUgraphExec exec = gpu.instantiate();
  SHOW(cuGraphNodeSetEnabled(exec, node, 0));
}

CASE(node_of_another_graph_in_an_instance) {
  KernelGraph g;
  CUgraph other = nullptr;
  CU(cuGraphCreate(&other, 0));
  CUgraphExec exec = g.instantiate(other);
  SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &g.params));
}

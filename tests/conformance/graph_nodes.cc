// Graphs by hand: every type of node added, edges, order, clones, child graphs, what is listed and what is refused.
#include <thread>

#include "tests/conformance/graph.h"

CASE(create_flags) {
  Gpu gpu;
  CUgraph graph = nullptr;
  SHOW(cuGraphCreate(nullptr, 0));
  SHOW(cuGraphCreate(&graph, 1));
  SHOW(cuGraphCreate(&graph, 0));
  SHOW(cuGraphDestroy(graph));
}

CASE(null_graph) {
  Gpu gpu;
  CUgraphNode node = nullptr;
  size_t count = 0;
  CUgraphExec exec = nullptr;
  CUgraph clone = nullptr;
  SHOW(cuGraphDestroy(nullptr));
  SHOW(cuGraphAddEmptyNode(&node, nullptr, nullptr, 0));
  SHOW(cuGraphGetNodes(nullptr, nullptr, &count));
  SHOW(cuGraphClone(&clone, nullptr));
  SHOW(cuGraphInstantiateWithFlags(&exec, nullptr, 0));
}

CASE(null_node) {
  GraphGpu gpu;
  CUgraphNodeType type{};
  size_t count = 0;
  SHOW(cuGraphNodeGetType(nullptr, &type));
  SHOW(cuGraphNodeGetDependencies(nullptr, nullptr, nullptr, &count));
  SHOW(cuGraphDestroyNode(nullptr));
}

CASE(empty_node) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddEmptyNode(nullptr, gpu.graph, nullptr, 0));
  SHOW(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 1));
  SHOW(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  printf("type %s\n", type_of(node));
  gpu.run(gpu.instantiate());
}

CASE(empty_graph_runs) {
  GraphGpu gpu;
  size_t count = 77;
  SHOW(cuGraphGetNodes(gpu.graph, nullptr, &count));
  printf("nodes %zu\n", count);
  CUgraphExec exec = nullptr;
  SHOW(cuGraphInstantiateWithFlags(&exec, gpu.graph, 0));
  SHOW(cuGraphLaunch(exec, gpu.stream));
  SHOW(cuStreamSynchronize(gpu.stream));
}

CASE(duplicate_dependency) {
  GraphGpu gpu;
  CUgraphNode first = nullptr, node = nullptr;
  CU(cuGraphAddEmptyNode(&first, gpu.graph, nullptr, 0));
  CUgraphNode twice[] = {first, first};
  SHOW(cuGraphAddEmptyNode(&node, gpu.graph, twice, 2));
}

CASE(dependency_of_another_graph) {
  GraphGpu gpu;
  CUgraph other = nullptr;
  CU(cuGraphCreate(&other, 0));
  CUgraphNode theirs = nullptr, node = nullptr;
  CU(cuGraphAddEmptyNode(&theirs, other, nullptr, 0));
  SHOW(cuGraphAddEmptyNode(&node, gpu.graph, &theirs, 1));
}

CASE(edges_listed) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr, c = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, &a, 1));
  CUgraphNode both[] = {a, b};
  CU(cuGraphAddEmptyNode(&c, gpu.graph, both, 2));
  size_t count = 0;
  SHOW(cuGraphGetEdges(gpu.graph, nullptr, nullptr, nullptr, &count));
  printf("edges %zu\n", count);
  CUgraphNode from[4] = {}, to[4] = {};
  count = 4;
  SHOW(cuGraphGetEdges(gpu.graph, from, to, nullptr, &count));
  int found = 0;
  for (size_t i = 0; i < count; ++i) found += (from[i] == a && to[i] == b) + (from[i] == a && to[i] == c) + (from[i] == b && to[i] == c);
  printf("found %d of %zu, rest null %d\n", found, count, from[3] == nullptr && to[3] == nullptr);
  size_t dependencies = 0, dependents = 0;
  SHOW(cuGraphNodeGetDependencies(c, nullptr, nullptr, &dependencies));
  SHOW(cuGraphNodeGetDependentNodes(a, nullptr, nullptr, &dependents));
  printf("c depends on %zu, %zu depend on a\n", dependencies, dependents);
}

CASE(old_edge_calls) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, nullptr, 0));
  auto* add = conformance::symbol_as<CUresult(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t)>("cuGraphAddDependencies");
  auto* remove = conformance::symbol_as<CUresult(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t)>("cuGraphRemoveDependencies");
  auto* edges = conformance::symbol_as<CUresult(CUgraph, CUgraphNode*, CUgraphNode*, size_t*)>("cuGraphGetEdges");
  auto* before = conformance::symbol_as<CUresult(CUgraphNode, CUgraphNode*, size_t*)>("cuGraphNodeGetDependencies");
  auto* after = conformance::symbol_as<CUresult(CUgraphNode, CUgraphNode*, size_t*)>("cuGraphNodeGetDependentNodes");
  size_t count = 0;
  SHOW(add(gpu.graph, &a, &b, 1));
  SHOW(add(gpu.graph, &a, &b, 1));
  SHOW(edges(gpu.graph, nullptr, nullptr, &count));
  printf("%zu\n", count);
  SHOW(before(b, nullptr, &count));
  printf("%zu\n", count);
  SHOW(after(a, nullptr, &count));
  printf("%zu\n", count);
  SHOW(remove(gpu.graph, &a, &b, 1));
  SHOW(remove(gpu.graph, &a, &b, 1));
}

CASE(edges_added_and_removed) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, nullptr, 0));
  size_t roots = 0;
  CU(cuGraphGetRootNodes(gpu.graph, nullptr, &roots));
  printf("roots %zu\n", roots);
  SHOW(cuGraphAddDependencies(gpu.graph, &a, &b, nullptr, 1));
  CU(cuGraphGetRootNodes(gpu.graph, nullptr, &roots));
  printf("roots %zu\n", roots);
  CUgraphNode root = nullptr;
  roots = 1;
  CU(cuGraphGetRootNodes(gpu.graph, &root, &roots));
  printf("root is a: %d\n", root == a);
  SHOW(cuGraphAddDependencies(gpu.graph, &a, &a, nullptr, 1));
  SHOW(cuGraphRemoveDependencies(gpu.graph, &b, &a, nullptr, 1));
  SHOW(cuGraphRemoveDependencies(gpu.graph, &a, &b, nullptr, 1));
}

CASE(cycle_is_refused) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, &a, 1));
  const CUresult added = cuGraphAddDependencies(gpu.graph, &b, &a, nullptr, 1);
  CUgraphExec exec = nullptr;
  const CUresult made = added != CUDA_SUCCESS ? added : cuGraphInstantiateWithFlags(&exec, gpu.graph, 0);
  printf("a cycle runs: %d\n", made == CUDA_SUCCESS);
}

CASE(destroyed_node_leaves_the_graph) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, &a, 1));
  SHOW(cuGraphDestroyNode(a));
  size_t count = 0;
  CU(cuGraphGetNodes(gpu.graph, nullptr, &count));
  printf("nodes %zu\n", count);
  CU(cuGraphNodeGetDependencies(b, nullptr, nullptr, &count));
  printf("b depends on %zu\n", count);
}

CASE(nodes_keep_their_handles) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, &a, 1));
  const auto first = nodes_of(gpu.graph), second = nodes_of(gpu.graph);
  printf("same %d, known %d\n", first == second, (first[0] == a || first[1] == a) && (first[0] == b || first[1] == b));
}

CASE(kernel_chain) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  CUgraphNode before = nullptr;
  for (uint32_t i = 0; i < 5; ++i) {
    StepArgs args(data.pointer, 3, i, 64);
    const auto p = step_params(module.function("step"), args);
    CUgraphNode node = nullptr;
    CU(cuGraphAddKernelNode(&node, gpu.graph, before == nullptr ? nullptr : &before, before == nullptr ? 0 : 1, &p));
    before = node;
  }
  printf("type %s\n", type_of(before));
  CUgraphExec exec = gpu.instantiate();
  gpu.run(exec);
  gpu.run(exec);
  print_values("data", data.read());
}

CASE(kernel_node_v1) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  StepArgs args(data.pointer, 5, 2, 64);
  CUDA_KERNEL_NODE_PARAMS_v1 p{};
  p.func = module.function("step");
  p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
  p.blockDimX = 64;
  p.kernelParams = args.pointers;
  auto* add = conformance::symbol_as<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS_v1*)>("cuGraphAddKernelNode");
  CUgraphNode node = nullptr;
  SHOW(add(&node, gpu.graph, nullptr, 0, &p));
  SHOW(add(&node, gpu.graph, nullptr, 0, nullptr));
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
}

CASE(kernel_node_bad_parameters) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  StepArgs args(0, 1, 1, 0);
  CUgraphNode node = nullptr;
  auto p = step_params(module.function("step"), args);
  SHOW(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, nullptr));
  p.gridDimX = 0;
  SHOW(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, &p));
  p.gridDimX = 1;
  p.blockDimX = 4096;
  SHOW(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, &p));
  p.blockDimX = 64;
  p.func = nullptr;
  SHOW(cuGraphAddKernelNode(&node, gpu.graph, nullptr, 0, &p));
}

CASE(memset_node) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  CUgraphNode node = nullptr;
  auto p = fill_params(data.pointer, 42, 64);
  SHOW(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  printf("type %s\n", type_of(node));
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
  p.elementSize = 3;
  SHOW(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  p.elementSize = 4;
  p.dst = data.pointer + 1;
  SHOW(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  SHOW(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, nullptr, gpu.context));
}

CASE(copy_node_on_device) {
  GraphGpu gpu;
  DeviceArray<uint32_t> from(std::vector<uint32_t>(64, 7)), to(std::vector<uint32_t>(64, 0));
  const auto p = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_DEVICE, from.pointer, 256);
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  printf("type %s\n", type_of(node));
  gpu.run(gpu.instantiate());
  print_values("to", to.read());
}

CASE(copy_node_bad_parameters) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(64);
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, nullptr, gpu.context));
  auto p = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_DEVICE, data.pointer, 0);
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  p = copy_params(CU_MEMORYTYPE_DEVICE, 0, CU_MEMORYTYPE_DEVICE, data.pointer, 16);
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  p = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, static_cast<CUmemorytype>(9), data.pointer, 16);
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
}

// The bytes are those of the program's memory at the time of the launch.
CASE(copy_node_from_pageable_memory) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  std::vector<uint32_t> host(64, 1);
  const auto p = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_HOST, address(host.data()), 256);
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  printf("type %s\n", type_of(node));
  CUgraphExec exec = gpu.instantiate();
  for (uint32_t round = 2; round < 5; ++round) {
    host.assign(64, round);
    gpu.run(exec);
    print_values("data", data.read(), 2);
  }
}

CASE(copy_node_to_pageable_memory) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 5));
  std::vector<uint32_t> host(64, 1);
  const auto p = copy_params(CU_MEMORYTYPE_HOST, address(host.data()), CU_MEMORYTYPE_DEVICE, data.pointer, 256);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  for (uint32_t round = 2; round < 5; ++round) {
    CU(cuMemsetD32(data.pointer, round, 64));
    CU(cuStreamSynchronize(nullptr));
    gpu.run(exec);
    print_values("host", host, 2);
  }
}

CASE(copy_node_large_and_pageable) {
  GraphGpu gpu;
  const size_t count = 3 << 20;
  DeviceArray<uint32_t> data(count);
  Random random(3);
  std::vector<uint32_t> host(count), back(count);
  for (auto& value : host) value = random.next();
  const auto up = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_HOST, address(host.data()), count * 4);
  const auto down = copy_params(CU_MEMORYTYPE_HOST, address(back.data()), CU_MEMORYTYPE_DEVICE, data.pointer, count * 4);
  CUgraphNode first = nullptr, second = nullptr;
  CU(cuGraphAddMemcpyNode(&first, gpu.graph, nullptr, 0, &up, gpu.context));
  CU(cuGraphAddMemcpyNode(&second, gpu.graph, &first, 1, &down, gpu.context));
  gpu.run(gpu.instantiate());
  printf("equal %d\n", host == back);
}

CASE(copy_node_pageable_box) {
  GraphGpu gpu;
  DeviceArray<uint8_t> data(std::vector<uint8_t>(32 * 8 * 4, 0));
  std::vector<uint8_t> host(64 * 8 * 4);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint8_t>(i * 7 + i / 64);
  CUDA_MEMCPY3D p = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_HOST, address(host.data()), 20);
  p.Height = 5, p.Depth = 3;
  p.srcPitch = 64, p.srcHeight = 8, p.srcXInBytes = 4, p.srcY = 1, p.srcZ = 1;
  p.dstPitch = 32, p.dstHeight = 8, p.dstXInBytes = 2, p.dstY = 2;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  gpu.run(gpu.instantiate());
  print_hash("data", data.read());
}

CASE(copy_node_between_pageable_places) {
  GraphGpu gpu;
  std::vector<uint32_t> from(64, 3), to(64, 0);
  const auto p = copy_params(CU_MEMORYTYPE_HOST, address(to.data()), CU_MEMORYTYPE_HOST, address(from.data()), 256);
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddMemcpyNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  printf("type %s\n", type_of(node));
  gpu.run(gpu.instantiate());
  print_values("to", to);
}

CASE(host_node) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  CUgraphNode first = nullptr, second = nullptr;
  CUDA_HOST_NODE_PARAMS p{trace_host, &one};
  SHOW(cuGraphAddHostNode(&first, gpu.graph, nullptr, 0, &p));
  printf("type %s\n", type_of(first));
  p.userData = &two;
  SHOW(cuGraphAddHostNode(&second, gpu.graph, &first, 1, &p));
  SHOW(cuGraphAddHostNode(&second, gpu.graph, nullptr, 0, nullptr));
  p.fn = nullptr;
  SHOW(cuGraphAddHostNode(&second, gpu.graph, nullptr, 0, &p));
  CUgraphExec exec = gpu.instantiate();
  for (int i = 0; i < 3; ++i) gpu.run(exec);
  print_values("seen", trace.seen, 6);
}

// A host function sees what the nodes before it did, and the nodes behind it see what it did.
CASE(host_node_in_the_middle) {
  GraphGpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 256, 0));
  auto* shared = static_cast<uint32_t*>(memory);
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraphNode set = nullptr, down = nullptr, host = nullptr, up = nullptr;
  auto fill = fill_params(data.pointer, 10, 64);
  CU(cuGraphAddMemsetNode(&set, gpu.graph, nullptr, 0, &fill, gpu.context));
  auto copy = copy_params(CU_MEMORYTYPE_HOST, address(shared), CU_MEMORYTYPE_DEVICE, data.pointer, 256);
  CU(cuGraphAddMemcpyNode(&down, gpu.graph, &set, 1, &copy, gpu.context));
  CUDA_HOST_NODE_PARAMS p{[](void* d) { for (int i = 0; i < 64; ++i) static_cast<uint32_t*>(d)[i] += static_cast<uint32_t>(i); }, shared};
  CU(cuGraphAddHostNode(&host, gpu.graph, &down, 1, &p));
  copy = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_HOST, address(shared), 256);
  CU(cuGraphAddMemcpyNode(&up, gpu.graph, &host, 1, &copy, gpu.context));
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
  CU(cuMemFreeHost(memory));
}

CASE(two_instances_with_host_nodes) {
  GraphGpu gpu;
  Gate gate;
  Trace trace;
  TraceEntry entry{&trace, 1};
  CUDA_HOST_NODE_PARAMS p{trace_host, &entry};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec a = gpu.instantiate(), b = gpu.instantiate();
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  gate.stop(gpu.stream);
  CU(cuGraphLaunch(a, gpu.stream));  // held back
  CU(cuGraphLaunch(b, other));
  CU(cuStreamSynchronize(other));
  printf("after the free one: %zu\n", trace.seen.size());
  gate.open();
  CU(cuStreamSynchronize(gpu.stream));
  printf("after both: %zu\n", trace.seen.size());
}

CASE(instance_destroyed_while_its_host_node_waits) {
  GraphGpu gpu;
  Gate gate;
  Trace trace;
  TraceEntry entry{&trace, 1};
  CUDA_HOST_NODE_PARAMS p{trace_host, &entry};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec exec = gpu.instantiate();
  gate.stop(gpu.stream);
  CU(cuGraphLaunch(exec, gpu.stream));
  std::thread opener([&] { gate.open(); });  // a driver may let the destroying call wait for the launch
  SHOW(cuGraphExecDestroy(exec));
  opener.join();
  CU(cuStreamSynchronize(gpu.stream));
  print_values("seen", trace.seen);
}

CASE(child_graph_node) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraph child = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode node = nullptr, inner = nullptr;
  auto p = fill_params(data.pointer, 9, 64);
  CU(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &p, gpu.context));
  SHOW(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, child));
  SHOW(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, nullptr));
  printf("type %s\n", type_of(nodes_of(gpu.graph)[0]));
  SHOW(cuGraphDestroy(child));
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
}

CASE(embedded_graph_is_the_nodes_own) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraph child = nullptr, inside = nullptr, again = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode node = nullptr, inner = nullptr;
  auto p = fill_params(data.pointer, 9, 64);
  CU(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &p, gpu.context));
  CU(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, child));
  SHOW(cuGraphChildGraphNodeGetGraph(node, &inside));
  SHOW(cuGraphChildGraphNodeGetGraph(node, &again));
  printf("another graph %d, always the same %d, nodes %zu\n", inside != child, inside == again, nodes_of(inside).size());
  const auto nodes = nodes_of(inside);
  p.value = 21;
  SHOW(cuGraphMemsetNodeSetParams(nodes[0], &p));
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
  SHOW(cuGraphChildGraphNodeGetGraph(inner, &inside));
  SHOW(cuGraphChildGraphNodeGetGraph(node, nullptr));
}

CASE(child_graph_with_host_node) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry entry{&trace, 4};
  CUgraph child = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode inner = nullptr, a = nullptr, b = nullptr;
  CUDA_HOST_NODE_PARAMS p{trace_host, &entry};
  CU(cuGraphAddHostNode(&inner, child, nullptr, 0, &p));
  CU(cuGraphAddChildGraphNode(&a, gpu.graph, nullptr, 0, child));
  CU(cuGraphAddChildGraphNode(&b, gpu.graph, &a, 1, child));
  CUgraphExec exec = gpu.instantiate();
  gpu.run(exec);
  gpu.run(exec);
  print_values("seen", trace.seen, 8);
}

CASE(child_graph_in_itself) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  SHOW(cuGraphAddChildGraphNode(&node, gpu.graph, nullptr, 0, gpu.graph));
}

CASE(child_graph_moves) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraph child = nullptr, inside = nullptr;
  CU(cuGraphCreate(&child, 0));
  CUgraphNode node = nullptr, inner = nullptr;
  auto p = fill_params(data.pointer, 6, 64);
  CU(cuGraphAddMemsetNode(&inner, child, nullptr, 0, &p, gpu.context));
  CUgraphNodeParams typed{};
  typed.type = CU_GRAPH_NODE_TYPE_GRAPH;
  typed.graph.graph = child;
  typed.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  SHOW(cuGraphAddNode(&node, gpu.graph, nullptr, nullptr, 0, &typed));
  SHOW(cuGraphChildGraphNodeGetGraph(node, &inside));
  printf("the same graph %d\n", inside == child);
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
}

CASE(event_nodes) {
  GraphGpu gpu;
  CUevent recorded = nullptr, waited = nullptr;
  CU(cuEventCreate(&recorded, 0));
  CU(cuEventCreate(&waited, 0));
  CUgraphNode record = nullptr, wait = nullptr;
  SHOW(cuGraphAddEventWaitNode(&wait, gpu.graph, nullptr, 0, waited));
  SHOW(cuGraphAddEventRecordNode(&record, gpu.graph, &wait, 1, recorded));
  printf("types %s, %s\n", type_of(wait), type_of(record));
  CUgraphExec exec = gpu.instantiate();
  Gate gate;
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  gate.stop(other);
  CU(cuEventRecord(waited, other));
  SHOW(cuGraphLaunch(exec, gpu.stream));
  SHOW(cuEventQuery(recorded));
  gate.open();
  SHOW(cuEventSynchronize(recorded));
  SHOW(cuEventQuery(recorded));
  CU(cuStreamSynchronize(gpu.stream));
}

CASE(event_nodes_bad_event) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddEventRecordNode(&node, gpu.graph, nullptr, 0, nullptr));
  SHOW(cuGraphAddEventWaitNode(&node, gpu.graph, nullptr, 0, nullptr));
}

CASE(batch_memory_operations_node) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[0].writeValue.address = data.pointer;
  ops[0].writeValue.value = 11;
  ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  ops[1].writeValue.address = data.pointer + 8;
  ops[1].writeValue.value64 = (uint64_t{1} << 32) + 22;
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{gpu.context, 2, ops, 0};
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddBatchMemOpNode(&node, gpu.graph, nullptr, 0, &p));
  printf("type %s\n", type_of(node));
  gpu.run(gpu.instantiate());
  print_values("data", data.read());
  p.count = 0;
  SHOW(cuGraphAddBatchMemOpNode(&node, gpu.graph, nullptr, 0, &p));
  SHOW(cuGraphAddBatchMemOpNode(&node, gpu.graph, nullptr, 0, nullptr));
}

CASE(batch_memory_operations_wait) {
  GraphGpu gpu;
  Gate gate;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  ops[0].waitValue.address = gate.pointer;
  ops[0].waitValue.value = 1;
  ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[1].writeValue.address = data.pointer;
  ops[1].writeValue.value = 5;
  CUDA_BATCH_MEM_OP_NODE_PARAMS p{gpu.context, 2, ops, 0};
  CUgraphNode node = nullptr;
  CU(cuGraphAddBatchMemOpNode(&node, gpu.graph, nullptr, 0, &p));
  CU(cuGraphLaunch(gpu.instantiate(), gpu.stream));
  SHOW(cuStreamQuery(gpu.stream));
  gate.open();
  SHOW(cuStreamSynchronize(gpu.stream));
  print_values("data", data.read(), 1);
}

CASE(typed_nodes) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0)), copy(std::vector<uint32_t>(64, 0));
  Trace trace;
  TraceEntry entry{&trace, 3};
  StepArgs args(data.pointer, 2, 1, 64);
  std::vector<CUgraphNode> chain;
  auto add = [&](CUgraphNodeParams p) {
    CUgraphNode node = nullptr;
    const CUresult result = cuGraphAddNode(&node, gpu.graph, chain.empty() ? nullptr : &chain.back(), nullptr, chain.empty() ? 0 : 1, &p);
    printf("%s -> %s\n", type_name(p.type), code_name(result));
    if (result == CUDA_SUCCESS) chain.push_back(node);
  };
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_MEMSET;
  p.memset = {data.pointer, 0, 10, 4, 64, 1, gpu.context};
  add(p);
  p = {};
  p.type = CU_GRAPH_NODE_TYPE_KERNEL;
  p.kernel.func = module.function("step");
  p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
  p.kernel.blockDimX = 64;
  p.kernel.kernelParams = args.pointers;
  add(p);
  p = {};
  p.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  p.memcpy.copyCtx = gpu.context;
  p.memcpy.copyParams = copy_params(CU_MEMORYTYPE_DEVICE, copy.pointer, CU_MEMORYTYPE_DEVICE, data.pointer, 256);
  add(p);
  p = {};
  p.type = CU_GRAPH_NODE_TYPE_HOST;
  p.host = {trace_host, &entry};
  add(p);
  p = {};
  p.type = CU_GRAPH_NODE_TYPE_EMPTY;
  add(p);
  gpu.run(gpu.instantiate());
  print_values("copy", copy.read());
  print_values("seen", trace.seen);
}

CASE(typed_node_bad_parameters) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  CUgraphNodeParams p{};
  SHOW(cuGraphAddNode(&node, gpu.graph, nullptr, nullptr, 0, nullptr));
  p.type = static_cast<CUgraphNodeType>(99);
  SHOW(cuGraphAddNode(&node, gpu.graph, nullptr, nullptr, 0, &p));
  p.type = CU_GRAPH_NODE_TYPE_EMPTY;
  SHOW(cuGraphAddNode(nullptr, gpu.graph, nullptr, nullptr, 0, &p));
  SHOW(cuGraphAddNode(&node, nullptr, nullptr, nullptr, 0, &p));
  p.type = CU_GRAPH_NODE_TYPE_HOST;
  SHOW(cuGraphAddNode(&node, gpu.graph, nullptr, nullptr, 0, &p));
}

CASE(typed_node_old_call) {
  GraphGpu gpu;
  auto* add = conformance::symbol_as<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraphNodeParams*)>("cuGraphAddNode");
  CUgraphNode node = nullptr;
  CUgraphNodeParams p{};
  p.type = CU_GRAPH_NODE_TYPE_EMPTY;
  SHOW(add(&node, gpu.graph, nullptr, 0, &p));
  printf("type %s\n", type_of(node));
}

CASE(semaphore_nodes_without_semaphores) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal{};
  CUDA_EXT_SEM_WAIT_NODE_PARAMS wait{};
  printf("signal node of an empty one: %d\n", cuGraphExternalSemaphoresSignalNodeGetParams(node, &signal) == CUDA_SUCCESS);
  printf("wait node of an empty one: %d\n", cuGraphExternalSemaphoresWaitNodeGetParams(node, &wait) == CUDA_SUCCESS);
}

CASE(clone) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraphNode first = nullptr, second = nullptr, found = nullptr;
  auto p = fill_params(data.pointer, 1, 64);
  CU(cuGraphAddMemsetNode(&first, gpu.graph, nullptr, 0, &p, gpu.context));
  CU(cuGraphAddEmptyNode(&second, gpu.graph, &first, 1));
  CUgraph clone = nullptr;
  SHOW(cuGraphClone(&clone, gpu.graph));
  SHOW(cuGraphClone(nullptr, gpu.graph));
  print_types("clone", clone);
  SHOW(cuGraphNodeFindInClone(&found, first, clone));
  printf("found another %d of type %s\n", found != first, type_of(found));
  p.value = 2;
  CU(cuGraphMemsetNodeSetParams(found, &p));
  gpu.run(gpu.instantiate());
  print_values("original", data.read(), 2);
  gpu.run(gpu.instantiate(clone));
  print_values("clone", data.read(), 2);
  SHOW(cuGraphNodeFindInClone(&found, first, gpu.graph));
  CU(cuGraphDestroyNode(found == nullptr ? second : second));
  SHOW(cuGraphNodeFindInClone(nullptr, first, clone));
}

CASE(clone_with_host_and_pageable_nodes) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry entry{&trace, 8};
  std::vector<uint32_t> host(64, 77);
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraphNode a = nullptr, b = nullptr;
  CUDA_HOST_NODE_PARAMS p{trace_host, &entry};
  CU(cuGraphAddHostNode(&a, gpu.graph, nullptr, 0, &p));
  const auto copy = copy_params(CU_MEMORYTYPE_DEVICE, data.pointer, CU_MEMORYTYPE_HOST, address(host.data()), 256);
  CU(cuGraphAddMemcpyNode(&b, gpu.graph, &a, 1, &copy, gpu.context));
  CUgraph clone = nullptr;
  CU(cuGraphClone(&clone, gpu.graph));
  print_types("clone", clone);
  CU(cuGraphDestroy(gpu.graph));
  gpu.run(gpu.instantiate(clone));
  print_values("seen", trace.seen);
  print_values("data", data.read());
}

CASE(instance_outlives_its_graph) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraphNode node = nullptr;
  const auto p = fill_params(data.pointer, 13, 64);
  CU(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  CU(cuGraphDestroy(gpu.graph));
  gpu.run(exec);
  print_values("data", data.read(), 1);
  SHOW(cuGraphExecDestroy(exec));
}

CASE(null_instance) {
  GraphGpu gpu;
  cuuint64_t flags = 0;
  SHOW(cuGraphLaunch(nullptr, gpu.stream));
  SHOW(cuGraphUpload(nullptr, gpu.stream));
  SHOW(cuGraphExecDestroy(nullptr));
  SHOW(cuGraphExecGetFlags(nullptr, &flags));
}

CASE(upload_then_launch) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraphNode node = nullptr;
  const auto p = fill_params(data.pointer, 14, 64);
  CU(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  SHOW(cuGraphUpload(exec, gpu.stream));
  SHOW(cuGraphLaunch(exec, gpu.stream));
  SHOW(cuStreamSynchronize(gpu.stream));
  print_values("data", data.read(), 1);
}

CASE(debug_dot_print) {
  GraphGpu gpu;
  CUgraphNode a = nullptr, b = nullptr;
  CU(cuGraphAddEmptyNode(&a, gpu.graph, nullptr, 0));
  CU(cuGraphAddEmptyNode(&b, gpu.graph, &a, 1));
  char folder[] = "/tmp/tube-graph-XXXXXX";
  EXPECT(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/graph.dot";
  SHOW(cuGraphDebugDotPrint(gpu.graph, path.c_str(), 0));
  FILE* file = fopen(path.c_str(), "r");
  printf("written %d\n", file != nullptr);
  std::string text;
  char block[512];
  for (size_t n = 0; file != nullptr && (n = fread(block, 1, sizeof block, file)) != 0;) text.append(block, n);
  printf("digraph %d, one arrow %d\n", text.find("digraph") != std::string::npos, text.find("->") != std::string::npos);
  if (file != nullptr) fclose(file);
  unlink(path.c_str());
  rmdir(folder);
  SHOW(cuGraphDebugDotPrint(gpu.graph, nullptr, 0));
  SHOW(cuGraphDebugDotPrint(nullptr, path.c_str(), 0));
}

CASE(launch_on_the_legacy_stream) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraphNode node = nullptr;
  const auto p = fill_params(data.pointer, 15, 64);
  CU(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  SHOW(cuGraphLaunch(gpu.instantiate(), nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  print_values("data", data.read(), 1);
  SHOW(cuGraphLaunch_ptsz(gpu.instantiate(), nullptr));
  SHOW(cuGraphUpload_ptsz(gpu.instantiate(), nullptr));
  SHOW(cuCtxSynchronize());
}

// Graphs as a whole: edges, order, clones, child graphs as they are listed, instances and their
// launches.
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

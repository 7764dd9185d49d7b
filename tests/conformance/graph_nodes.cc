// Nodes of every type, added by the call of their kind and by the typed one: what they do, and what
// is refused.
#include <thread>

#include "tests/conformance/graph.h"

CASES_HOLD_STREAMS;

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

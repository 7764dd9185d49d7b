// What streams capture: every kind of operation, what it does at each launch, and what the capture
// answers while it lasts.
#include "tests/conformance/graph.h"

#include <algorithm>

CASE(capture_nothing) {
  GraphGpu gpu;
  gpu.begin();
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  printf("graph %d, nodes %zu\n", graph != nullptr, nodes_of(graph).size());
  gpu.run(gpu.instantiate(graph));
}

CASE(capture_of_the_legacy_stream) {
  GraphGpu gpu;
  CUgraph graph = nullptr;
  SHOW(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuStreamEndCapture(nullptr, &graph));
}

CASE(capture_twice) {
  GraphGpu gpu;
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  SHOW(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  SHOW(cuStreamBeginCapture(gpu.stream, static_cast<CUstreamCaptureMode>(7)));
  SHOW(cuStreamEndCapture(gpu.stream, nullptr));
}

CASE(old_begin_calls) {
  GraphGpu gpu;
  for (const char* name : {"cuStreamBeginCapture", "cuStreamBeginCapture_ptsz"}) {
    auto* begin = conformance::symbol_as<CUresult(CUstream)>(name);
    CUgraph graph = nullptr;
    printf("%s: %s\n", name, code_name(begin(gpu.stream)));
    SHOW(cuStreamEndCapture(gpu.stream, &graph));
  }
}

CASE(per_thread_forms) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status{};
  SHOW(cuStreamBeginCapture_v2_ptsz(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuStreamIsCapturing_ptsz(nullptr, &status));
  printf("status %d\n", static_cast<int>(status));
  SHOW(cuMemsetD32Async_ptsz(data.pointer, 3, 64, nullptr));
  SHOW(cuStreamEndCapture_ptsz(nullptr, &graph));
  SHOW(cuStreamBeginCaptureToGraph_ptsz(nullptr, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuStreamEndCapture_ptsz(nullptr, &graph));
  gpu.run(gpu.instantiate(graph));
  print_values("data", data.read(), 1);
}

CASE(capture_host_function) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  gpu.begin();
  SHOW(cuLaunchHostFunc(gpu.stream, trace_host, &one));
  SHOW(cuLaunchHostFunc(gpu.stream, trace_host, &two));
  printf("ran at the capture: %zu\n", trace.seen.size());
  CUgraph graph = gpu.end();
  print_types("captured", graph);
  CUgraphExec exec = gpu.instantiate(graph);
  for (int i = 0; i < 3; ++i) gpu.run(exec);
  print_values("seen", trace.seen, 8);
}

CASE(captured_host_function_parameters) {
  GraphGpu gpu;
  int value = 0;
  gpu.begin();
  CU(cuLaunchHostFunc(gpu.stream, trace_host, &value));
  CUgraph graph = gpu.end();
  CUDA_HOST_NODE_PARAMS p{};
  SHOW(cuGraphHostNodeGetParams(nodes_of(graph)[0], &p));
  printf("the same %d\n", p.fn == trace_host && p.userData == &value);
}

CASE(capture_callback) {
  GraphGpu gpu;
  gpu.begin();
  SHOW(cuStreamAddCallback(gpu.stream, [](CUstream, CUresult, void*) {}, nullptr, 0));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
}

CASE(capture_small_pageable_upload) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  std::vector<uint32_t> host(64, 1);
  gpu.begin();
  SHOW(cuMemcpyHtoDAsync(data.pointer, host.data(), 256, gpu.stream));
  CUgraph graph = gpu.end();
  print_types("captured", graph);
  CUgraphExec exec = gpu.instantiate(graph);
  for (uint32_t round = 2; round < 5; ++round) {
    host.assign(64, round);
    gpu.run(exec);
    print_values("data", data.read(), 1);
  }
}

CASE(capture_large_pageable_copies) {
  GraphGpu gpu;
  const size_t count = (5 << 20) + 123;
  DeviceArray<uint8_t> data(count);
  Random random(9);
  std::vector<unsigned char> up = random.bytes(count), down(count);
  gpu.begin();
  SHOW(cuMemcpyHtoDAsync(data.pointer, up.data(), count, gpu.stream));
  SHOW(cuMemcpyDtoHAsync(down.data(), data.pointer, count, gpu.stream));
  CUgraph graph = gpu.end();
  print_types("captured", graph);
  CUgraphExec exec = gpu.instantiate(graph);
  gpu.run(exec);
  printf("equal %d\n", up == down);
  const std::vector<unsigned char> other = random.bytes(count);
  std::copy(other.begin(), other.end(), up.begin());  // In place: the graph names the address.
  gpu.run(exec);
  printf("equal %d\n", up == down);
}

CASE(capture_pageable_download_behind_a_kernel) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  std::vector<uint32_t> host(64, 0);
  gpu.begin();
  LAUNCH(module.function("step"), {1}, {64}, 0, gpu.stream, data.pointer, 2u, 1u, 64);
  CU(cuMemcpyDtoHAsync(host.data(), data.pointer, 256, gpu.stream));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  for (int i = 0; i < 3; ++i) {
    gpu.run(exec);
    print_values("host", host, 1);
  }
}

CASE(capture_pageable_copy_in_two_dimensions) {
  GraphGpu gpu;
  DeviceArray<uint8_t> data(std::vector<uint8_t>(64 * 16, 0));
  std::vector<uint8_t> host(100 * 16);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint8_t>(i);
  CUDA_MEMCPY2D p{};
  p.srcMemoryType = CU_MEMORYTYPE_HOST;
  p.srcHost = host.data();
  p.srcPitch = 100;
  p.srcXInBytes = 3, p.srcY = 2;
  p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p.dstDevice = data.pointer;
  p.dstPitch = 64;
  p.WidthInBytes = 50;
  p.Height = 10;
  gpu.begin();
  SHOW(cuMemcpy2DAsync(&p, gpu.stream));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  gpu.run(exec);
  print_hash("data", data.read());
}

CASE(capture_between_pageable_places) {
  GraphGpu gpu;
  std::vector<uint32_t> from(64, 6), to(64, 0);
  gpu.begin();
  SHOW(cuMemcpyAsync(address(to.data()), address(from.data()), 256, gpu.stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  if (graph == nullptr) return;
  gpu.run(gpu.instantiate(graph));
  print_values("to", to, 1);
}

CASE(captured_upload_behind_an_upload) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  std::vector<uint32_t> a(64, 1), b(32, 2);
  gpu.begin();
  CU(cuMemcpyHtoDAsync(data.pointer, a.data(), 256, gpu.stream));
  CU(cuMemcpyHtoDAsync(data.pointer, b.data(), 128, gpu.stream));
  gpu.run(gpu.instantiate(gpu.end()));
  const auto got = data.read();
  print_values("ends", std::vector<uint32_t>{got[0], got[31], got[32], got[63]});
}

CASE(capture_launch_of_a_graph) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry entry{&trace, 5};
  CUDA_HOST_NODE_PARAMS p{trace_host, &entry};
  CUgraphNode node = nullptr;
  CU(cuGraphAddHostNode(&node, gpu.graph, nullptr, 0, &p));
  CUgraphExec inner = gpu.instantiate();
  gpu.begin();
  SHOW(cuGraphLaunch(inner, gpu.stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  if (graph == nullptr) return;
  print_types("captured", graph);
  CUgraphExec exec = gpu.instantiate(graph);
  gpu.run(exec);
  gpu.run(inner);
  gpu.run(exec);
  print_values("seen", trace.seen);
}

CASE(capture_memory_operations) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUstreamBatchMemOpParams ops[2] = {};
  for (int i = 0; i < 2; ++i) {
    ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[i].writeValue.address = data.pointer + static_cast<unsigned>(4 * i);
    ops[i].writeValue.value = static_cast<unsigned>(i + 7);
  }
  gpu.begin();
  SHOW(cuStreamBatchMemOp(gpu.stream, 2, ops, 0));
  CUgraph graph = gpu.end();
  print_types("captured", graph);
  gpu.run(gpu.instantiate(graph));
  print_values("data", data.read());
}

CASE(capture_event_is_no_node) {
  GraphGpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  gpu.begin();
  SHOW(cuEventRecord(event, gpu.stream));
  SHOW(cuStreamWaitEvent(gpu.stream, event, 0));
  print_types("captured", gpu.end());
}

CASE(capture_external_event) {
  GraphGpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  gpu.begin();
  SHOW(cuEventRecordWithFlags(event, gpu.stream, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuStreamWaitEvent(gpu.stream, event, CU_EVENT_WAIT_EXTERNAL));
  CUgraph graph = gpu.end();
  print_types("captured", graph);
  gpu.run(gpu.instantiate(graph));
  SHOW(cuEventQuery(event));
  SHOW(cuEventSynchronize(event));
}

CASE(external_flags_outside_of_a_capture) {
  GraphGpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuEventRecordWithFlags(event, gpu.stream, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuStreamWaitEvent(gpu.stream, event, CU_EVENT_WAIT_EXTERNAL));
  SHOW(cuEventRecordWithFlags(event, gpu.stream, 2));
}

CASE(fork_and_join) {
  GraphGpu gpu;
  DeviceArray<uint32_t> a(std::vector<uint32_t>(64, 0)), b(std::vector<uint32_t>(64, 0));
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&fork, 0));
  CU(cuEventCreate(&join, 0));
  gpu.begin();
  CU(cuMemsetD32Async(a.pointer, 1, 64, gpu.stream));
  CU(cuEventRecord(fork, gpu.stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  CU(cuMemcpyDtoDAsync(b.pointer, a.pointer, 256, side));
  CU(cuEventRecord(join, side));
  CU(cuStreamWaitEvent(gpu.stream, join, 0));
  CU(cuMemsetD32Async(a.pointer, 9, 64, gpu.stream));
  CUgraph graph = gpu.end();
  size_t edges = 0;
  CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  print_types("captured", graph);
  printf("edges %zu\n", edges);
  gpu.run(gpu.instantiate(graph));
  print_values("b", b.read(), 1);
}

CASE(fork_never_joined) {
  GraphGpu gpu;
  DeviceArray<uint32_t> a(64);
  CUstream side = nullptr;
  CUevent fork = nullptr;
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&fork, 0));
  gpu.begin();
  CU(cuEventRecord(fork, gpu.stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  CU(cuMemsetD32Async(a.pointer, 1, 64, side));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  printf("graph %d\n", graph != nullptr);
}

CASE(host_function_on_a_forked_stream) {
  GraphGpu gpu;
  Trace trace;
  TraceEntry one{&trace, 1}, two{&trace, 2};
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&fork, 0));
  CU(cuEventCreate(&join, 0));
  gpu.begin();
  CU(cuLaunchHostFunc(gpu.stream, trace_host, &one));
  CU(cuEventRecord(fork, gpu.stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  CU(cuLaunchHostFunc(side, trace_host, &two));
  CU(cuEventRecord(join, side));
  CU(cuStreamWaitEvent(gpu.stream, join, 0));
  CUgraphExec exec = gpu.instantiate(gpu.end());
  gpu.run(exec);
  print_values("seen", trace.seen);
}

CASE(capture_info) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(64);
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0, again = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 77;
  SHOW(cuStreamGetCaptureInfo(gpu.stream, &status, &id, &graph, &nodes, &edges, &count));
  printf("status %d\n", static_cast<int>(status));
  gpu.begin();
  SHOW(cuStreamGetCaptureInfo(gpu.stream, &status, &id, &graph, &nodes, &edges, &count));
  printf("status %d, id %d, graph %d, dependencies %zu\n", static_cast<int>(status), id != 0, graph != nullptr, count);
  CU(cuMemsetD32Async(data.pointer, 1, 64, gpu.stream));
  SHOW(cuStreamGetCaptureInfo(gpu.stream, &status, &again, &graph, &nodes, &edges, &count));
  printf("same id %d, dependencies %zu, type %s\n", id == again, count, type_of(nodes[0]));
  printf("nodes in the graph %zu\n", nodes_of(graph).size());
  CUgraph ended = gpu.end();
  printf("nodes at the end %zu\n", nodes_of(ended).size());
  SHOW(cuStreamGetCaptureInfo(gpu.stream, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
}

CASE(capture_info_old_calls) {
  GraphGpu gpu;
  auto* first = conformance::symbol_as<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*)>("cuStreamGetCaptureInfo");
  auto* second = conformance::symbol_as<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*)>("cuStreamGetCaptureInfo_v2");
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 5;
  gpu.begin();
  SHOW(first(gpu.stream, &status, &id));
  printf("status %d, id %d\n", static_cast<int>(status), id != 0);
  SHOW(second(gpu.stream, &status, &id, &graph, &nodes, &count));
  printf("status %d, graph %d, dependencies %zu\n", static_cast<int>(status), graph != nullptr, count);
  SHOW(conformance::symbol_as<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*)>("cuStreamGetCaptureInfo_ptsz")(gpu.stream, &status, &id));
  SHOW(cuStreamGetCaptureInfo_v2_ptsz(gpu.stream, &status, &id, nullptr, nullptr, nullptr));
  SHOW(cuStreamGetCaptureInfo_v3_ptsz(gpu.stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  gpu.end();
}

CASE(node_added_to_the_capture) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  gpu.begin();
  CU(cuMemsetD32Async(data.pointer, 1, 64, gpu.stream));
  CU(cuStreamGetCaptureInfo(gpu.stream, &status, nullptr, &graph, &nodes, nullptr, &count));
  const auto p = fill_params(data.pointer, 2, 32);
  CUgraphNode added = nullptr;
  SHOW(cuGraphAddMemsetNode(&added, graph, nodes, count, &p, gpu.context));
  SHOW(cuStreamUpdateCaptureDependencies(gpu.stream, &added, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CU(cuStreamGetCaptureInfo(gpu.stream, &status, nullptr, &graph, &nodes, nullptr, &count));
  printf("dependencies %zu, the added one %d\n", count, nodes[0] == added);
  CU(cuMemsetD32Async(data.pointer, 3, 8, gpu.stream));
  CUgraph ended = gpu.end();
  size_t edges = 0;
  CU(cuGraphGetEdges(ended, nullptr, nullptr, nullptr, &edges));
  print_types("captured", ended);
  printf("edges %zu\n", edges);
  gpu.run(gpu.instantiate(ended));
  const auto got = data.read();
  print_values("parts", std::vector<uint32_t>{got[0], got[31], got[63]});
}

CASE(update_dependencies_refused) {
  GraphGpu gpu;
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, gpu.graph, nullptr, 0));
  SHOW(cuStreamUpdateCaptureDependencies(gpu.stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  gpu.begin();
  SHOW(cuStreamUpdateCaptureDependencies(gpu.stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuStreamUpdateCaptureDependencies(gpu.stream, nullptr, nullptr, 1, 0));
  SHOW(cuStreamUpdateCaptureDependencies(gpu.stream, nullptr, nullptr, 0, 0));
  SHOW(cuStreamUpdateCaptureDependencies(gpu.stream, nullptr, nullptr, 0, 9));
  CUgraph graph = nullptr;
  cuStreamEndCapture(gpu.stream, &graph);
}

CASE(update_dependencies_old_calls) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(64);
  gpu.begin();
  for (const char* name : {"cuStreamUpdateCaptureDependencies", "cuStreamUpdateCaptureDependencies_ptsz"}) {
    auto* update = conformance::symbol_as<CUresult(CUstream, CUgraphNode*, size_t, unsigned)>(name);
    printf("%s: %s\n", name, code_name(update(gpu.stream, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES)));
    CU(cuMemsetD32Async(data.pointer, 1, 64, gpu.stream));
  }
  SHOW(cuStreamUpdateCaptureDependencies_v2_ptsz(gpu.stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CUgraph graph = gpu.end();
  size_t roots = 0;
  CU(cuGraphGetRootNodes(graph, nullptr, &roots));
  printf("roots %zu\n", roots);
}

CASE(capture_into_a_graph) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  const auto p = fill_params(data.pointer, 1, 64);
  CUgraphNode first = nullptr;
  CU(cuGraphAddMemsetNode(&first, gpu.graph, nullptr, 0, &p, gpu.context));
  SHOW(cuStreamBeginCaptureToGraph(gpu.stream, gpu.graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuMemsetD32Async(data.pointer, 2, 32, gpu.stream));
  Trace trace;
  TraceEntry entry{&trace, 1};
  CU(cuLaunchHostFunc(gpu.stream, trace_host, &entry));
  CUgraph ended = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &ended));
  printf("the same graph %d\n", ended == gpu.graph);
  print_types("graph", gpu.graph);
  gpu.run(gpu.instantiate());
  const auto got = data.read();
  print_values("parts", std::vector<uint32_t>{got[0], got[63]});
  print_values("seen", trace.seen);
  SHOW(cuStreamBeginCaptureToGraph(gpu.stream, nullptr, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

CASE(capture_into_a_graph_ends_without_being_told_it) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 0));
  CUstreamCaptureStatus status{};
  SHOW(cuStreamBeginCaptureToGraph(gpu.stream, gpu.graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuMemsetD32Async(data.pointer, 5, 64, gpu.stream));
  SHOW(cuStreamEndCapture(gpu.stream, nullptr));
  CU(cuStreamIsCapturing(gpu.stream, &status));
  printf("status %d\n", static_cast<int>(status));
  print_types("graph", gpu.graph);
  gpu.run(gpu.instantiate());
  print_values("data", data.read(), 1);
}

CASE(broken_capture_into_a_graph_ends_without_being_told_it) {
  GraphGpu gpu;
  DeviceArray<uint32_t> data(64);
  CUstreamCaptureStatus status{};
  SHOW(cuStreamBeginCaptureToGraph(gpu.stream, gpu.graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuMemsetD32Async(data.pointer, 5, 64, gpu.stream));
  SHOW(cuStreamSynchronize(gpu.stream));
  SHOW(cuStreamEndCapture(gpu.stream, nullptr));
  CU(cuStreamIsCapturing(gpu.stream, &status));
  printf("status %d\n", static_cast<int>(status));
}

CASE(capture_of_a_new_graph_ends_without_a_place_for_it) {
  GraphGpu gpu;
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  gpu.begin();
  SHOW(cuStreamEndCapture(gpu.stream, nullptr));
  CU(cuStreamIsCapturing(gpu.stream, &status));
  printf("status %d\n", static_cast<int>(status));
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
}

CASE(query_invalidates) {
  GraphGpu gpu;
  gpu.begin();
  SHOW(cuStreamQuery(gpu.stream));
  CUstreamCaptureStatus status{};
  CU(cuStreamIsCapturing(gpu.stream, &status));
  printf("status %d\n", static_cast<int>(status));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  printf("graph %d\n", graph != nullptr);
}

CASE(synchronise_invalidates) {
  GraphGpu gpu;
  gpu.begin();
  SHOW(cuStreamSynchronize(gpu.stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
  SHOW(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuStreamEndCapture(gpu.stream, &graph));
}

CASE(exchange_mode) {
  Gpu gpu;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  printf("was %d\n", static_cast<int>(mode));
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  printf("was %d\n", static_cast<int>(mode));
  mode = static_cast<CUstreamCaptureMode>(9);
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
}

CASE(kernel_parameters_of_a_capture) {
  GraphGpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
  gpu.begin();
  LAUNCH(module.function("step"), {2}, {32}, 16, gpu.stream, data.pointer, 6u, 7u, 64);
  CUgraph graph = gpu.end();
  CUDA_KERNEL_NODE_PARAMS p{};
  SHOW(cuGraphKernelNodeGetParams(nodes_of(graph)[0], &p));
  printf("grid %u, block %u, shared %u, factor %u, addend %u\n", p.gridDimX, p.blockDimX, p.sharedMemBytes, *static_cast<uint32_t*>(p.kernelParams[1]),
         *static_cast<uint32_t*>(p.kernelParams[2]));
  printf("the function %d\n", p.func == module.function("step"));
}

CASE(the_graph_that_the_info_names) {
  Gpu gpu;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DeviceArray<uint32_t> memory(16);
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuMemsetD32Async(memory.pointer, 7, 16, stream));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph early = nullptr, again = nullptr, graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  CU(cuStreamGetCaptureInfo(stream, &status, &id, &early, &nodes, nullptr, &count));
  CU(cuMemsetD32Async(memory.pointer, 8, 8, stream));
  CU(cuStreamGetCaptureInfo(stream, &status, &id, &again, &nodes, nullptr, &count));
  CU(cuStreamEndCapture(stream, &graph));
  printf("the same: %d %d\n", early == again, early == graph);
  size_t total = 0;
  CU(cuGraphGetNodes(graph, nullptr, &total));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("%zu nodes, %u %u\n", total, memory.read()[0], memory.read()[15]);
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphDestroy(graph));
}

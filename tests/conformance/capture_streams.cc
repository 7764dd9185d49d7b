// Streams that join a capture and leave it again: by being destroyed, with and without work of
// their own; events that launches record; what a capture can be asked about edges that are not
// plain. NCCL captures a collective with all of these.
#include "tests/conformance/graph.h"

namespace {

struct Captures : GraphGpu {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data{std::vector<uint32_t>(64, 1)}, apart{std::vector<uint32_t>(64, 1)};
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  Captures() {
    CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  }
  CUresult launch(CUstream where, uint32_t addend = 1) const {
    return try_launch(step, {1}, {64}, 0, where, (where == stream ? data : apart).pointer, 3u, addend, 64);
  }
  CUresult launch_recording(CUlaunchAttributeID id, CUevent event) const {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) attribute.value.programmaticEvent = {event, 0, 0};
    else attribute.value.launchCompletionEvent = {event, 0};
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 64, config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    StepArgs args(data.pointer, 3, 1, 64);
    return cuLaunchKernelEx(&config, step, args.pointers, nullptr);
  }
  void side_joins() {
    CU(cuEventRecord(fork, stream));
    CU(cuStreamWaitEvent(side, fork, 0));
  }
  void side_joins_back() {
    CU(cuEventRecord(join, side));
    CU(cuStreamWaitEvent(stream, join, 0));
  }
  void show_status(CUstream where) {
    CUstreamCaptureStatus status{};
    const CUresult r = cuStreamIsCapturing(where, &status);
    printf("status %d (%s)\n", static_cast<int>(status), code_name(r));
  }
  // Ends the capture, says what came of it, and what two runs of it do.
  void show_end() {
    CUgraph captured = nullptr;
    const CUresult r = cuStreamEndCapture(stream, &captured);
    printf("end %s, graph %d\n", code_name(r), captured != nullptr);
    if (captured == nullptr) return;
    print_types("captured", captured);
    CUgraphExec exec = instantiate(captured);
    run(exec);
    run(exec);
    print_values("data", data.read(), 2);
    print_values("apart", apart.read(), 2);
  }
};

void print_edges(const CUgraphEdgeData* edges, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    printf("edge from port %d to port %d of type %d\n", edges[i].from_port, edges[i].to_port, edges[i].type);
  }
}

void the_side_ends_when_it_has_joined_back(Captures& c) {
  c.begin();
  c.side_joins();
  CU(c.launch(c.side));
  c.side_joins_back();
  SHOW(cuStreamDestroy(c.side));
  c.show_status(c.stream);
  SHOW(c.launch(c.stream));
  c.show_end();
}

}  // namespace

CASE(a_joined_stream_without_work_is_destroyed) {
  Captures c;
  c.begin();
  CU(c.launch(c.stream));
  c.side_joins();
  c.show_status(c.side);
  SHOW(cuStreamDestroy(c.side));
  c.show_status(c.stream);
  SHOW(c.launch(c.stream));
  c.show_end();
}

CASE(a_joined_stream_is_destroyed_before_anything_was_captured) {
  Captures c;
  c.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  c.side_joins();
  SHOW(cuStreamDestroy(c.side));
  c.show_status(c.stream);
  SHOW(c.launch(c.stream));
  c.show_end();
}

CASE(a_joined_stream_with_work_is_destroyed) {
  Captures c;
  c.begin();
  CU(c.launch(c.stream));
  c.side_joins();
  CU(c.launch(c.side));
  SHOW(cuStreamDestroy(c.side));
  c.show_status(c.stream);
  SHOW(c.launch(c.stream));
  c.show_end();
}

CASE(a_joined_stream_is_destroyed_when_it_has_joined_back) {
  Captures c;
  the_side_ends_when_it_has_joined_back(c);
}

CASE(a_joined_stream_is_destroyed_that_has_repeated_work_before) {
  Captures c;
  for (int i = 0; i < 400; ++i) {
    CU(c.launch(c.side));
    if (i % 40 == 39) CU(cuStreamSynchronize(c.side));
  }
  the_side_ends_when_it_has_joined_back(c);
}

// The event still carries what the stream had captured.
CASE(a_joined_stream_is_destroyed_and_joins_back_by_its_event) {
  Captures c;
  c.begin();
  c.side_joins();
  CU(c.launch(c.side));
  CU(cuEventRecord(c.join, c.side));
  SHOW(cuStreamDestroy(c.side));
  c.show_status(c.stream);
  SHOW(cuStreamWaitEvent(c.stream, c.join, 0));
  SHOW(c.launch(c.stream));
  c.show_end();
}

// A program that has never used the legacy stream.
CASE(a_joined_stream_is_destroyed_where_all_are_non_blocking) {
  Gpu gpu;
  CUstream stream = nullptr, side = nullptr;
  CUevent fork = nullptr;
  CUdeviceptr data = 0;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CU(cuMemAlloc(&data, 4096));
  CU(cuMemsetD32Async(data, 1, 16, side));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuMemsetD32Async(data, 2, 16, stream));
  CU(cuEventRecord(fork, stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  SHOW(cuStreamDestroy(side));
  SHOW(cuMemsetD32Async(data, 3, 16, stream));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  print_types("captured", graph);
}

CASE(a_joined_stream_without_dependencies_is_destroyed) {
  Captures c;
  c.begin();
  CU(c.launch(c.stream));
  c.side_joins();
  SHOW(cuStreamUpdateCaptureDependencies(c.side, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuStreamDestroy(c.side));
  c.show_status(c.stream);
  c.show_end();
}

CASE(another_stream_joins_after_one_was_destroyed) {
  Captures c;
  c.begin();
  CU(c.launch(c.stream));
  c.side_joins();
  CU(cuStreamDestroy(c.side));
  CU(cuStreamCreate(&c.side, CU_STREAM_NON_BLOCKING));
  c.show_status(c.side);
  c.side_joins();
  c.show_status(c.side);
  CU(c.launch(c.side));
  c.side_joins_back();
  c.show_end();
}

CASE(the_capturing_stream_is_destroyed_with_one_joined) {
  Captures c;
  c.begin();
  CU(c.launch(c.stream));
  c.side_joins();
  SHOW(cuStreamDestroy(c.stream));
  c.show_status(c.side);
  SHOW(cuStreamSynchronize(c.side));
  SHOW(c.launch(c.side));
}

// What a destroyed stream did before it joined goes on when the program ends.
CASE(a_joined_stream_is_destroyed_whose_work_waits_for_the_host) {
  Gpu gpu;
  CUstream stream = nullptr, side = nullptr;
  CUevent fork = nullptr;
  CUdeviceptr data = 0;
  void* flag = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CU(cuMemAlloc(&data, 4 << 20));
  CU(cuMemHostAlloc(&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<uint32_t*>(flag) = 0;
  CU(cuStreamWaitValue32(side, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_GEQ));
  CU(cuMemsetD32Async(data, 1, 1 << 20, side));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuMemsetD32Async(data, 2, 16, stream));
  CU(cuEventRecord(fork, stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  SHOW(cuStreamDestroy(side));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  print_types("captured", graph);
  fflush(stdout);
  _exit(0);
}

CASE(the_event_of_a_launch_outside_a_capture) {
  Captures c;
  CU(c.launch_recording(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, c.fork));
  SHOW(cuStreamWaitEvent(c.side, c.fork, 0));
  SHOW(cuEventSynchronize(c.fork));
  SHOW(cuEventQuery(c.fork));
  CU(c.launch_recording(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, c.join));
  SHOW(cuEventSynchronize(c.join));
  SHOW(cuEventRecord(c.join, c.side));
  SHOW(cuEventSynchronize(c.join));
  CU(cuCtxSynchronize());
  print_values("data", c.data.read(), 2);
}

// A stream that waits for such an event waits for the launch that records it, and that for what is
// before it.
CASE(the_event_of_a_launch_behind_other_work) {
  Captures c;
  for (int i = 0; i < 200; ++i) CU(c.launch(c.stream, 0));
  CU(cuMemsetD32Async(c.apart.pointer, 0, 64, c.side));
  CU(cuStreamSynchronize(c.side));
  CU(cuMemsetD32Async(c.data.pointer, 5, 64, c.stream));
  CU(c.launch_recording(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, c.fork));
  CU(cuStreamWaitEvent(c.side, c.fork, 0));
  CU(cuMemcpyDtoDAsync(c.apart.pointer, c.data.pointer, 256, c.side));
  CU(cuStreamSynchronize(c.side));
  print_values("apart", c.apart.read(), 2);
}

CASE(the_event_of_a_captured_launch) {
  Captures c;
  c.begin();
  SHOW(c.launch_recording(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, c.fork));
  SHOW(cuStreamWaitEvent(c.side, c.fork, 0));
  c.show_status(c.side);
  CU(cuMemsetD32Async(c.apart.pointer, 7, 64, c.side));
  c.side_joins_back();
  CU(c.launch(c.stream));
  c.show_end();
}

CASE(edges_of_a_launch_completion_event) {
  Captures c;
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  c.begin();
  CU(c.launch_recording(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, c.fork));
  CU(cuStreamWaitEvent(c.side, c.fork, 0));
  SHOW(cuStreamGetCaptureInfo(c.side, &status, nullptr, &graph, &nodes, nullptr, &count));
  SHOW(cuStreamGetCaptureInfo(c.side, &status, nullptr, nullptr, nullptr, nullptr, &count));
  SHOW(cuStreamGetCaptureInfo(c.side, &status, nullptr, nullptr, nullptr, nullptr, nullptr));
  SHOW(cuStreamGetCaptureInfo(c.side, &status, nullptr, &graph, &nodes, &edges, &count));
  printf("status %d, dependencies %zu\n", static_cast<int>(status), count);
  print_edges(edges, count);
  auto* second = conformance::symbol_as<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*)>("cuStreamGetCaptureInfo_v2");
  SHOW(second(c.side, &status, nullptr, &graph, &nodes, &count));
  // Handed on to a third stream as they are, as NCCL does it.
  CUstream third = nullptr;
  CU(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
  CU(cuEventRecord(c.join, c.stream));
  CU(cuStreamWaitEvent(third, c.join, 0));
  CU(cuStreamGetCaptureInfo(c.side, &status, nullptr, &graph, &nodes, &edges, &count));
  SHOW(cuStreamUpdateCaptureDependencies(third, const_cast<CUgraphNode*>(nodes), edges, count, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuStreamDestroy(c.side));
  CU(cuStreamGetCaptureInfo(third, &status, nullptr, &graph, &nodes, &edges, &count));
  print_edges(edges, count);
  SHOW(cuStreamDestroy(third));
  c.show_end();
}

CASE(edges_of_a_programmatic_event) {
  Captures c;
  CUstreamCaptureStatus status{};
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  c.begin();
  CU(c.launch_recording(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, c.fork));
  CU(cuStreamWaitEvent(c.side, c.fork, 0));
  SHOW(cuStreamGetCaptureInfo(c.side, &status, nullptr, nullptr, &nodes, nullptr, &count));
  SHOW(cuStreamGetCaptureInfo(c.side, &status, nullptr, nullptr, &nodes, &edges, &count));
  print_edges(edges, count);
  CU(cuStreamDestroy(c.side));
  c.show_end();
}

// What NCCL does around each collective that it captures: a stream of its own in the capture,
// ordered with everything else by an event that graphs record and wait for, and the caller's stream
// going on behind it.
CASE(a_collective_captured) {
  Captures c;
  CUstream live = nullptr, own = nullptr, temporary = nullptr;
  CUevent serial = nullptr, scratch = nullptr, finished = nullptr;
  for (CUstream* s : {&live, &own}) CU(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
  for (CUevent* e : {&serial, &finished}) CU(cuEventCreate(e, CU_EVENT_DISABLE_TIMING));
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  c.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  SHOW(cuStreamGetCaptureInfo(c.stream, &status, &id, &graph, nullptr, nullptr, nullptr));
  CU(cuEventCreate(&scratch, CU_EVENT_DISABLE_TIMING));
  SHOW(cuEventRecord(scratch, c.stream));
  SHOW(cuStreamWaitEvent(own, scratch, 0));
  SHOW(cuEventDestroy(scratch));
  SHOW(cuStreamUpdateCaptureDependencies(own, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuEventRecord(serial, live));
  SHOW(cuStreamWaitEvent(own, serial, CU_EVENT_WAIT_EXTERNAL));
  SHOW(cuEventRecord(finished, own));
  SHOW(cuStreamWaitEvent(c.stream, finished, 0));
  SHOW(c.launch(c.stream));
  SHOW(cuEventRecord(finished, c.stream));
  SHOW(cuStreamCreate(&temporary, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamWaitEvent(temporary, finished, 0));
  SHOW(cuStreamGetCaptureInfo(temporary, &status, nullptr, nullptr, &nodes, nullptr, &count));
  SHOW(cuStreamUpdateCaptureDependencies(own, const_cast<CUgraphNode*>(nodes), nullptr, count, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuStreamDestroy(temporary));
  CUgraphNode record = nullptr;
  SHOW(cuGraphAddEventRecordNode(&record, graph, nullptr, 0, serial));
  SHOW(cuStreamGetCaptureInfo(own, &status, nullptr, nullptr, &nodes, nullptr, &count));
  for (size_t i = 0; i < count; ++i) SHOW(cuGraphAddDependencies(graph, &nodes[i], &record, nullptr, 1));
  SHOW(cuStreamUpdateCaptureDependencies(own, &record, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CUuserObject object = nullptr;
  SHOW(cuUserObjectCreate(&object, nullptr, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  c.show_status(c.stream);
  SHOW(c.launch(c.stream));
  c.show_end();
}

// Contexts that end and come again: resets, destroyed contexts, and what becomes of their objects.
#include "tests/conformance/life.h"

#include <atomic>
#include <thread>

CASE(primary_context_comes_again) {
  CU(cuInit(0));
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    CUcontext context = nullptr;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    auto* module = left_behind<Module>("kernels.fatbin");
    auto* data = left_behind<DeviceArray<uint32_t>>(std::vector<uint32_t>(1 << 16, i));
    LAUNCH(module->function("step"), {1}, {64}, 0, nullptr, data->pointer, 3u, 1u, 64);
    sum += data->read()[9];
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, 0));
    CU(cuMemsetD32Async(data->pointer, 1, 64, stream));
    if (i % 2 == 0) CU(cuDevicePrimaryCtxReset(0));
    CU(cuDevicePrimaryCtxRelease(0));  // and with it all of the above
  }
  printf("sum %u\n", sum);
}
namespace {
// A handle of an earlier life must not work; the codes are the business of the chapters of these
// calls. Stale streams and events are not shown: the driver crashes on them.
void refused(const char* call, CUresult code) { printf("%s is %s\n", call, code == CUDA_SUCCESS ? "accepted" : "refused"); }
}  // namespace

CASE(handles_of_a_reset_context) {
  CUcontext context = nullptr;
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuEventCreate(&event, 0));
  CU(cuEventRecord(event, stream));
  CU(cuMemAlloc(&memory, 4096));
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CU(cuModuleGetFunction(&function, module, "poke"));
  CU(cuCtxSynchronize());
  SHOW(cuDevicePrimaryCtxReset(0));
  unsigned flags = 0;
  int active = -1;
  CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
  printf("active %d\n", active);
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("still current: %s\n", current == context ? "yes" : "no");
  CUdeviceptr more = 0;
  SHOW(cuMemAlloc(&more, 16));
  SHOW(cuCtxSynchronize());
  SHOW(cuStreamQuery(nullptr));
  CUcontext again = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&again, 0));
  printf("same handle: %s\n", again == context ? "yes" : "no");
  SHOW(cuCtxSetCurrent(again));
  refused("cuMemFree(memory)", cuMemFree(memory));
  refused("cuModuleUnload(module)", cuModuleUnload(module));
  compute("second life");
}
CASE(handles_of_a_destroyed_context) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CU(cuStreamCreate(&stream, 0));
  CU(cuEventCreate(&event, 0));
  CU(cuMemAlloc(&memory, 4096));
  SHOW(cuCtxDestroy(context));
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("current: %s\n", current == nullptr ? "none" : "some");
  refused("cuCtxDestroy(context)", cuCtxDestroy(context));
  Gpu gpu;
  refused("cuMemFree(memory)", cuMemFree(memory));
  compute("another context");
}
CASE(context_destroyed_under_another_thread) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  std::atomic<int> stage{0};
  std::thread other([&] {
    CU(cuCtxSetCurrent(context));
    stage = 1;
    while (stage.load() != 2) std::this_thread::yield();
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 16));
    SHOW(cuCtxSynchronize());
    CUcontext current = nullptr;
    SHOW(cuCtxGetCurrent(&current));
    SHOW(cuCtxPopCurrent(&current));
    SHOW(cuMemAlloc(&memory, 16));
  });
  while (stage.load() != 1) std::this_thread::yield();
  SHOW(cuCtxDestroy(context));
  stage = 2;
  other.join();
}
CASE(contexts_come_and_go) {
  CU(cuInit(0));
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    CUcontext context = nullptr;
    CU(cuCtxCreate(&context, nullptr, 0, 0));
    auto* module = left_behind<Module>("kernels.fatbin");
    auto* data = left_behind<DeviceArray<uint32_t>>(std::vector<uint32_t>(1 << 16, i));
    LAUNCH(module->function("step"), {1}, {64}, 0, nullptr, data->pointer, 2u, 1u, 64);
    sum += data->read()[1];
    CU(cuCtxDestroy(context));  // and with it the module and the memory
  }
  printf("sum %u\n", sum);
}
namespace {
// A graph of one memset and its instance.
struct SmallGraph {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  SmallGraph(CUcontext context, CUdeviceptr memory) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = memory;
    fill.value = 7;
    fill.elementSize = 1;
    fill.width = 64;
    fill.height = 1;
    CUgraphNode node;
    CU(cuGraphCreate(&graph, 0));
    CU(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context));
    CU(cuGraphInstantiate(&exec, graph, 0));
  }
};
}  // namespace

// They belong to no context.
CASE(graphs_are_destroyed_behind_their_context) {
  CU(cuInit(0));
  CUcontext own = nullptr, other = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, nullptr));
  CU(cuCtxSynchronize());
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  SHOW(cuCtxDestroy(own));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphExecDestroy(exec));
  SHOW(cuCtxSynchronize());
  compute("another context");
}

CASE(streams_and_events_of_a_destroyed_context) {
  CU(cuInit(0));
  CUcontext own = nullptr, other = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr, live = nullptr;
  CUdeviceptr memory = 0;
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_FLOAT, 1};
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CU(cuStreamCreate(&stream, 0));
  CU(cuEventCreate(&event, 0));
  CU(cuMemAlloc(&memory, 64));
  CU(cuArrayCreate(&array, &shape));
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  CU(cuEventCreate(&live, 0));
  SHOW(cuCtxDestroy(own));
  unsigned flags = 0;
  float ms = 0;
  CUcontext of = nullptr;
  SHOW(cuStreamQuery(stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuEventQuery(event));
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventRecord(event, nullptr));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  SHOW(cuEventElapsedTime(&ms, event, live));
  SHOW(cuMemFree(memory));
  SHOW(cuArrayDestroy(array));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuEventDestroy(event));
  SHOW(cuMemsetD8(memory, 1, 16));
  SHOW(cuLaunchHostFunc(stream, [](void*) {}, nullptr));
  SHOW(cuStreamGetCtx(stream, &of));
  SHOW(cuStreamGetFlags(stream, &flags));
  SHOW(cuEventRecord(live, stream));
  SHOW(cuStreamWaitEvent(stream, live, 0));
  SHOW(cuMemcpyHtoDAsync(memory, &flags, 4, stream));
  SHOW(cuCtxSynchronize());
}
CASE(release_without_retain) {
  CU(cuInit(0));
  SHOW(cuDevicePrimaryCtxRelease(0));
  SHOW(cuDevicePrimaryCtxReset(0));
  CUcontext context = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuDevicePrimaryCtxRelease(0));
  SHOW(cuCtxSetCurrent(context));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 16));
  SHOW(cuDevicePrimaryCtxRelease(0));
  SHOW(cuMemAlloc(&memory, 16));
  SHOW(cuDevicePrimaryCtxRelease(0));
}

namespace {
// What a host function waits for and another thread does.
struct Meeting {
  std::atomic<bool> begun{false}, over{false};
  void wait_until_begun() const {
    while (!begun) std::this_thread::yield();
  }
};
void wait_for_the_other(void* argument) {
  auto& meeting = *static_cast<Meeting*>(argument);
  meeting.begun = true;
  while (!meeting.over) std::this_thread::yield();
}
CUstream waiting_stream(Meeting* meeting) {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuLaunchHostFunc(stream, wait_for_the_other, meeting));
  return stream;
}
}  // namespace

CASE(a_capture_ends_with_its_context) {
  CU(cuInit(0));
  CUcontext other = nullptr, context = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuCtxDestroy(context));
  CU(cuCtxSetCurrent(other));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuCtxSynchronize());
  compute("the other context");
}
// A thread with a stream of its own in a context ends while that context does, and the context's
// work waits for the thread.
CASE(a_thread_ends_beside_its_context) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  static std::thread* other = nullptr;
  Meeting meeting;
  other = new std::thread([&] {
    CU(cuCtxSetCurrent(context));
    CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    meeting.begun = true;
    while (!meeting.over) std::this_thread::yield();
  });
  meeting.wait_until_begun();
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuLaunchHostFunc(stream, [](void* argument) {
    static_cast<Meeting*>(argument)->over = true;
    other->join();
  }, &meeting));
  SHOW(cuCtxDestroy(context));
  compute_with_gpu("the next one");
}
// Graphs with host functions are made in one context while another one ends.
CASE(graphs_are_made_beside_a_context_that_ends) {
  CU(cuInit(0));
  CUcontext other = nullptr, context = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  Meeting meeting;
  waiting_stream(&meeting);
  CUresult made = CUDA_ERROR_UNKNOWN;
  std::thread worker([&] {
    CU(cuCtxSetCurrent(other));
    meeting.wait_until_begun();
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CUDA_HOST_NODE_PARAMS params{};
    params.fn = [](void*) {};
    CU(cuGraphCreate(&graph, 0));
    CU(cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
    made = cuGraphInstantiate(&exec, graph, 0);
    meeting.over = true;
  });
  SHOW(cuCtxDestroy(context));
  worker.join();
  printf("made: %s\n", code_name(made));
}

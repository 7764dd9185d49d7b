// What a thread may call while a stream is being captured: each call once inside of a capture of
// its own, what it answers and how the capture ends. The rules depend on the capture's mode, on the
// thread's own mode, and on who calls: the capturing thread or another.
#include <functional>
#include <thread>

#include "tests/conformance/case.h"

namespace {

struct Things : Gpu {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
  // What nothing orders has data of its own: `apart` is that of work on `other`, which waits for
  // nobody.
  DeviceArray<uint32_t> data{std::vector<uint32_t>(64, 1)}, apart{std::vector<uint32_t>(64, 1)};
  CUstream stream = nullptr, other = nullptr, blocking = nullptr;
  CUevent event = nullptr;
  CUdeviceptr spare = 0, pooled = 0;
  void* pinned = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  uint32_t word = 7, word_apart = 7;
  Things() {
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CU(cuEventCreate(&event, 0));
    CU(cuEventRecord(event, other));
    CU(cuMemAlloc(&spare, 4096));
    CU(cuMemAllocAsync(&pooled, 4096, other));
    CU(cuMemHostAlloc(&pinned, 4096, 0));
    CU(cuGraphCreate(&graph, 0));
    CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CU(cuCtxSynchronize());
  }
  CUresult launch(CUstream where) const { return try_launch(step, {1}, {32}, 0, where, (where == other ? apart : data).pointer, 3u, 1u, 32); }
};

struct Rule {
  const char* name;
  std::function<CUresult()> call;
};

// Calls that give and take resources. What one of them made is given back after the capture.
std::vector<Rule> resource_rules(Things& t) {
  return {
      {"cuMemAlloc", [&] { CUdeviceptr p = 0; const CUresult r = cuMemAlloc(&p, 4096); return r; }},
      {"cuMemAllocPitch", [&] { CUdeviceptr p = 0; size_t pitch = 0; return cuMemAllocPitch(&p, &pitch, 100, 10, 4); }},
      {"cuMemAllocHost", [&] { void* p = nullptr; return cuMemAllocHost(&p, 4096); }},
      {"cuMemHostAlloc", [&] { void* p = nullptr; return cuMemHostAlloc(&p, 4096, 0); }},
      {"cuMemAllocManaged", [&] { CUdeviceptr p = 0; return cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL); }},
      {"cuMemAllocAsync on another stream", [&] { CUdeviceptr p = 0; return cuMemAllocAsync(&p, 4096, t.other); }},
      {"cuArrayCreate", [&] {
         CUarray array = nullptr;
         CUDA_ARRAY_DESCRIPTOR d{16, 16, CU_AD_FORMAT_FLOAT, 1};
         return cuArrayCreate(&array, &d);
       }},
      {"cuMemPoolCreate", [&] {
         CUmemoryPool pool = nullptr;
         CUmemPoolProps props{};
         props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
         props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
         return cuMemPoolCreate(&pool, &props);
       }},
      {"cuMemAddressReserve", [&] { CUdeviceptr p = 0; return cuMemAddressReserve(&p, 2u << 20, 0, 0, 0); }},
      {"cuStreamCreate", [&] { CUstream made = nullptr; return cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); }},
      {"cuEventCreate", [&] { CUevent made = nullptr; return cuEventCreate(&made, 0); }},
      {"cuModuleLoadData", [&] { CUmodule made = nullptr; return cuModuleLoadData(&made, read_beside("kernels.fatbin").data()); }},
      {"cuLibraryLoadData", [&] {
         CUlibrary made = nullptr;
         return cuLibraryLoadData(&made, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
       }},
      {"cuModuleGetFunction", [&] { CUfunction f = nullptr; return cuModuleGetFunction(&f, t.module.handle, "fill"); }},
      {"cuGraphCreate", [&] { CUgraph made = nullptr; return cuGraphCreate(&made, 0); }},
      {"cuGraphInstantiate", [&] { CUgraphExec made = nullptr; return cuGraphInstantiateWithFlags(&made, t.graph, 0); }},
      {"cuCtxCreate", [&] {
         CUcontext made = nullptr;
         const CUresult r = cuCtxCreate_v2(&made, 0, 0);
         if (r == CUDA_SUCCESS) CU(cuCtxPopCurrent(nullptr));
         return r;
       }},
  };
}

std::vector<Rule> give_back_rules(Things& t) {
  return {
      {"cuMemFreeAsync on another stream", [&] { return cuMemFreeAsync(t.pooled, t.other); }},
      {"cuEventDestroy", [&] { CUevent e = nullptr; CU(cuEventCreate(&e, 0)); return cuEventDestroy(e); }},
      {"cuStreamDestroy of another stream", [&] { CUstream s = nullptr; CU(cuStreamCreate(&s, 0)); return cuStreamDestroy(s); }},
      {"cuMemFreeHost", [&] { return cuMemFreeHost(t.pinned); }},
      {"cuMemFree", [&] { return cuMemFree(t.spare); }},
  };
}

// Calls that ask, and calls that wait.
std::vector<Rule> question_rules(Things& t) {
  return {
      {"cuMemGetInfo", [&] { size_t a, b; return cuMemGetInfo(&a, &b); }},
      {"cuPointerGetAttribute", [&] { CUcontext c; return cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, t.data.pointer); }},
      {"cuCtxSetLimit", [&] { size_t v; CU(cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE)); return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, v); }},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", [&] { int n; return cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, t.step, 64, 0); }},
      {"cuStreamIsCapturing of the legacy stream", [&] { CUstreamCaptureStatus s; return cuStreamIsCapturing(nullptr, &s); }},
      {"cuStreamQuery of another stream", [&] { return cuStreamQuery(t.other); }},
      {"cuStreamQuery of a blocking stream", [&] { return cuStreamQuery(t.blocking); }},
      {"cuStreamQuery of the legacy stream", [&] { return cuStreamQuery(nullptr); }},
      {"cuEventQuery", [&] { return cuEventQuery(t.event); }},
      {"cuStreamSynchronize of another stream", [&] { return cuStreamSynchronize(t.other); }},
      {"cuStreamSynchronize of the legacy stream", [&] { return cuStreamSynchronize(nullptr); }},
      {"cuEventSynchronize", [&] { return cuEventSynchronize(t.event); }},
      {"cuCtxSynchronize", [&] { return cuCtxSynchronize(); }},
  };
}

// Calls that put work somewhere else.
std::vector<Rule> work_rules(Things& t) {
  return {
      {"cuMemcpyHtoD", [&] { return cuMemcpyHtoD(t.data.pointer, &t.word, 4); }},
      {"cuMemcpyDtoH", [&] { return cuMemcpyDtoH(&t.word, t.data.pointer, 4); }},
      {"cuMemcpyDtoD", [&] { return cuMemcpyDtoD(t.data.pointer + 64, t.data.pointer, 4); }},
      {"cuMemsetD32", [&] { return cuMemsetD32(t.data.pointer, 1, 4); }},
      {"cuMemsetD32Async on another stream", [&] { return cuMemsetD32Async(t.apart.pointer, 1, 4, t.other); }},
      {"cuMemcpyHtoDAsync on another stream", [&] { return cuMemcpyHtoDAsync(t.apart.pointer, &t.word_apart, 4, t.other); }},
      {"cuMemcpyDtoHAsync on another stream", [&] { return cuMemcpyDtoHAsync(&t.word_apart, t.apart.pointer, 4, t.other); }},
      {"a launch on another stream", [&] { return t.launch(t.other); }},
      {"a launch on a blocking stream", [&] { return t.launch(t.blocking); }},
      {"a launch on the legacy stream", [&] { return t.launch(nullptr); }},
      {"cuGraphLaunch on another stream", [&] { return cuGraphLaunch(t.exec, t.other); }},
      {"cuEventRecord on another stream", [&] { return cuEventRecord(t.event, t.other); }},
      {"cuEventRecord on the legacy stream", [&] { return cuEventRecord(t.event, nullptr); }},
      {"cuStreamWaitEvent on the legacy stream", [&] { return cuStreamWaitEvent(nullptr, t.event, 0); }},
      {"a host function on another stream", [&] { return cuLaunchHostFunc(t.other, [](void*) {}, nullptr); }},
      {"cuStreamAddCallback on another stream", [&] { return cuStreamAddCallback(t.other, [](CUstream, CUresult, void*) {}, nullptr, 0); }},
  };
}

using Rules = std::vector<Rule> (*)(Things&);

// Each rule inside of a capture of `captured` in `mode`, called by this thread or by another that
// has the same context.
void try_rules(Rules rules, CUstreamCaptureMode mode, bool by_another_thread, bool of_a_blocking_stream = false) {
  Things t;
  const CUstream captured = of_a_blocking_stream ? t.blocking : t.stream;
  for (const Rule& rule : rules(t)) {
    CU(cuStreamBeginCapture(captured, mode));
    CU(t.launch(captured));
    CUresult code = CUDA_SUCCESS;
    if (by_another_thread) {
      std::thread([&] {
        CU(cuCtxSetCurrent(t.context));
        code = rule.call();
      }).join();
    } else {
      code = rule.call();
    }
    CUstreamCaptureStatus status{};
    CU(cuStreamIsCapturing(captured, &status));
    CUgraph graph = nullptr;
    const CUresult end = cuStreamEndCapture(captured, &graph);
    printf("%s: %s, then %s, %s\n", rule.name, code_name(code), status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "active" : "invalidated", code_name(end));
    if (graph != nullptr) CU(cuGraphDestroy(graph));
  }
  CU(cuCtxSynchronize());
}

}  // namespace

CASE(resources_in_global_mode) { try_rules(resource_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, false); }
CASE(resources_in_thread_local_mode) { try_rules(resource_rules, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false); }
CASE(resources_in_relaxed_mode) { try_rules(resource_rules, CU_STREAM_CAPTURE_MODE_RELAXED, false); }
CASE(resources_by_another_thread_in_global_mode) { try_rules(resource_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, true); }
CASE(resources_by_another_thread_in_thread_local_mode) { try_rules(resource_rules, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true); }
CASE(giving_back_in_global_mode) { try_rules(give_back_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, false); }
CASE(giving_back_in_relaxed_mode) { try_rules(give_back_rules, CU_STREAM_CAPTURE_MODE_RELAXED, false); }
CASE(giving_back_by_another_thread_in_thread_local_mode) { try_rules(give_back_rules, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true); }
CASE(questions_in_global_mode) { try_rules(question_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, false); }
CASE(questions_in_relaxed_mode) { try_rules(question_rules, CU_STREAM_CAPTURE_MODE_RELAXED, false); }
CASE(questions_by_another_thread_in_global_mode) { try_rules(question_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, true); }
CASE(questions_while_a_blocking_stream_captures) { try_rules(question_rules, CU_STREAM_CAPTURE_MODE_RELAXED, false, true); }
CASE(work_in_global_mode) { try_rules(work_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, false); }
CASE(work_in_relaxed_mode) { try_rules(work_rules, CU_STREAM_CAPTURE_MODE_RELAXED, false); }
CASE(work_by_another_thread_in_global_mode) { try_rules(work_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, true); }

// The thread's own mode counts too: relaxed, it may do what a global capture forbids.
CASE(a_relaxed_thread_in_a_global_capture) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CU(cuInit(0));
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  try_rules(resource_rules, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}
CASE(a_thread_local_thread_beside_a_global_capture) {
  Things t;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([&] {
    CU(cuCtxSetCurrent(t.context));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    SHOW(cuThreadExchangeStreamCaptureMode(&mode));
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 4096));
  }).join();
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

// ---- streams, events and threads of captures ----

CASE(ended_by_another_thread) {
  for (const CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    Things t;
    CUgraph graph = nullptr;
    CU(cuStreamBeginCapture(t.stream, mode));
    std::thread([&] {
      CU(cuCtxSetCurrent(t.context));
      SHOW(cuStreamEndCapture(t.stream, &graph));
    }).join();
    SHOW(cuStreamEndCapture(t.stream, &graph));
  }
}

CASE(ended_on_a_joined_stream) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(t.event, t.stream));
  SHOW(cuStreamWaitEvent(t.other, t.event, 0));
  CU(t.launch(t.other));
  SHOW(cuStreamEndCapture(t.other, &graph));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(ended_on_a_joined_stream_by_another_thread) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuEventRecord(t.event, t.stream));
  SHOW(cuStreamWaitEvent(t.other, t.event, 0));
  std::thread([&] {
    CU(cuCtxSetCurrent(t.context));
    SHOW(cuStreamEndCapture(t.other, &graph));
  }).join();
  SHOW(cuStreamEndCapture(t.stream, &graph));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(more_resources_in_global_mode) {
  try_rules(
      [](Things& t) -> std::vector<Rule> {
        static CUmemoryPool pool;
        CUmemPoolProps props{};
        props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CU(cuMemPoolCreate(&pool, &props));
        return {
            {"cuMemPoolTrimTo", [] { return cuMemPoolTrimTo(pool, 0); }},
            {"cuMemPoolDestroy", [] { return cuMemPoolDestroy(pool); }},
            {"cuMemCreate", [] {
               CUmemGenericAllocationHandle handle = 0;
               CUmemAllocationProp prop{};
               prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
               prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
               return cuMemCreate(&handle, 2 << 20, &prop, 0);
             }},
            {"cuGraphExecUpdate", [&t] { CUgraphExecUpdateResultInfo info{}; return cuGraphExecUpdate(t.exec, t.graph, &info); }},
            {"cuGraphUpload on another stream", [&t] { return cuGraphUpload(t.exec, t.other); }},
            {"cuGraphExecDestroy", [&t] { return cuGraphExecDestroy(t.exec); }},
        };
      },
      CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

CASE(a_graph_is_uploaded_into_a_capture) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuGraphUpload(t.exec, t.stream));
  SHOW(t.launch(t.stream));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(the_captured_graph_is_instantiated) {
  Things t;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUstreamCaptureStatus status{};
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(t.launch(t.stream));
  CU(cuStreamGetCaptureInfo(t.stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(t.launch(t.stream));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(a_launch_without_arguments_in_a_capture) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuLaunchKernel(t.step, 1, 1, 1, 32, 1, 1, 0, t.stream, nullptr, nullptr));
  SHOW(t.launch(t.stream));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(two_captures_may_not_meet) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuStreamBeginCapture(t.other, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(t.launch(t.stream));
  CU(cuEventRecord(t.event, t.stream));
  SHOW(cuStreamWaitEvent(t.other, t.event, 0));
  SHOW(cuStreamEndCapture(t.other, &graph));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(a_captured_event_outside) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(t.launch(t.stream));
  CU(cuEventRecord(t.event, t.stream));
  SHOW(cuEventQuery(t.event));
  SHOW(cuStreamEndCapture(t.stream, &graph));
  SHOW(cuEventQuery(t.event));
  SHOW(cuEventSynchronize(t.event));
  SHOW(cuStreamWaitEvent(t.other, t.event, 0));
  CU(cuEventRecord(t.event, t.other));
  SHOW(cuEventSynchronize(t.event));
}

CASE(waiting_for_an_event_of_before) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamWaitEvent(t.stream, t.event, 0));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(the_legacy_stream_waits_for_a_captured_event) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(t.launch(t.stream));
  CU(cuEventRecord(t.event, t.stream));
  SHOW(cuStreamWaitEvent(nullptr, t.event, 0));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

CASE(a_blocking_stream_captures_and_the_legacy_one_works) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(t.launch(nullptr));
  CUstreamCaptureStatus status{};
  CU(cuStreamIsCapturing(t.blocking, &status));
  printf("status %d\n", static_cast<int>(status));
  SHOW(cuStreamEndCapture(t.blocking, &graph));
}

// Questions to the legacy stream itself, and what changes it.
std::vector<Rule> legacy_rules(Things& t) {
  return {
      {"cuStreamBeginCapture", [] { return cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED); }},
      {"cuStreamBeginCaptureToGraph", [&] { return cuStreamBeginCaptureToGraph(nullptr, t.graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED); }},
      {"cuStreamEndCapture", [] { CUgraph graph = nullptr; return cuStreamEndCapture(nullptr, &graph); }},
      {"cuStreamUpdateCaptureDependencies", [] { return cuStreamUpdateCaptureDependencies(nullptr, nullptr, nullptr, 0, 0); }},
      {"cuStreamCopyAttributes to it", [&] { return cuStreamCopyAttributes(nullptr, t.other); }},
      {"cuStreamCopyAttributes from it", [&] { return cuStreamCopyAttributes(t.other, nullptr); }},
      {"cuStreamGetAttribute", [] { CUstreamAttrValue value; return cuStreamGetAttribute(nullptr, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value); }},
      {"cuStreamSetAttribute", [] { CUstreamAttrValue value{}; return cuStreamSetAttribute(nullptr, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value); }},
      {"cuStreamGetPriority", [] { int priority; return cuStreamGetPriority(nullptr, &priority); }},
      {"cuStreamGetFlags", [] { unsigned flags; return cuStreamGetFlags(nullptr, &flags); }},
      {"cuStreamGetId", [] { unsigned long long id; return cuStreamGetId(nullptr, &id); }},
      {"cuStreamGetCtx", [] { CUcontext context; return cuStreamGetCtx(nullptr, &context); }},
      {"cuStreamGetDevice", [] { CUdevice device; return cuStreamGetDevice(nullptr, &device); }},
  };
}

CASE(the_legacy_stream_is_asked_while_a_blocking_one_captures) { try_rules(legacy_rules, CU_STREAM_CAPTURE_MODE_RELAXED, false, true); }

CASE(a_broken_capture) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamSynchronize(t.stream));
  SHOW(t.launch(t.stream));
  SHOW(cuMemsetD32Async(t.data.pointer, 1, 4, t.stream));
  SHOW(cuMemcpyDtoDAsync(t.data.pointer, t.data.pointer + 64, 4, t.stream));
  SHOW(cuEventRecord(t.event, t.stream));
  SHOW(cuStreamWaitEvent(t.stream, t.event, 0));
  SHOW(cuLaunchHostFunc(t.stream, [](void*) {}, nullptr));
  SHOW(cuGraphLaunch(t.exec, t.stream));
  SHOW(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamEndCapture(t.stream, &graph));
  SHOW(t.launch(t.stream));
  SHOW(cuStreamSynchronize(t.stream));
}

CASE(a_capturing_stream_is_destroyed) {
  Things t;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(t.launch(t.stream));
  SHOW(cuStreamDestroy(t.stream));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 4096));
}

CASE(a_refused_launch_in_a_capture) {
  Things t;
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(try_launch(t.step, {1}, {4096}, 0, t.stream, t.data.pointer, 3u, 1u, 32));
  SHOW(cuMemsetD32Async(0, 1, 4, t.stream));
  SHOW(cuMemcpyDtoDAsync(0, t.data.pointer, 4, t.stream));
  SHOW(cuStreamEndCapture(t.stream, &graph));
}

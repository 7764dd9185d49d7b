// Host functions and stream callbacks: when they run, what they see, what waits for them; and
// captures that cross streams.
#include "tests/conformance/streams.h"

#include <memory>

CASES_HOLD_STREAMS;

namespace {

// What host functions leave, in the order in which they ran.
struct Log {
  std::atomic<int> count{0};
  std::atomic<char> letters[256] = {};
  void add(char c) { letters[count.fetch_add(1)] = c; }
  std::string text() const {
    std::string all;
    for (size_t i = 0; letters[i] != 0; ++i) all += letters[i];
    return all;
  }
};
struct Entry {
  Log* log;
  char letter;
};
void write_letter(void* data) {
  const auto* entry = static_cast<const Entry*>(data);
  entry->log->add(entry->letter);
}

struct Peek {
  const std::atomic<uint32_t>* word;
  uint32_t seen = 0;
};
void peek(void* data) {
  auto* p = static_cast<Peek*>(data);
  p->seen = *p->word;
}
void open_gate(void* data) { static_cast<std::atomic<uint32_t>*>(data)->store(1); }

}  // namespace

// ---- host functions ----

CASE(host_functions_of_a_stream_run_in_order) {
  Gpu gpu;
  Apart a;
  Log log;
  std::vector<Entry> entries;
  for (char c = 'a'; c <= 'z'; ++c) entries.push_back({&log, c});
  for (Entry& e : entries) CU(cuLaunchHostFunc(a, write_letter, &e));
  CU(cuStreamSynchronize(a));
  printf("%s\n", log.text().c_str());
}
CASE(host_function_sees_the_work_before_it) {
  Order o;
  Apart a;
  Gate result;
  Peek before{result.word}, after{result.word};
  CUfunction poke = o.module.function("poke");
  LAUNCH(poke, {1}, {1}, 0, a, result.address, 11u);
  CU(cuLaunchHostFunc(a, peek, &before));
  LAUNCH(poke, {1}, {1}, 0, a, result.address, 22u);
  CU(cuLaunchHostFunc(a, peek, &after));
  CU(cuStreamSynchronize(a));
  printf("%u %u\n", before.seen, after.seen);
}
CASE(host_function_holds_the_work_behind_it) {
  Order o;
  Apart a, b;
  static std::atomic<bool> go;
  go = false;
  CU(cuLaunchHostFunc(a, [](void*) { while (!go.load()) std::this_thread::yield(); }, nullptr));
  o.first(a);
  o.step(b, 1, 0);
  CU(cuStreamSynchronize(b));
  SHOW(cuStreamQuery(a));
  go = true;
  o.finish();
}
CASE(host_function_on_legacy_waits_for_blocking_streams) {
  Order o;
  Blocking a;
  Log log;
  Entry one{&log, '1'}, two{&log, '2'}, three{&log, '3'};
  o.hold(a);
  CU(cuLaunchHostFunc(a, write_letter, &one));
  CU(cuLaunchHostFunc(nullptr, write_letter, &two));
  CU(cuLaunchHostFunc(a, write_letter, &three));
  SHOW(cuStreamQuery(nullptr));
  o.finish();
  printf("%s\n", log.text().c_str());
}
CASE(host_function_of_a_free_stream_does_not_wait_for_a_held_one) {
  Order o;
  Apart a, b;
  Log log;
  Entry one{&log, '1'}, two{&log, '2'};
  o.hold(a);
  CU(cuLaunchHostFunc(a, write_letter, &one));
  CU(cuLaunchHostFunc(b, write_letter, &two));
  CU(cuStreamSynchronize(b));
  printf("while held: %s\n", log.text().c_str());
  o.finish();
  printf("then: %s\n", log.text().c_str());
}
CASE(host_function_lets_another_stream_go_on) {
  Order o;
  Apart a, b;
  o.hold(a);
  o.first(a);
  CU(cuLaunchHostFunc(b, open_gate, o.gate.word));
  SHOW(cuStreamSynchronize(a));
  o.finish();
}
CASE(host_function_on_the_per_thread_stream) {
  Order o;
  Log log;
  Entry one{&log, '1'};
  CU(cuLaunchHostFunc(CU_STREAM_PER_THREAD, write_letter, &one));
  CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  printf("%s\n", log.text().c_str());
}
CASE(host_function_runs_when_its_stream_was_destroyed) {
  Order o;
  Log log;
  Entry one{&log, '1'};
  {
    Apart a;
    o.hold(a);
    CU(cuLaunchHostFunc(a, write_letter, &one));
  }
  o.finish();
  printf("%s\n", log.text().c_str());
}
CASE(context_synchronize_waits_for_host_functions) {
  Order o;
  Apart a;
  Log log;
  Entry one{&log, '1'};
  o.hold(a);
  CU(cuLaunchHostFunc(a, write_letter, &one));
  wait_while_opened(o, [] { SHOW(cuCtxSynchronize()); });
  printf("%s\n", log.text().c_str());
}
CASE(event_behind_a_host_function) {
  Order o;
  Apart a;
  Event event;
  Log log;
  Entry one{&log, '1'};
  o.hold(a);
  CU(cuLaunchHostFunc(a, write_letter, &one));
  CU(cuEventRecord(event, a));
  SHOW(cuEventQuery(event));
  o.gate.open();
  SHOW(cuEventSynchronize(event));
  printf("%s\n", log.text().c_str());
}
CASE(host_function_may_not_call) {
  Order o;
  Apart a;
  static CUresult codes[8];
  static CUdeviceptr memory;
  memory = o.value.pointer;
  CU(cuLaunchHostFunc(a, [](void*) {
    CUdeviceptr more = 0;
    CUcontext context = nullptr;
    int count = 0;
    codes[0] = cuMemAlloc(&more, 16);
    codes[1] = cuStreamSynchronize(nullptr);
    codes[2] = cuCtxGetCurrent(&context);
    codes[3] = cuDeviceGetCount(&count);
    codes[4] = cuMemsetD8Async(memory, 0, 16, nullptr);
    codes[5] = cuStreamQuery(nullptr);
    codes[6] = cuCtxSynchronize();
    codes[7] = cuMemFree(memory);
  }, nullptr));
  CU(cuStreamSynchronize(a));
  const char* const names[] = {"cuMemAlloc", "cuStreamSynchronize", "cuCtxGetCurrent", "cuDeviceGetCount", "cuMemsetD8Async", "cuStreamQuery", "cuCtxSynchronize", "cuMemFree"};
  for (int i = 0; i < 8; ++i) printf("%s -> %s\n", names[i], code_name(codes[i]));
  SHOW(cuCtxSynchronize());
}
CASE(stream_callback_gets_stream_and_status) {
  Gpu gpu;
  Apart a;
  static CUstream got;
  static CUresult status;
  static void* data;
  got = nullptr;
  status = CUDA_ERROR_UNKNOWN;
  int mark = 0;
  SHOW(cuStreamAddCallback(a, [](CUstream stream, CUresult code, void* user) { got = stream; status = code; data = user; }, &mark, 0));
  CU(cuStreamSynchronize(a));
  printf("its stream: %d, %s, its data: %d\n", got == a.handle, code_name(status), data == &mark);
}
CASE(stream_callbacks_and_host_functions_mix) {
  Gpu gpu;
  Apart a;
  Log log;
  Entry entries[] = {{&log, 'a'}, {&log, 'b'}, {&log, 'c'}, {&log, 'd'}};
  for (int i = 0; i < 4; ++i) {
    if (i % 2 == 0) CU(cuStreamAddCallback(a, [](CUstream, CUresult, void* data) { write_letter(data); }, &entries[i], 0));
    else CU(cuLaunchHostFunc(a, write_letter, &entries[i]));
  }
  CU(cuStreamSynchronize(a));
  printf("%s\n", log.text().c_str());
}
CASE(bad_host_functions) {
  Gpu gpu;
  Apart a;
  SHOW(cuLaunchHostFunc(a, nullptr, nullptr));
  SHOW(cuStreamAddCallback(a, nullptr, nullptr, 0));
  SHOW(cuStreamAddCallback(a, [](CUstream, CUresult, void*) {}, nullptr, 1));
  CU(cuStreamSynchronize(a));
}
CASE(many_host_functions_in_many_streams) {
  Gpu gpu;
  constexpr int kStreams = 16, kEach = 30;
  static std::atomic<int> ran;
  ran = 0;
  std::vector<std::unique_ptr<Apart>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<Apart>());
  for (int j = 0; j < kEach; ++j) {
    for (auto& s : streams) CU(cuLaunchHostFunc(*s, [](void*) { ++ran; }, nullptr));
  }
  CU(cuCtxSynchronize());
  printf("%d ran\n", ran.load());
}

// ---- behind a fault ----
//
// The program asks nothing while it waits for its callback.

namespace {

struct Told {
  std::atomic<int> code{-1};
  static void callback(CUstream, CUresult code, void* data) {
    static_cast<Told*>(data)->code.store(code);
  }
  // What the callback was told.
  const char* wait() const {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (code.load() < 0 && std::chrono::steady_clock::now() < patience)
      std::this_thread::yield();
    return code.load() < 0 ? "nothing" : code_name(static_cast<CUresult>(code.load()));
  }
};

}  // namespace

FAULTING_CASE(callback_behind_a_fault) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Gate gate;
  Told before, behind;
  std::atomic<uint32_t> ran{0};
  CU(cuStreamAddCallback(stream, Told::callback, &before, 0));
  printf("%s\n", before.wait());
  gate.hold(stream);
  CU(try_launch(module.function("poke"), {1}, {1}, 0, stream, CUdeviceptr{0}, 1u));
  CU(cuLaunchHostFunc(stream, open_gate, &ran));
  CU(cuStreamAddCallback(stream, Told::callback, &behind, 0));
  gate.open();
  printf("%s, function %s\n", behind.wait(), ran.load() != 0 ? "ran" : "did not run");
  fflush(stdout);
  _exit(0);
}

// ---- captures across streams ----

namespace {

// Ends the capture of `stream` and says what came of it; runs the graph once.
void end_and_run(CUstream stream, const Order& o) {
  CUgraph graph = nullptr;
  const CUresult ended = cuStreamEndCapture(stream, &graph);
  size_t nodes = 0, edges = 0;
  if (graph != nullptr) {
    CU(cuGraphGetNodes(graph, nullptr, &nodes));
    CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  }
  printf("cuStreamEndCapture -> %s, %zu nodes, %zu edges\n", code_name(ended), nodes, edges);
  if (graph == nullptr) return;
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuStreamSynchronize(nullptr));  // work beside the capture, which no order says to come first
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  printf("value %u\n", o.value.read()[0]);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

}  // namespace

CASE(capture_forks_and_joins) {
  Order o;
  Apart a, b;
  Event fork_event, join_event;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  o.first(a);
  CU(cuEventRecord(fork_event, a));
  CU(cuStreamWaitEvent(b, fork_event, 0));
  CUstreamCaptureStatus status{};
  CU(cuStreamIsCapturing(b, &status));
  printf("the other stream captures: %d\n", status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  o.second(b);
  CU(cuEventRecord(join_event, b));
  CU(cuStreamWaitEvent(a, join_event, 0));
  o.third(a);
  end_and_run(a, o);
}
CASE(capture_that_is_not_joined) {
  Order o;
  Apart a, b;
  Event fork_event;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  o.first(a);
  CU(cuEventRecord(fork_event, a));
  CU(cuStreamWaitEvent(b, fork_event, 0));
  o.second(b);
  end_and_run(a, o);
  CUstreamCaptureStatus status{};
  SHOW(cuStreamIsCapturing(b, &status));
  printf("status %d\n", static_cast<int>(status));
}
CASE(capture_ended_on_another_stream) {
  Order o;
  Apart a, b;
  Event fork_event;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  o.first(a);
  CU(cuEventRecord(fork_event, a));
  CU(cuStreamWaitEvent(b, fork_event, 0));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(b, &graph));
  SHOW(cuStreamEndCapture(a, &graph));
}
CASE(capture_does_not_run_its_work) {
  Order o;
  Blocking a;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  o.first(a);
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(a, &graph));
  CU(cuGraphDestroy(graph));
  o.finish();
}
CASE(capture_of_the_default_streams) {
  Gpu gpu;
  for (CUstream stream : {static_cast<CUstream>(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    for (CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
      const CUresult begun = cuStreamBeginCapture(stream, mode);
      printf("mode %d: %s\n", static_cast<int>(mode), code_name(begun));
      CUgraph graph = nullptr;
      if (begun == CUDA_SUCCESS) SHOW(cuStreamEndCapture(stream, &graph));
      if (graph != nullptr) CU(cuGraphDestroy(graph));
    }
  }
}
CASE(event_queries_inside_a_capture) {
  Order o;
  Apart a;
  Event inside, outside;
  CU(cuEventRecord(outside, a));
  CU(cuStreamSynchronize(a));
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(inside, a));
  SHOW(cuEventQuery(outside));
  SHOW(cuEventQuery(inside));
  SHOW(cuEventSynchronize(inside));
  SHOW(try_launch(o.kernel, {1}, {32}, 0, a, o.value.pointer, 3u, 1u, 32));
  end_and_run(a, o);
}
CASE(stream_query_inside_a_capture) {
  Order o;
  Apart a, b;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuStreamQuery(b));
  SHOW(cuStreamQuery(a));
  end_and_run(a, o);
}
CASE(legacy_work_beside_a_capture_of_a_blocking_stream) {
  Order o;
  Blocking a;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemsetD32Async(o.value.pointer, 4, 1, nullptr));
  end_and_run(a, o);
}
CASE(legacy_work_beside_a_capture_of_a_non_blocking_stream) {
  Order o;
  Apart a;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemsetD32Async(o.value.pointer, 4, 1, nullptr));
  o.first(a);
  end_and_run(a, o);
}
CASE(capture_mode_and_other_threads) {
  for (CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    Order o;
    Apart a;
    printf("mode %d\n", static_cast<int>(mode));
    CU(cuStreamBeginCapture(a, mode));
    std::thread([&] {
      CU(cuCtxSetCurrent(o.gpu.context));
      CUdeviceptr memory = 0;
      SHOW(cuMemAlloc(&memory, 16));
    }).join();
    SHOW(try_launch(o.kernel, {1}, {32}, 0, a, o.value.pointer, 3u, 1u, 32));
    end_and_run(a, o);
  }
}
CASE(wait_for_an_event_of_a_capture_that_ended) {
  Order o;
  Apart a, b;
  Event event;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuEventRecord(event, a));
  o.first(a);
  end_and_run(a, o);
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(cuEventQuery(event));
}
CASE(graph_launch_is_ordered_by_the_legacy_stream) {
  Order o;
  Blocking a;
  CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  o.second(a);
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(a, &graph));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  o.hold(nullptr);
  o.first(nullptr);
  CU(cuGraphLaunch(exec, a));
  o.third(nullptr);
  SHOW(cuStreamQuery(a));
  o.finish();
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

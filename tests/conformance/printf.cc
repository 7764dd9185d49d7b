// Device printf, assert and trap: whose text comes when, and what a failed assertion leaves behind.
#include <fcntl.h>

#include <algorithm>
#include <thread>

#include "tests/conformance/case.h"

CASES_HOLD_STREAMS;

namespace {

struct Printing : Gpu {
  Module module{"printing.fatbin"};
  CUfunction operator()(const char* name) const { return module.function(name); }
};

void host(const char* text) {
  printf("host: %s\n", text);
  fflush(stdout);
}

// What goes to a standard descriptor until it is given back.
class Diverted {
 public:
  explicit Diverted(FILE* stream) : stream_(stream), file_(tmpfile()), before_(dup(fileno(stream))) {
    EXPECT(file_ != nullptr && before_ >= 0);
    fflush(stream_);
    dup2(fileno(file_), fileno(stream_));
  }
  // From its beginning.
  FILE* give_back() {
    fflush(stream_);
    dup2(before_, fileno(stream_));
    rewind(file_);
    return file_;
  }

 private:
  FILE* stream_;
  FILE* file_;
  int before_;
};

// The text of assertions, whose file name is the build's business.
class ErrorText {
 public:
  void show_assertions(const char* condition) {
    FILE* file = text_.give_back();
    char line[4096];
    std::string wanted = std::string("Assertion `") + condition + "` failed.";
    int count = 0;
    bool with_place = true;
    while (fgets(line, sizeof line, file) != nullptr) {
      if (strstr(line, wanted.c_str()) == nullptr) continue;
      ++count;
      with_place = with_place && strstr(line, "printing.cu:") != nullptr && strstr(line, ": block: [0,0,0], thread: [") != nullptr;
    }
    printf("%d lines about `%s`%s\n", count, condition, count != 0 && with_place ? ", each with its place" : "");
  }

 private:
  Diverted text_{stderr};
};

}  // namespace

CASE(context_synchronize_shows_it) {
  Printing p;
  host("before the launch");
  LAUNCH(p("say"), {1}, {32}, 0, nullptr, 1);
  CU(cuCtxSynchronize());
  host("after the synchronisation");
}

CASE(stream_synchronize_shows_it) {
  Printing p;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  LAUNCH(p("say"), {1}, {1}, 0, stream, 2);
  CU(cuStreamSynchronize(stream));
  host("after");
  CU(cuStreamDestroy(stream));
}

CASE(event_synchronize_shows_it) {
  Printing p;
  CUevent event;
  CU(cuEventCreate(&event, 0));
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 3);
  CU(cuEventRecord(event, nullptr));
  CU(cuEventSynchronize(event));
  host("after");
  CU(cuEventDestroy(event));
}

CASE(blocking_copy_shows_it) {
  Printing p;
  DeviceArray<int> data(4);
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 4);
  int value = 0;
  CU(cuMemcpyDtoH(&value, data.pointer, sizeof value));
  host("after");
}

CASE(copy_between_device_memory_shows_it) {
  Printing p;
  DeviceArray<int> data(8);
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 4);
  while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) {
  }
  CU(cuMemcpyDtoD(data.pointer, data.pointer + 16, 16));
  host("after");
}

CASE(free_shows_it) {
  Printing p;
  CUdeviceptr memory;
  CU(cuMemAlloc(&memory, 64));
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 4);
  while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) {
  }
  CU(cuMemFree(memory));
  host("after");
}

CASE(another_stream_shows_it) {
  Printing p;
  CUstream stream, other;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  LAUNCH(p("say"), {1}, {1}, 0, stream, 4);
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }
  CU(cuStreamSynchronize(other));
  host("after");
}

// ---- what else shows it ----


// The
// program learns from a word in pinned memory that the kernel has ended, so that no call but the
// one in question shows the text.

namespace {

struct Ended : Printing {
  DeviceArray<int> data{8};
  Ended() {
    void* memory = nullptr;
    CUdeviceptr address = 0;
    CU(cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&address, memory, 0));
    auto* word = static_cast<uint32_t*>(memory);
    *word = 0;
    LAUNCH((*this)("say"), {1}, {1}, 0, nullptr, 4);
    CU(cuStreamWriteValue32(nullptr, address, 1, 0));
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) {  // what the kernel did is seen from here on
    }
  }
  ~Ended() {
    host("after");
    CU(cuCtxSynchronize());
  }
};

}  // namespace

CASE(after_nothing) { Ended e; }
CASE(after_a_stream_query) {
  Ended e;
  while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) {
  }
}
CASE(after_an_event_query) {
  Ended e;
  CUevent event;
  CU(cuEventCreate(&event, 0));
  CU(cuEventRecord(event, nullptr));
  while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
  }
}
CASE(after_an_upload) {
  Ended e;
  int value = 1;
  CU(cuMemcpyHtoD(e.data.pointer, &value, sizeof value));
}
CASE(after_an_upload_from_pinned_memory) {
  Ended e;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, 0));
  memset(memory, 0, 64);
  CU(cuMemcpyHtoD(e.data.pointer, memory, 4));
}
CASE(after_an_upload_of_rows) {
  Ended e;
  int value[2] = {1, 2};
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = value;
  copy.srcPitch = 4;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = e.data.pointer;
  copy.dstPitch = 8;
  copy.WidthInBytes = 4;
  copy.Height = 2;
  CU(cuMemcpy2D(&copy));
}
CASE(after_a_memset) {
  Ended e;
  CU(cuMemsetD8(e.data.pointer, 0, 4));
}
CASE(after_an_asynchronous_copy) {
  Ended e;
  int value = 0;
  CU(cuMemcpyDtoHAsync(&value, e.data.pointer, sizeof value, nullptr));
}
CASE(after_a_silent_launch) {
  Ended e;
  LAUNCH(e("stay_silent"), {1}, {1}, 0, nullptr, e.data.pointer, 1);
}
CASE(after_an_allocation) {
  Ended e;
  CUdeviceptr memory;
  CU(cuMemAlloc(&memory, 64));
}

CASE(module_unload_shows_it) {
  Gpu gpu;
  CUmodule module;
  CU(cuModuleLoadData(&module, read_beside("printing.fatbin").data()));
  CUfunction say;
  CU(cuModuleGetFunction(&say, module, "say"));
  LAUNCH(say, {1}, {1}, 0, nullptr, 5);
  while (cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY) {
  }
  CU(cuModuleUnload(module));
  host("after the unload");
}

CASE(context_destroy_shows_it) {
  CU(cuInit(0));
  CUcontext context;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  CUmodule module;
  CU(cuModuleLoadData(&module, read_beside("printing.fatbin").data()));
  CUfunction say;
  CU(cuModuleGetFunction(&say, module, "say"));
  LAUNCH(say, {1}, {1}, 0, nullptr, 6);
  CU(cuCtxDestroy(context));
  host("after the end of the context");
}

CASE(primary_reset_shows_it) {
  CU(cuInit(0));
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CUmodule module;
  CU(cuModuleLoadData(&module, read_beside("printing.fatbin").data()));
  CUfunction say;
  CU(cuModuleGetFunction(&say, module, "say"));
  LAUNCH(say, {1}, {1}, 0, nullptr, 7);
  CU(cuCtxSynchronize());
  host("before the reset");
  CU(cuDevicePrimaryCtxReset(0));
  host("after the reset");
}

CASE(formats) {
  Printing p;
  LAUNCH(p("say_formats"), {1}, {1}, 0, nullptr, 3.25, -5'000'000'000ll, static_cast<CUdeviceptr>(0));
  CU(cuCtxSynchronize());
}

CASE(answers_the_number_of_arguments) {
  Printing p;
  DeviceArray<int> out(3);
  LAUNCH(p("say_result"), {1}, {1}, 0, nullptr, out.pointer, 8);
  CU(cuCtxSynchronize());
  for (int value : out.read()) printf("%d ", value);
  printf("\n");
}

CASE(every_lane) {
  Printing p;
  LAUNCH(p("say_lanes"), {1}, {32}, 0, nullptr, 9);
  CU(cuCtxSynchronize());
}

CASE(launches_keep_their_order) {
  Printing p;
  for (int i = 0; i < 20; ++i) LAUNCH(p("say"), {1}, {1}, 0, nullptr, i);
  CU(cuCtxSynchronize());
  host("after");
}

CASE(many_lines) {
  Printing p;
  Diverted text(stdout);
  for (int i = 0; i < 4; ++i) {
    LAUNCH(p("say_many"), {1}, {1}, 0, nullptr, i * 1000, 1000);
    CU(cuCtxSynchronize());
  }
  FILE* file = text.give_back();
  std::vector<char> seen(1 << 20);
  seen.resize(fread(seen.data(), 1, seen.size(), file));
  printf("%d lines\n", static_cast<int>(std::count(seen.begin(), seen.end(), '\n')));
  print_hash("text", seen);
}

CASE(nothing_without_synchronising) {
  Printing p;
  host("the only line of the host");
  fflush(stdout);
  // No launch follows that would show it, and the program ends at once.
  LAUNCH(p("stay_silent"), {1}, {1}, 0, nullptr, static_cast<CUdeviceptr>(DeviceArray<int>(1).pointer), 1);
  CU(cuCtxSynchronize());
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 10);
  _exit(0);
}

CASE(silent_kernels_of_a_printing_module) {
  Printing p;
  DeviceArray<int> out(1);
  for (int i = 0; i < 50; ++i) LAUNCH(p("stay_silent"), {1}, {1}, 0, nullptr, out.pointer, i);
  printf("%d\n", out.read()[0]);
}

CASE(interleaves_with_the_host) {
  Printing p;
  for (int i = 0; i < 5; ++i) {
    printf("host %d\n", i);
    fflush(stdout);
    LAUNCH(p("say"), {1}, {1}, 0, nullptr, i);
    CU(cuStreamSynchronize(nullptr));
  }
}

CASE(two_streams_in_turn) {
  Printing p;
  CUstream a, b;
  CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 3; ++i) {
    LAUNCH(p("say"), {1}, {1}, 0, a, 100 + i);
    CU(cuStreamSynchronize(a));
    LAUNCH(p("say"), {1}, {1}, 0, b, 200 + i);
    CU(cuStreamSynchronize(b));
  }
  CU(cuStreamDestroy(a));
  CU(cuStreamDestroy(b));
}

CASE(behind_a_wait_for_a_value) {
  Printing p;
  DeviceArray<uint32_t> word(1);
  CU(cuMemsetD32(word.pointer, 0, 1));
  CU(cuCtxSynchronize());
  CUstream waits, writes;
  CU(cuStreamCreate(&waits, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&writes, CU_STREAM_NON_BLOCKING));
  CUevent printed;
  CU(cuEventCreate(&printed, CU_EVENT_DISABLE_TIMING));
  LAUNCH(p("say"), {1}, {1}, 0, waits, 1);
  CU(cuEventRecord(printed, waits));
  CU(cuStreamWaitValue32(waits, word.pointer, 1, CU_STREAM_WAIT_VALUE_EQ));
  LAUNCH(p("say"), {1}, {1}, 0, waits, 2);
  CU(cuEventSynchronize(printed));
  host("the first has printed, the second waits");
  CU(cuStreamWriteValue32(writes, word.pointer, 1, 0));
  CU(cuStreamSynchronize(waits));
  host("both");
}

CASE(in_a_library) {
  Gpu gpu;
  CUlibrary library;
  CU(cuLibraryLoadData(&library, read_beside("printing.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  CU(cuLibraryGetKernel(&kernel, library, "say"));
  LAUNCH(reinterpret_cast<CUfunction>(kernel), {1}, {1}, 0, nullptr, 11);
  CU(cuCtxSynchronize());
  CU(cuLibraryUnload(library));
}

CASE(from_ptx) {
  Gpu gpu;
  Module module("printing.ptx");
  LAUNCH(module.function("say"), {1}, {1}, 0, nullptr, 12);
  CU(cuCtxSynchronize());
}

CASE(captured_into_a_graph) {
  Printing p;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  LAUNCH(p("say"), {1}, {1}, 0, stream, 13);
  LAUNCH(p("say"), {1}, {1}, 0, stream, 14);
  CUgraph graph;
  CU(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  host("nothing so far");
  for (int i = 0; i < 2; ++i) {
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamSynchronize(stream));
    host("launched");
  }
}

CASE(a_graph_s_kernel_node) {
  Printing p;
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  int number = 15;
  void* arguments[] = {&number};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = p("say");
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  CUgraphNode node;
  CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphLaunch(exec, nullptr));
  CU(cuCtxSynchronize());
  host("after");
}

CASE(before_a_host_function) {
  Printing p;
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 16);
  CU(cuStreamSynchronize(nullptr));
  CU(cuLaunchHostFunc(nullptr, [](void*) { host("in the host function"); }, nullptr));
  CU(cuStreamSynchronize(nullptr));
}

CASE(from_several_threads) {
  Printing p;
  CUfunction say = p("say");
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    std::thread thread([&] {
      CU(cuCtxSetCurrent(p.context));
      LAUNCH(say, {1}, {1}, 0, nullptr, 17);
      CU(cuStreamSynchronize(nullptr));
    });
    thread.join();
  }
  host("after");
}

CASE(fifo_limit) {
  Printing p;
  size_t bytes = 0;
  SHOW(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4u << 20));
  SHOW(cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE));
  printf("%d\n", bytes >= (4u << 20));
  LAUNCH(p("say_many"), {1}, {1}, 0, nullptr, 0, 500);
  CU(cuCtxSynchronize());
}

CASE(fifo_limit_after_printing) {
  Printing p;
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 18);
  CU(cuCtxSynchronize());
  SHOW(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2u << 20));
}

CASE(to_a_closed_stdout) {
  Printing p;
  fflush(stdout);
  const int before = dup(1);
  close(1);
  LAUNCH(p("say"), {1}, {1}, 0, nullptr, 19);
  const CUresult result = cuCtxSynchronize();
  dup2(before, 1);
  clearerr(stdout);
  printf("%s\n", code_name(result));
}

CASE(assertion_that_holds) {
  Printing p;
  LAUNCH(p("must_be_positive"), {1}, {32}, 0, nullptr, 1);
  SHOW(cuCtxSynchronize());
}

FAULTING_CASE(assertion_that_fails) {
  Printing p;
  CUfunction kernel = p("must_be_positive");
  ErrorText errors;
  LAUNCH(kernel, {1}, {1}, 0, nullptr, -1);
  const CUresult first = cuCtxSynchronize();
  const CUresult second = cuCtxSynchronize();
  errors.show_assertions("value > 0");
  printf("%s, then %s\n", code_name(first), code_name(second));
  CUdeviceptr pointer;
  SHOW(cuMemAlloc(&pointer, 4));
  SHOW(try_launch(kernel, {1}, {1}, 0, nullptr, 1));
  SHOW(cuStreamQuery(nullptr));
  _exit(3);
}

FAULTING_CASE(assertion_seen_by_a_query) {
  Printing p;
  CUfunction kernel = p("must_be_positive");
  ErrorText errors;
  LAUNCH(kernel, {1}, {1}, 0, nullptr, -1);
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY) result = cuStreamQuery(nullptr);
  (void)cuCtxSynchronize();
  errors.show_assertions("value > 0");
  printf("%s\n", code_name(result));
  _exit(3);
}

FAULTING_CASE(text_before_an_assertion) {
  Printing p;
  CUfunction kernel = p("say_then_assert");
  ErrorText errors;
  LAUNCH(kernel, {1}, {1}, 0, nullptr, -2);
  const CUresult result = cuCtxSynchronize();
  fflush(stdout);
  errors.show_assertions("value > 0");
  printf("%s\n", code_name(result));
  fflush(stdout);
  _exit(3);
}

FAULTING_CASE(trap) {
  Printing p;
  CUfunction kernel = p("trap_when");
  LAUNCH(kernel, {1}, {1}, 0, nullptr, 0);
  SHOW(cuCtxSynchronize());
  LAUNCH(kernel, {1}, {1}, 0, nullptr, 1);
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxSynchronize());
  fflush(stdout);
  _exit(3);
}

FAULTING_CASE(text_before_a_trap) {
  Printing p;
  LAUNCH(p("say_then_trap"), {1}, {1}, 0, nullptr, 1);
  SHOW(cuCtxSynchronize());
  fflush(stdout);
  _exit(3);
}

// Work of streams that the program has already ended, and what follows it: a synchronisation of the
// context waits for it, and a new stream is like any other. A gate keeps the work waiting, which
// another thread opens some calls after the main one says so.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 1 << 20;

class Gate {
 public:
  explicit Gate(CUcontext context) : context_(context) {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&address_, word_, 0));
  }
  // What comes to the stream from here on waits for this.
  void close(CUstream stream) {
    CU(cuStreamWaitValue32(stream, address_, ++value_, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { __atomic_store_n(word_, value_, __ATOMIC_RELEASE); }
  // While `work` runs.
  void open_beside(const std::function<void()>& work) {
    constexpr int kCalls = 300;  // for a call that does not wait to return meanwhile
    std::atomic<bool> begun{false};
    std::thread opener([&] {
      CU(cuCtxSetCurrent(context_));
      while (!begun) std::this_thread::yield();
      for (int i = 0; i < kCalls; ++i) {
        size_t free_bytes = 0, total_bytes = 0;
        CU(cuMemGetInfo(&free_bytes, &total_bytes));
      }
      open();
    });
    begun = true;
    work();
    opener.join();
  }

 private:
  CUcontext context_;
  uint32_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
  uint32_t value_ = 0;
};

struct Case {
  explicit Case(CUcontext context) : gate(context) {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), kBytes, 0));
    CU(cuMemAlloc(&memory, kBytes));
    CU(cuMemAlloc(&other, kBytes));
    CU(cuMemsetD8(memory, 1, kBytes));
    CU(cuMemsetD8(other, 1, kBytes));
    CU(cuCtxSynchronize());
    memset(host, 0, kBytes);
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~Case() {
    CU(cuCtxSynchronize());
    CU(cuMemFree(memory));
    CU(cuMemFree(other));
    CU(cuMemFreeHost(host));
  }
  Gate gate;
  unsigned char* host = nullptr;
  CUdeviceptr memory = 0, other = 0;
  CUstream stream = nullptr;
};

void synchronise_behind_an_end(CUcontext context, bool with_legacy_work) {
  Case c(context);
  c.gate.close(c.stream);
  CU(cuMemcpyDtoHAsync(c.host, c.memory, kBytes, c.stream));
  if (with_legacy_work) CU(cuMemsetD8Async(c.other, 3, kBytes, nullptr));
  CU(cuStreamDestroy(c.stream));
  c.gate.open_beside([&] {
    CU(cuCtxSynchronize());
    printf("%s: %d %d\n", with_legacy_work ? "an end beside work" : "an end", c.host[0],
           c.host[kBytes - 1]);
  });
}

void a_new_stream_behind_an_end(CUcontext context) {
  Case c(context);
  c.gate.close(c.stream);
  CU(cuMemcpyDtoHAsync(c.host, c.memory, kBytes, c.stream));
  CU(cuStreamDestroy(c.stream));
  CUstream next = nullptr;
  CU(cuStreamCreate(&next, CU_STREAM_DEFAULT));
  CU(cuMemsetD8Async(c.other, 7, kBytes, next));
  c.gate.open_beside([&] {
    unsigned char found = 0;
    CU(cuMemcpyDtoH(&found, c.other + kBytes - 1, 1));
    printf("a new stream: %d\n", found);
  });
  CU(cuStreamDestroy(next));
}

// Nothing but the context waits for a non-blocking stream that has ended. All in one thread, which
// opens the gate last.
void others_beside_an_end(CUcontext context, bool by_function) {
  Case c(context);
  std::atomic<bool> let_go{false};
  const auto wait = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
  };
  if (by_function) CU(cuLaunchHostFunc(c.stream, wait, &let_go));
  else c.gate.close(c.stream);
  CU(cuMemcpyDtoHAsync(c.host, c.memory, kBytes, c.stream));
  CU(cuStreamDestroy(c.stream));
  CUstream free_running = nullptr;
  CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
  unsigned char found[2] = {}, sent = 5;
  CU(cuMemcpyDtoH(&found[0], c.memory, 1));
  CU(cuMemcpyHtoD(c.other, &sent, 1));
  CU(cuMemsetD8Async(c.other + 1, 6, 1, free_running));
  CU(cuStreamSynchronize(free_running));
  CU(cuMemsetD8Async(c.other + 2, 7, 1, nullptr));
  CU(cuStreamSynchronize(nullptr));
  CU(cuMemcpyDtoH(&found[1], c.other + 2, 1));
  printf("beside an end: %d %d\n", found[0], found[1]);
  let_go = true;
  if (!by_function) c.gate.open();
  CU(cuCtxSynchronize());
  printf("behind it: %d\n", c.host[kBytes - 1]);
  CU(cuStreamDestroy(free_running));
}

// An event of the whole context comes behind it, too.
void an_event_behind_an_end(CUcontext context) {
  Case c(context);
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  c.gate.close(c.stream);
  CU(cuMemcpyDtoHAsync(c.host, c.memory, kBytes, c.stream));
  CU(cuStreamDestroy(c.stream));
  CU(cuCtxRecordEvent(context, event));
  c.gate.open_beside([&] {
    CU(cuEventSynchronize(event));
    printf("an event behind an end: %d\n", c.host[kBytes - 1]);
  });
  CU(cuEventDestroy(event));
}

// An instance's launches are in order, whatever their streams.
void one_instance_on_two_streams(CUcontext context) {
  Case c(context);
  CUgraph graph = nullptr;
  CUgraphExec instance = nullptr;
  CUgraphNode node = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = c.memory;
  copy.dstDevice = c.other;
  copy.WidthInBytes = kBytes;
  copy.Height = copy.Depth = 1;
  CU(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  CU(cuGraphInstantiate(&instance, graph, 0));
  CUstream second = nullptr;
  CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  memset(c.host, 9, kBytes);
  c.gate.close(c.stream);
  CU(cuMemcpyHtoDAsync(c.memory, c.host, kBytes, c.stream));
  CU(cuGraphLaunch(instance, c.stream));
  CU(cuGraphLaunch(instance, second));
  c.gate.open_beside([&] {
    CU(cuStreamSynchronize(second));
    unsigned char found = 0;
    CU(cuMemcpyDtoHAsync(&found, c.other + kBytes - 1, 1, second));
    CU(cuStreamSynchronize(second));
    printf("an instance again: %d\n", found);
  });
  CU(cuStreamSynchronize(c.stream));
  CU(cuStreamDestroy(second));
  CU(cuStreamDestroy(c.stream));
  CU(cuGraphExecDestroy(instance));
  CU(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  Gpu gpu;
  CUcontext context = nullptr;
  CU(cuCtxGetCurrent(&context));
  synchronise_behind_an_end(context, false);
  synchronise_behind_an_end(context, true);
  a_new_stream_behind_an_end(context);
  others_beside_an_end(context, false);
  others_beside_an_end(context, true);
  an_event_behind_an_end(context);
  one_instance_on_two_streams(context);
  return 0;
}

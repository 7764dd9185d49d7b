// Memory that was freed in stream order and is needed again: by a capture on the stream that freed
// it, and by allocations that cannot be served while that stream waits for this very thread.
#include "tests/programs/common.h"

static size_t tenths(size_t count) {
  size_t free = 0, total = 0;
  CU(cuMemGetInfo(&free, &total));
  return total / 10 * count;
}

// Some steps, then the same step captured.
static void step_then_captured(unsigned flags, bool uploads) {
  CUstream stream;
  CU(cuStreamCreate(&stream, flags));
  const size_t bytes = tenths(6);
  CUdeviceptr p;
  for (int turn = 0; turn < 3; ++turn) {
    CU(cuMemAllocAsync(&p, bytes, stream));
    if (uploads) {
      const int value = turn;
      CU(cuMemcpyHtoD(p, &value, sizeof value));
    }
    CU(cuMemsetD8Async(p, 1, 4096, stream));
    CU(cuMemFreeAsync(p, stream));
    CU(cuStreamSynchronize(stream));
  }
  CUgraph graph;
  CUgraphExec exec;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  SHOW(cuMemAllocAsync(&p, bytes, stream));
  SHOW(cuMemsetD8Async(p, 1, 4096, stream));
  SHOW(cuMemFreeAsync(p, stream));
  SHOW(cuStreamEndCapture(stream, &graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuDeviceGraphMemTrim(0));
  CU(cuStreamDestroy(stream));
}

static void until_set(void* gate) {
  while (*static_cast<std::atomic<unsigned>*>(gate) == 0) usleep(100);
}

enum class Waits { kForValue, kForHostFunction };

// The stream's own work has ended, or (`synchronised` false) only what stands before the wait has.
static void too_much_beside_a_wait(Waits waits, unsigned flags, bool synchronised) {
  CUstream stream;
  CU(cuStreamCreate(&stream, flags));
  void* gate = nullptr;
  CU(cuMemHostAlloc(&gate, 4096, 0));
  auto* open = new (gate) std::atomic<unsigned>(0);
  CUdeviceptr p, q;
  CU(cuMemAllocAsync(&p, 8u << 20, stream));
  CU(cuMemsetD8Async(p, 1, 4096, stream));
  CU(cuMemFreeAsync(p, stream));
  if (synchronised) CU(cuStreamSynchronize(stream));
  if (waits == Waits::kForHostFunction) CU(cuLaunchHostFunc(stream, until_set, gate));
  else
    CU(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(gate), 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
  SHOW(cuMemAlloc(&q, tenths(12)));
  open->store(1);
  SHOW(cuStreamSynchronize(stream));
  CU(cuStreamDestroy(stream));
  CU(cuMemFreeHost(gate));
}

int main() {
  Gpu gpu;
  // On a large GPU that others use too, most of it would be too much to ask for.
  if (tenths(10) <= (size_t{16} << 30)) {
    for (const bool uploads : {false, true}) {
      step_then_captured(CU_STREAM_NON_BLOCKING, uploads);
      step_then_captured(CU_STREAM_DEFAULT, uploads);
    }
  }
  for (const Waits waits : {Waits::kForValue, Waits::kForHostFunction}) {
    too_much_beside_a_wait(waits, CU_STREAM_NON_BLOCKING, true);
    too_much_beside_a_wait(waits, CU_STREAM_DEFAULT, true);
  }
  too_much_beside_a_wait(Waits::kForValue, CU_STREAM_NON_BLOCKING, false);
  return 0;
}

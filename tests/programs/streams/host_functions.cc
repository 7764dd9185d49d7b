// Host functions and stream callbacks: they run once, in order, after the work before and before
// the work after them. Not inside a captured graph: Tube refuses that for now.
#include "tests/programs/common.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>

static std::atomic<int> order{0};
struct Note {
  int at = -1;
  CUresult status = CUDA_ERROR_UNKNOWN;
  const uint32_t* look = nullptr;
  uint32_t seen = 0;
};
static void CUDA_CB host_function(void* data) {
  auto* note = static_cast<Note*>(data);
  if (note->look != nullptr) note->seen = *note->look;
  note->at = order.fetch_add(1);
}
static void CUDA_CB callback(CUstream, CUresult status, void* data) {
  auto* note = static_cast<Note*>(data);
  note->status = status;
  note->at = order.fetch_add(1);
}

// A host function that waits for another thread, which waits for a graph's copy to the host.
struct Hold {
  std::atomic<bool> inside{false}, let_go{false};
};
static void CUDA_CB wait_until_let_go(void* data) {
  auto* hold = static_cast<Hold*>(data);
  hold->inside = true;
  while (!hold->let_go) sched_yield();
}
static void graph_copy_beside_a_function() {
  constexpr size_t kBytes = 1 << 16;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(kBytes / 4, 5));
  std::vector<uint32_t> host(kBytes / 4, 0);
  CUstream held = nullptr, other = nullptr;
  CU(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CU(cuMemcpyDtoHAsync(host.data(), data.pointer, kBytes, other));
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(other, &graph));
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  Hold hold;
  CU(cuLaunchHostFunc(held, wait_until_let_go, &hold));
  while (!hold.inside) sched_yield();
  CU(cuGraphLaunch(exec, other));
  SHOW(cuStreamSynchronize(other));
  print_hash("from the graph", host);
  hold.let_go = true;
  SHOW(cuStreamSynchronize(held));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(held));
  CU(cuStreamDestroy(other));
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction slow = module.function("slow_step");
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DeviceArray<uint32_t> data(std::vector<uint32_t>(256, 1));
  uint32_t* pinned = nullptr;
  CU(cuMemAllocHost(reinterpret_cast<void**>(&pinned), 4));
  *pinned = 0;

  Note notes[10];
  for (int i = 0; i < 10; ++i) {
    notes[i].look = pinned;
    LAUNCH(slow, {1}, {256}, 0, stream, data.pointer, 3u, 1u, 256, 100);
    CU(cuMemcpyDtoHAsync(pinned, data.pointer, 4, stream));
    if (i % 3 == 2) CU(cuStreamAddCallback(stream, callback, &notes[i], 0));
    else CU(cuLaunchHostFunc(stream, host_function, &notes[i]));
  }
  CU(cuStreamSynchronize(stream));
  for (int i = 0; i < 10; ++i)
    printf("note %d: at %d, saw %u, status %s\n", i, notes[i].at, notes[i].seen,
           i % 3 == 2 ? code_name(notes[i].status) : "-");
  print_hash("data", data.read());

  CU(cuMemFreeHost(pinned));
  CU(cuStreamDestroy(stream));
  graph_copy_beside_a_function();
  return 0;
}

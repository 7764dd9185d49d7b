// Graphs with host functions, launched by one thread, while another makes calls that wait in the
// driver for all work, and a third launches graphs with host functions and memory: whoever waits
// for whom, the functions run.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kRounds = 60;

void count_up(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

// `functions` host functions one after the other; with memory, an allocation before and its free
// behind them.
CUgraphExec make(CUgraph* graph, int functions, bool memory, std::atomic<int>* counter) {
  CU(cuGraphCreate(graph, 0));
  CUgraphNode last = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  if (memory) {
    allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    allocation.bytesize = 4096;
    CU(cuGraphAddMemAllocNode(&last, *graph, nullptr, 0, &allocation));
  }
  CUDA_HOST_NODE_PARAMS host{};
  host.fn = count_up;
  host.userData = counter;
  for (int i = 0; i < functions; ++i) {
    CUgraphNode node;
    CU(cuGraphAddHostNode(&node, *graph, &last, last != nullptr ? 1 : 0, &host));
    last = node;
  }
  if (memory) {
    CUgraphNode node;
    CU(cuGraphAddMemFreeNode(&node, *graph, &last, 1, allocation.dptr));
  }
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, *graph, 0));
  return exec;
}

void launches(int functions, bool memory, std::atomic<int>* counter) {
  CUgraph graph;
  CUstream stream;
  CUgraphExec exec = make(&graph, functions, memory, counter);
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int round = 0; round < kRounds; ++round) {
    CU(cuGraphLaunch(exec, stream));
    CU(cuLaunchHostFunc(stream, count_up, counter));
    CU(cuStreamSynchronize(stream));
  }
  CU(cuStreamDestroy(stream));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  Gpu gpu;
  std::atomic<int> counter{0};
  std::atomic<int> at_work{2};
  std::thread first([&] {
    CU(cuCtxSetCurrent(gpu.context));
    launches(6, false, &counter);
    --at_work;
  });
  std::thread second([&] {
    CU(cuCtxSetCurrent(gpu.context));
    launches(1, true, &counter);
    --at_work;
  });
  CUDA_ARRAY_DESCRIPTOR shape{64, 64, CU_AD_FORMAT_FLOAT, 1};
  while (at_work != 0) {
    CUarray array;
    CU(cuArrayCreate(&array, &shape));
    CU(cuArrayDestroy(array));
  }
  first.join();
  second.join();
  printf("host functions: %d\n", counter.load());
  return 0;
}

// Threads that make and destroy objects of every kind side by side: what one destroys, another
// makes anew, and both are there only once. Each thread checks every code and uses what it made, so
// an object that ends with another's handle shows.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 200;
constexpr uint32_t kCount = 32;

void events_and_streams(uint32_t* used) {
  for (int i = 0; i < 8; ++i) {
    CUstream stream;
    CUevent event;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuEventRecord(event, stream));
    CU(cuEventSynchronize(event));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(stream));
    ++*used;
  }
}

void module_and_graph(CUdeviceptr data, uint32_t* used) {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  {
    Module module("kernels.fatbin");
    CUfunction step = module.function("step");
    CUgraph graph;
    CUgraphExec exec;
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    LAUNCH(step, {1}, {kCount}, 0, stream, data, 3u, 1u, kCount);
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphDestroy(graph));
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuGraphExecDestroy(exec));
  }
  CU(cuStreamDestroy(stream));
  ++*used;
}

}  // namespace

int main() {
  Gpu gpu;
  std::vector<std::thread> threads;
  uint64_t results[kThreads] = {};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      DeviceArray<uint32_t> data(std::vector<uint32_t>(kCount, static_cast<uint32_t>(t)));
      uint32_t used = 0;
      for (int round = 0; round < kRounds; ++round) {
        events_and_streams(&used);
        module_and_graph(data.pointer, &used);
      }
      results[t] = hash_of(data.read()) + used;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t)
    printf("thread %d: %016llx\n", t, static_cast<unsigned long long>(results[t]));
  return 0;
}

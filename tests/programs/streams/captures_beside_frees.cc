// One thread captures on its streams while another allocates and frees, which waits for all
// streams: neither is in the other's way. What a stream had to do before it joined a capture is
// waited for all the same.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr uint32_t kCount = 32;
constexpr int kRounds = 300;

size_t nodes_of(CUgraph graph) {
  size_t count = 0;
  CU(cuGraphGetNodes(graph, nullptr, &count));
  return count;
}

// Two launches, on a stream that begins the capture and one that joins it.
CUgraph capture(CUfunction step, CUdeviceptr data, CUstream stream, CUstream joined,
                CUevent event) {
  CUgraph graph;
  LAUNCH(step, {1}, {kCount}, 0, stream, data, 3u, 1u, kCount);
  LAUNCH(step, {1}, {kCount}, 0, joined, data + kCount * 4, 3u, 1u, kCount);
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  LAUNCH(step, {1}, {kCount}, 0, stream, data, 3u, 1u, kCount);
  CU(cuEventRecord(event, stream));
  CU(cuStreamWaitEvent(joined, event, 0));
  LAUNCH(step, {1}, {kCount}, 0, joined, data + kCount * 4, 3u, 1u, kCount);
  CU(cuEventRecord(event, joined));
  CU(cuStreamWaitEvent(stream, event, 0));
  CU(cuStreamEndCapture(stream, &graph));
  return graph;
}

void captures(CUfunction step, CUdeviceptr data, size_t* nodes) {
  CUstream stream, joined;
  CUevent event;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&joined, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (int round = 0; round < kRounds; ++round) {
    const CUgraph graph = capture(step, data, stream, joined, event);
    *nodes += nodes_of(graph);
    CUgraphExec exec;
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuStreamSynchronize(joined));  // its own launch before it joined
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
  }
  CU(cuStreamSynchronize(joined));
  CU(cuEventDestroy(event));
  CU(cuStreamDestroy(joined));
  CU(cuStreamDestroy(stream));
}

}  // namespace

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(2 * kCount, 1));
  std::atomic<bool> over{false};
  std::thread other([&] {
    CU(cuCtxSetCurrent(gpu.context));
    while (!over) {
      DeviceArray<uint32_t> memory(kCount);
    }
  });
  size_t nodes = 0;
  captures(step, data.pointer, &nodes);
  over = true;
  other.join();
  printf("nodes: %zu\n", nodes);
  print_hash("steps", data.read());
  return 0;
}

// Small synchronous uploads and what comes right after them without a wait: kernels on streams that
// nothing orders behind the legacy stream, another thread, a graph, a download, more uploads to the
// same bytes. Natively the data is there each time.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kCount = 64;
constexpr int kRounds = 40;

struct Work {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data{kCount};
  DeviceArray<uint32_t> kept{kCount * kRounds};
  std::vector<uint32_t> source = std::vector<uint32_t>(kCount);

  void upload(uint32_t seed) {
    for (uint32_t i = 0; i < kCount; ++i) source[i] = seed * 1000 + i;
    CU(cuMemcpyHtoD(data.pointer, source.data(), kCount * 4));
    for (uint32_t& value : source) value = 0xdeadbeef;  // the call has the bytes
  }
  // What a stream finds in `data` right now, kept for the end.
  void keep(uint32_t round, CUstream stream) {
    LAUNCH(step, {1}, {64}, 0, stream, data.pointer, 3u, round, kCount);
    CU(cuMemcpyDtoDAsync(kept.pointer + round * kCount * 4, data.pointer, kCount * 4, stream));
  }
  void show(const char* what) {
    CU(cuCtxSynchronize());
    printf("%s: %016llx\n", what, static_cast<unsigned long long>(hash_of(kept.read())));
  }
};

CUgraphExec captured_step(Work& w, CUstream stream) {
  CUgraph graph;
  CUgraphExec exec;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  w.keep(0, stream);
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

}  // namespace

int main() {
  Gpu gpu;
  Work w;
  CUstream streams[3];
  for (int i = 0; i < 3; ++i)
    CU(cuStreamCreate(&streams[i], i == 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  for (uint32_t round = 0; round < kRounds; ++round) {
    w.upload(round);
    w.keep(round, streams[round % 3]);
    CU(cuStreamSynchronize(streams[round % 3]));
  }
  w.show("streams in turn");
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < 5; ++i) w.upload(100 * i + round);
    std::thread([&w, round, stream = streams[0], context = gpu.context] {
      CU(cuCtxSetCurrent(context));
      w.keep(round, stream);
      CU(cuStreamSynchronize(stream));
    }).join();
  }
  w.show("another thread");
  const CUgraphExec exec = captured_step(w, streams[1]);
  for (uint32_t round = 0; round < kRounds; ++round) {
    w.upload(7 * round);
    CU(cuGraphLaunch(exec, streams[1]));
    CU(cuStreamSynchronize(streams[1]));
    CU(cuMemcpyDtoD(w.kept.pointer + round * kCount * 4, w.data.pointer, kCount * 4));
    CU(cuCtxSynchronize());
  }
  w.show("a graph");
  uint64_t sum = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    w.upload(round);
    uint32_t back = 0;
    CU(cuMemcpyDtoH(&back, w.data.pointer + 4 * (round % kCount), 4));
    sum = sum * 31 + back;
  }
  printf("downloads: %016llx\n", static_cast<unsigned long long>(sum));
  // While such a stream is being captured an upload must not become a part of the capture.
  CUgraph graph;
  size_t nodes = 0;
  CU(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  w.upload(5);
  w.keep(0, streams[0]);
  CU(cuStreamEndCapture(streams[0], &graph));
  CU(cuGraphGetNodes(graph, nullptr, &nodes));
  printf("nodes %zu\n", nodes);
  CU(cuGraphDestroy(graph));
  CU(cuGraphExecDestroy(exec));
  for (CUstream stream : streams) CU(cuStreamDestroy(stream));
  return 0;
}

// Small synchronous uploads and what comes right after them without a wait: kernels on streams that
// nothing orders behind the legacy stream, another thread, a graph, a download, more uploads to the
// same bytes. Natively the data is there each time. And what comes in front of one from another
// thread, while its bytes are read.
#include <sys/mman.h>

#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kCount = 64;
constexpr int kRounds = 40;
constexpr size_t kSlowBytes = 48 << 10;

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

// A blocking stream comes to a gate while another thread's upload is under way, which then waits
// for it. Streams that nothing orders behind the legacy stream go on.
void beside_a_gate(CUcontext context) {
  CUstream blocking = nullptr, free_running = nullptr;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
  uint32_t* gate = nullptr;
  CUdeviceptr gate_address = 0, to = 0, other = 0;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(&gate_address, gate, 0));
  CU(cuMemAlloc(&to, kSlowBytes));
  CU(cuMemAlloc(&other, 1));
  *gate = 0;
  CU(cuCtxSynchronize());
  std::atomic<uint32_t> may_begin{0}, begun{0}, done{0};
  std::thread uploader([&] {
    CU(cuCtxSetCurrent(context));
    void* bytes = mmap(nullptr, kSlowBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      while (may_begin < round) std::this_thread::yield();
      madvise(bytes, kSlowBytes, MADV_DONTNEED);  // reading them takes longer then
      begun = round;
      CU(cuMemcpyHtoD(to, bytes, kSlowBytes));
      done = round;
    }
    munmap(bytes, kSlowBytes);
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    CU(cuCtxSynchronize());
    may_begin = round;
    // Sooner and later, for the upload to be in the middle of it some time.
    while (begun < round) {
    }
    for (uint32_t i = 0; i < round * 200; ++i) (void)begun.load();
    CU(cuStreamWaitValue32(blocking, gate_address, round, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuMemsetD8Async(other, 3, 1, free_running));
    CU(cuStreamSynchronize(free_running));
    __atomic_store_n(gate, round, __ATOMIC_RELEASE);
    while (done < round) std::this_thread::yield();
  }
  uploader.join();
  unsigned char found = 9;
  CU(cuMemcpyDtoH(&found, to + kSlowBytes - 1, 1));
  printf("beside a gate: %d\n", found);
  CU(cuMemFree(to));
  CU(cuMemFree(other));
  CU(cuMemFreeHost(gate));
  CU(cuStreamDestroy(blocking));
  CU(cuStreamDestroy(free_running));
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
  beside_a_gate(gpu.context);
  return 0;
}

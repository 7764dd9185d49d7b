// Instances of graphs with host functions and copies of pageable memory: made and changed in
// threads without a context and beside contexts that end.
#include <functional>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 1 << 16;

void count(void* runs) { ++*static_cast<std::atomic<int>*>(runs); }

// A graph of one host function, which counts, or of one copy from pageable memory.
struct Graph {
  explicit Graph(std::atomic<int>* runs) {
    CU(cuGraphCreate(&handle, 0));
    const CUDA_HOST_NODE_PARAMS params{count, runs};
    CU(cuGraphAddHostNode(&node, handle, nullptr, 0, &params));
  }
  Graph(CUdeviceptr to, const void* from, size_t bytes, CUcontext context) {
    CU(cuGraphCreate(&handle, 0));
    const CUDA_MEMCPY3D copy = upload(to, from, bytes);
    CU(cuGraphAddMemcpyNode(&node, handle, nullptr, 0, &copy, context));
  }
  ~Graph() { CU(cuGraphDestroy(handle)); }
  static CUDA_MEMCPY3D upload(CUdeviceptr to, const void* from, size_t bytes) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }
  CUgraphExec instance() const {
    CUgraphExec exec = nullptr;
    CU(cuGraphInstantiate(&exec, handle, 0));
    return exec;
  }
  CUgraph handle = nullptr;
  CUgraphNode node = nullptr;
};

struct Fixture {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  explicit Fixture(CUcontext context) : context(context) {
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&memory, 2 * kBytes));
  }
  ~Fixture() {
    CU(cuStreamDestroy(stream));
    CU(cuMemFree(memory));
  }
  unsigned char at(size_t offset) const {
    unsigned char found = 0;
    CU(cuMemcpyDtoH(&found, memory + offset, 1));
    return found;
  }
};

void without_a_context(Fixture& f) {
  std::atomic<int> runs{0};
  const Graph graph(&runs), again(&runs);
  CUgraphExec exec = graph.instance(), none = nullptr;
  std::thread([&] {
    CUgraphExecUpdateResultInfo info{};
    SHOW(cuGraphInstantiate(&none, graph.handle, 0));
    SHOW(cuGraphExecUpdate(exec, again.handle, &info));
    SHOW(cuGraphLaunch(exec, f.stream));
    SHOW(cuStreamSynchronize(f.stream));
  }).join();
  printf("without a context: %d\n", runs.load());
  CU(cuGraphExecDestroy(exec));
}

// What the instance needs of the host stays when the context ends that was current when it was
// made, and is nobody else's.
void beside_a_context_that_ends(Fixture& f, CUdevice device) {
  std::vector<unsigned char> host(kBytes, 5);
  const Graph graph(f.memory, host.data(), kBytes, f.context);
  CUcontext other = nullptr;
  CU(cuCtxCreate(&other, nullptr, 0, device));
  CUgraphExec exec = graph.instance();
  CU(cuCtxDestroy(other));
  CU(cuCtxSetCurrent(f.context));
  void* pinned[4] = {};
  for (void*& memory : pinned) {
    CU(cuMemHostAlloc(&memory, kBytes, 0));
    memset(memory, 99, kBytes);
  }
  CU(cuGraphLaunch(exec, f.stream));
  SHOW(cuStreamSynchronize(f.stream));
  size_t changed = 0;
  for (void* memory : pinned) {
    for (size_t i = 0; i < kBytes; ++i) changed += static_cast<unsigned char*>(memory)[i] != 99;
    CU(cuMemFreeHost(memory));
  }
  printf("beside a context that ends: %d, others' bytes changed: %zu\n", f.at(kBytes - 1), changed);
  CU(cuGraphExecDestroy(exec));
}

}  // namespace

int main() {
  Gpu gpu;
  Fixture fixture(gpu.context);
  without_a_context(fixture);
  beside_a_context_that_ends(fixture, gpu.device);
  return 0;
}

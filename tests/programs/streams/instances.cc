// Instances of graphs with host functions and copies of pageable memory: made and changed in
// threads without a context, beside contexts that end, and while launches stand at a gate.
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
  // Memory that is freed again, behind what it has.
  void allocate() {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = 4096;
    CUgraphNode made = nullptr, freed = nullptr;
    CU(cuGraphAddMemAllocNode(&made, handle, &node, 1, &params));
    CU(cuGraphAddMemFreeNode(&freed, handle, &made, 1, params.dptr));
  }
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

// A value in pinned memory that streams wait for.
class Gate {
 public:
  Gate() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU(cuMemHostGetDevicePointer(&address_, word_, 0));
    *word_ = 0;
  }
  ~Gate() { CU(cuMemFreeHost(word_)); }
  void close(CUstream stream) const {
    CU(cuStreamWaitValue32(stream, address_, 1, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { __atomic_store_n(word_, 1, __ATOMIC_RELEASE); }

 private:
  uint32_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
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

// A copy of an instance becomes larger while an earlier launch stands at a gate, which the same
// thread opens then: each launch has its own bytes.
void larger_beside_a_launch_that_stands(Fixture& f) {
  std::vector<unsigned char> before(kBytes, 5), after(2 * kBytes, 6);
  const Graph graph(f.memory, before.data(), kBytes, f.context);
  CUgraphExec exec = graph.instance();
  unsigned char* between = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&between), kBytes, 0));
  for (int round = 0; round < 3; ++round) {
    Gate gate;
    gate.close(f.stream);
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuMemcpyDtoHAsync(between, f.memory, kBytes, f.stream));
    const CUDA_MEMCPY3D copy =
        Graph::upload(f.memory, after.data() + round, kBytes + 1000 * (round + 1));
    CU(cuGraphExecMemcpyNodeSetParams(exec, graph.node, &copy, f.context));
    gate.open();
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuStreamSynchronize(f.stream));
    printf("larger beside a launch that stands: %d %d %d\n", between[kBytes - 1], f.at(0),
           f.at(kBytes + 999));
  }
  CU(cuMemFreeHost(between));
  CU(cuGraphExecDestroy(exec));
}

// An update leaves the instance known by the nodes of the graph that it was made from.
void changed_after_an_update(Fixture& f) {
  std::atomic<int> first_runs{0}, second_runs{0}, third_runs{0};
  const Graph first(&first_runs), second(&second_runs);
  CUgraphExec exec = first.instance();
  CUgraphExecUpdateResultInfo info{};
  CU(cuGraphExecUpdate(exec, second.handle, &info));
  const CUDA_HOST_NODE_PARAMS params{count, &third_runs};
  SHOW(cuGraphExecHostNodeSetParams(exec, second.node, &params));
  CU(cuGraphLaunch(exec, f.stream));
  CU(cuStreamSynchronize(f.stream));
  SHOW(cuGraphExecHostNodeSetParams(exec, first.node, &params));
  CU(cuGraphLaunch(exec, f.stream));
  CU(cuStreamSynchronize(f.stream));
  printf("changed after an update: %d %d %d\n", first_runs.load(), second_runs.load(),
         third_runs.load());
  CU(cuGraphExecDestroy(exec));
}

// One thread's launch, of a graph that allocates, comes behind a copy that stands at a gate;
// another thread's launch of another instance does not, and then the gate opens.
void beside_a_launch_that_stands(Fixture& f) {
  std::atomic<int> runs{0};
  Graph standing(&runs), other(&runs);
  standing.allocate();
  CUgraphExec first = standing.instance(), second = other.instance();
  CUstream free_running = nullptr;
  CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
  unsigned char* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  Gate gate;
  gate.close(f.stream);
  CU(cuMemcpyHtoDAsync(f.memory, pinned, kBytes, f.stream));
  std::atomic<bool> begun{false};
  std::thread launcher([&] {
    CU(cuCtxSetCurrent(f.context));
    begun = true;
    CU(cuGraphLaunch(first, f.stream));
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    CU(cuGraphLaunch(second, free_running));
    CU(cuStreamSynchronize(free_running));
  }
  printf("beside a launch that stands: %d\n", runs.load());
  gate.open();
  launcher.join();
  CU(cuStreamSynchronize(f.stream));
  printf("with it: %d\n", runs.load());
  for (CUgraphExec exec : {first, second}) CU(cuGraphExecDestroy(exec));
  CU(cuMemFreeHost(pinned));
  CU(cuStreamDestroy(free_running));
}

}  // namespace

int main() {
  Gpu gpu;
  Fixture fixture(gpu.context);
  without_a_context(fixture);
  beside_a_context_that_ends(fixture, gpu.device);
  larger_beside_a_launch_that_stands(fixture);
  changed_after_an_update(fixture);
  beside_a_launch_that_stands(fixture);
  return 0;
}

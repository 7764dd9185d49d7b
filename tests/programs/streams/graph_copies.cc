// Graphs that begin and end with copies between pinned memory and the GPU: chains and branches,
// nodes that are changed, disabled and updated, one instance on two streams, and all of it beside a
// thread that copies without pause.
#include <atomic>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kCount = 300'000;  // 1.2 MB
constexpr size_t kBytes = kCount * sizeof(uint32_t);
constexpr unsigned kBlocks = (kCount + 255) / 256;

struct Pinned {
  uint32_t* words = nullptr;
  Pinned() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), kBytes, 0));
    fill(0);
  }
  ~Pinned() { CU(cuMemFreeHost(words)); }
  void fill(uint32_t seed) {
    for (uint32_t i = 0; i < kCount; ++i) words[i] = seed * 2654435761u + i;
  }
  void show(const char* name) const {
    printf("%s: hash %016llx\n", name, static_cast<unsigned long long>(hash_bytes(words, kBytes)));
  }
};

struct Stream {
  CUstream handle = nullptr;
  Stream() { CU(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { CU(cuStreamDestroy(handle)); }
  operator CUstream() const { return handle; }
};

struct Fixture {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
  Pinned in, other_in, out, middle;
  DeviceArray<uint32_t> a{kCount}, b{kCount};
  Stream stream, second;

  void run_step(CUstream on, const DeviceArray<uint32_t>& data, uint32_t factor) const {
    LAUNCH(step, {kBlocks}, {256}, 0, on, data.pointer, factor, 1u, kCount);
  }
  template <class Body>
  CUgraph capture(const Body& body) const {
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    body();
    CUgraph graph = nullptr;
    CU(cuStreamEndCapture(stream, &graph));
    return graph;
  }
  void up(const DeviceArray<uint32_t>& to, const Pinned& from) const {
    CU(cuMemcpyHtoDAsync(to.pointer, from.words, kBytes, stream));
  }
  void down(const Pinned& to, const DeviceArray<uint32_t>& from) const {
    CU(cuMemcpyDtoHAsync(to.words, from.pointer, kBytes, stream));
  }
};

CUgraphExec instance(CUgraph graph) {
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  return exec;
}

// In, a kernel, a copy in the middle, a kernel, out; the graph itself is gone.
void captured(Fixture& f) {
  CUgraph graph = f.capture([&] {
    f.up(f.a, f.in);
    f.up(f.b, f.other_in);
    f.run_step(f.stream, f.a, 3);
    f.down(f.middle, f.a);
    f.up(f.b, f.middle);
    f.run_step(f.stream, f.b, 5);
    f.down(f.out, f.b);
  });
  CUgraphExec exec = instance(graph);
  CU(cuGraphDestroy(graph));
  for (uint32_t i = 0; i < 4; ++i) {
    f.in.fill(i);
    f.other_in.fill(i + 100);
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuStreamSynchronize(f.stream));
    f.middle.show("middle");
    f.out.show("out");
  }
  CU(cuGraphExecDestroy(exec));
}

// Copies alone, each of which needs the one before.
void chain(Fixture& f) {
  f.in.fill(7);
  CUgraph graph = f.capture([&] {
    f.up(f.a, f.in);
    f.down(f.middle, f.a);
    f.up(f.b, f.middle);
    f.down(f.out, f.b);
  });
  CUgraphExec exec = instance(graph);
  for (uint32_t i = 0; i < 10; ++i) {
    CU(cuGraphLaunch(exec, f.stream));
    f.run_step(f.stream, f.a, 3);  // the next launch copies over it
  }
  CU(cuStreamSynchronize(f.stream));
  f.out.show("chain");
  print_hash("a", f.a.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

CUDA_MEMCPY3D row(CUdeviceptr device, uint32_t* host, bool up) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = up ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.srcHost = up ? host : nullptr;
  copy.dstHost = up ? nullptr : host;
  copy.srcDevice = up ? 0 : device;
  copy.dstDevice = up ? device : 0;
  copy.WidthInBytes = kBytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

// Two branches that meet; nodes changed, disabled and enabled in the instance.
void by_hand(Fixture& f, CUcontext context) {
  f.in.fill(11);
  f.other_in.fill(12);
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode up_a, up_b, kernel, down;
  CUDA_MEMCPY3D copy = row(f.a.pointer, f.in.words, true);
  CU(cuGraphAddMemcpyNode(&up_a, graph, nullptr, 0, &copy, context));
  copy = row(f.b.pointer, f.other_in.words, true);
  CU(cuGraphAddMemcpyNode(&up_b, graph, nullptr, 0, &copy, context));
  uint32_t factor = 3, addend = 1;
  int count = kCount;
  CUdeviceptr a = f.a.pointer, b = f.b.pointer;
  void* arguments[] = {&a, &factor, &addend, &count};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = f.step;
  params.gridDimX = kBlocks;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = 256;
  params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  const CUgraphNode both[] = {up_a, up_b};
  CU(cuGraphAddKernelNode(&kernel, graph, both, 2, &params));
  copy = row(a, f.out.words, false);
  CU(cuGraphAddMemcpyNode(&down, graph, &kernel, 1, &copy, context));
  CUgraphExec exec = instance(graph);
  const auto run = [&](const char* name) {
    CU(cuMemsetD32Async(f.b.pointer, 5, kCount, f.stream));
    memset(f.out.words, 0, kBytes);
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuStreamSynchronize(f.stream));
    f.out.show(name);
    print_hash("b", f.b.read());
  };
  const auto show_enabled = [&] {
    for (CUgraphNode node : {up_a, up_b, kernel, down}) {
      unsigned enabled = 7;
      CU(cuGraphNodeGetEnabled(exec, node, &enabled));
      printf("%u ", enabled);
    }
    printf("enabled\n");
  };
  run("by hand");
  show_enabled();
  CU(cuGraphNodeSetEnabled(exec, up_b, 0));
  show_enabled();
  run("without b");
  copy = row(f.b.pointer, f.in.words, true);
  CU(cuGraphExecMemcpyNodeSetParams(exec, up_b, &copy, context));
  show_enabled();
  run("changed, still without b");
  CU(cuGraphNodeSetEnabled(exec, up_b, 1));
  copy = row(a, f.middle.words, false);
  CU(cuGraphExecMemcpyNodeSetParams(exec, down, &copy, context));
  run("with b, out elsewhere");
  f.middle.show("middle");
  copy.WidthInBytes = 4096;
  printf("smaller: %s\n", code_name(cuGraphExecMemcpyNodeSetParams(exec, down, &copy, context)));
  memset(f.middle.words, 0, kBytes);
  run("a smaller copy out");
  f.middle.show("middle");
  (void)b;
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

void updated(Fixture& f) {
  f.in.fill(21);
  f.other_in.fill(22);
  const auto make = [&](const Pinned& from, const Pinned& to) {
    return f.capture([&] {
      f.up(f.a, from);
      f.run_step(f.stream, f.a, 9);
      f.down(to, f.a);
    });
  };
  // With the graph that it was made from, and without.
  for (const bool there : {true, false}) {
    CUgraph first = make(f.in, f.out), second = make(f.other_in, f.middle);
    CUgraphExec exec = instance(first);
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuStreamSynchronize(f.stream));
    f.out.show("before the update");
    if (!there) CU(cuGraphDestroy(first));
    CUgraphExecUpdateResultInfo info{};
    CU(cuGraphExecUpdate(exec, second, &info));
    memset(f.out.words, 0, kBytes);
    memset(f.middle.words, 0, kBytes);
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuStreamSynchronize(f.stream));
    f.out.show("out");
    f.middle.show("after the update");
    if (there) CU(cuGraphDestroy(first));
    CU(cuGraphDestroy(second));
    CUgraph third = make(f.in, f.middle), other = f.capture([&] { f.up(f.a, f.in); });
    CU(cuGraphExecUpdate(exec, third, &info));
    printf("another graph: %s\n", code_name(cuGraphExecUpdate(exec, other, &info)));
    CU(cuGraphDestroy(third));
    CU(cuGraphDestroy(other));
    CU(cuGraphLaunch(exec, f.stream));
    CU(cuStreamSynchronize(f.stream));
    f.middle.show("updated again, without its graphs");
    CU(cuGraphExecDestroy(exec));
  }
}

// An instance does not run beside itself, whatever stream it is launched on.
void on_two_streams(Fixture& f) {
  f.in.fill(31);
  CU(cuMemsetD32(f.b.pointer, 1, kCount));
  CU(cuStreamSynchronize(nullptr));
  CUgraph graph = f.capture([&] {
    f.up(f.a, f.in);
    f.run_step(f.stream, f.b, 3);
    f.down(f.out, f.b);
  });
  CUgraphExec exec = instance(graph);
  for (int i = 0; i < 40; ++i) CU(cuGraphLaunch(exec, i % 3 == 0 ? f.second : f.stream));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuStreamSynchronize(f.stream));
  CU(cuStreamSynchronize(f.second));
  f.out.show("40 launches");
  print_hash("b", f.b.read());
}

// The second launch comes behind the first one, whose stream has ended and waits for a value: the
// copy in front of it must not change what the first one's kernel reads.
void behind_an_ended_stream(Fixture& f) {
  uint32_t* gate = nullptr;
  CUdeviceptr address = 0;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(&address, gate, 0));
  *gate = 0;
  f.in.fill(41);
  CUgraph graph = f.capture([&] {
    f.up(f.a, f.in);
    f.run_step(f.stream, f.a, 3);
  });
  CUgraphExec exec = instance(graph);
  CUstream first = nullptr;
  CU(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  CU(cuStreamWaitValue32(first, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  CU(cuGraphLaunch(exec, first));
  CU(cuStreamDestroy(first));
  Stream second;
  CU(cuGraphLaunch(exec, second));
  // So that a copy that does not wait has been done.
  for (int i = 0; i < 100; ++i) {
    size_t free_bytes = 0, total_bytes = 0;
    CU(cuMemGetInfo(&free_bytes, &total_bytes));
  }
  __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
  CU(cuStreamSynchronize(second));
  print_hash("behind an ended stream", f.a.read());
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
  CU(cuMemFreeHost(gate));
}

void all(Fixture& f, CUcontext context) {
  captured(f);
  chain(f);
  by_hand(f, context);
  updated(f);
  on_two_streams(f);
  behind_an_ended_stream(f);
}

// Both directions, so that every copy has company.
void beside_copies(Fixture& f, CUcontext context) {
  std::atomic<bool> stop{false};
  std::thread copier([&] {
    CU(cuCtxSetCurrent(context));
    Stream stream;
    Pinned host;
    DeviceArray<uint32_t> device(kCount);
    while (!stop.load()) {
      for (int i = 0; i < 4; ++i) {
        CU(cuMemcpyHtoDAsync(device.pointer, host.words, kBytes, stream));
        CU(cuMemcpyDtoHAsync(host.words, device.pointer, kBytes, stream));
      }
      CU(cuStreamSynchronize(stream));
    }
  });
  all(f, context);
  stop.store(true);
  copier.join();
}

}  // namespace

int main() {
  Gpu gpu;
  Fixture fixture;
  all(fixture, gpu.context);
  beside_copies(fixture, gpu.context);
  return 0;
}

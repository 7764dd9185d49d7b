// Clients for waiting_test.py: each does one thing in counts, says so on a line, and goes on when
// it reads one.
//
//   waiting idle                   a little of everything, then nothing until standard input ends
//   waiting hammer                 bursts of launches until standard input ends (the simulated
//                                  GPU's queues know no end, so each burst does)
//   waiting sync COUNT             COUNT times a launch and a synchronise
//   waiting events COUNT           COUNT times an event recorded on an idle stream and waited for
//   waiting uploads COUNT          COUNT small synchronous uploads
//   waiting mapped_uploads COUNT   the same into memory that is mapped in two pieces, across their
//                                  border
//   waiting updates COUNT          COUNT times an instance's kernels, copies and memset are given
//                                  other addresses and values, and it is launched
//   waiting mapped_updates COUNT   the same in mapped memory
//   waiting refused COUNT          the same, each step synchronised; prints "refused" for a step
//                                  whose synchronisation fails
//   waiting dropped COUNT          COUNT times an update that the driver takes no more: its
//                                  instance was updated from another graph, or its graph is gone
//   waiting loop COUNT LENGTH      COUNT launches of LENGTH different shapes in turn, never
//                                  synchronised but at the end
//   waiting streams COUNT          COUNT times the same steps on a stream of their own; says
//                                  "first" behind the first one and reads a line
//   waiting stand                  a stream waits for a value until standard input ends
#include <poll.h>

#include <functional>
#include <memory>

#include "tests/programs/common.h"

namespace {

struct Work {
  Gpu gpu;
  Module module{"kernels.ptx"};
  CUfunction step = module.function("step");
  DeviceArray<uint32_t> data{64};
  CUdeviceptr upload_to = data.pointer;
  CUstream stream = nullptr;
  CUevent event = nullptr;

  Work() {
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch();
    CU(cuLaunchHostFunc(
        stream, [](void*) {}, nullptr));
    CU(cuStreamSynchronize(stream));
    (void)data.read();
  }
  void launch(uint32_t width = 64) {
    LAUNCH(step, {1}, {width}, 0, stream, data.pointer, 3u, 1u, 64);
  }
};

// Memory of the GPU in pieces of their own, mapped side by side and open to it.
CUdeviceptr map_memory(int pieces, size_t* piece_bytes) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CU(cuMemGetAllocationGranularity(piece_bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr base;
  CU(cuMemAddressReserve(&base, *piece_bytes * pieces, 0, 0, 0));
  for (int i = 0; i < pieces; ++i) {
    CUmemGenericAllocationHandle handle;
    CU(cuMemCreate(&handle, *piece_bytes, &prop, 0));
    CU(cuMemMap(base + i * *piece_bytes, *piece_bytes, 0, handle, 0));
    CU(cuMemRelease(handle));
  }
  const CUmemAccessDesc open{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuMemSetAccess(base, *piece_bytes * pieces, &open, 1));
  return base;
}

// An instance as XLA keeps one: a copy into its own memory, four kernels, a copy back; and a
// memset. All of it is given other addresses before each launch.
struct Instance {
  static constexpr uint32_t kWords = 64;
  Work& work;
  struct Piece {
    CUdeviceptr pointer;
  };
  Piece buffers[2], own;
  CUgraphNode copies[2] = {}, kernels[4] = {}, fill = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  uint32_t expected[2] = {0, 0};

  explicit Instance(Work& w, bool mapped = false) : work(w) {
    size_t piece_bytes = kWords * 4;
    CUdeviceptr base = 0;
    if (mapped) base = map_memory(3, &piece_bytes);
    else CU(cuMemAlloc(&base, 3 * piece_bytes));
    buffers[0] = {base}, buffers[1] = {base + piece_bytes}, own = {base + 2 * piece_bytes};
    for (auto& buffer : buffers) CU(cuMemsetD32(buffer.pointer, 0, kWords));
    CU(cuGraphCreate(&graph, 0));
    const CUDA_MEMCPY3D in = copy(own.pointer, buffers[0].pointer),
                        out = copy(buffers[0].pointer, own.pointer);
    CU(cuGraphAddMemcpyNode(&copies[0], graph, nullptr, 0, &in, work.gpu.context));
    for (int i = 0; i < 4; ++i) {
      const CUgraphNode* before = i == 0 ? copies : &kernels[i - 1];
      set_kernel(1, [&](const CUDA_KERNEL_NODE_PARAMS* p) {
        return cuGraphAddKernelNode(&kernels[i], graph, before, 1, p);
      });
    }
    CU(cuGraphAddMemcpyNode(&copies[1], graph, &kernels[3], 1, &out, work.gpu.context));
    const CUDA_MEMSET_NODE_PARAMS clear = memset_of(0);
    CU(cuGraphAddMemsetNode(&fill, graph, &copies[1], 1, &clear, work.gpu.context));
    CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
  static CUDA_MEMCPY3D copy(CUdeviceptr dst, CUdeviceptr src) {
    CUDA_MEMCPY3D p{};
    p.srcMemoryType = p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    p.srcDevice = src, p.dstDevice = dst;
    p.WidthInBytes = kWords * 4, p.Height = p.Depth = 1;
    return p;
  }
  CUDA_MEMSET_NODE_PARAMS memset_of(uint32_t value) const {
    CUDA_MEMSET_NODE_PARAMS p{};
    p.dst = own.pointer, p.value = value, p.elementSize = 4, p.width = kWords, p.height = 1;
    return p;
  }
  // data = data * 3 + addend
  void set_kernel(uint32_t addend,
                  const std::function<CUresult(const CUDA_KERNEL_NODE_PARAMS*)>& set) {
    CUdeviceptr data = own.pointer;
    uint32_t factor = 3;
    int count = kWords;
    void* args[] = {&data, &factor, &addend, &count};
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = work.step;
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    p.blockDimX = kWords;
    p.kernelParams = args;
    CU(set(&p));
  }
  // The answer to an update of a node that is none of this instance's: the graph that it was made
  // from has ended, or the node is one of the graph that it was updated with (H200).
  CUresult update_after(bool end_graph) {
    if (end_graph) {
      CU(cuGraphDestroy(graph));
    } else {
      CUgraph other = nullptr;
      CUgraphExecUpdateResultInfo info{};
      CU(cuGraphClone(&other, graph));
      CU(cuGraphExecUpdate(exec, other, &info));
      CU(cuGraphNodeFindInClone(&fill, fill, other));
    }
    const CUDA_MEMSET_NODE_PARAMS clear = memset_of(0);
    return cuGraphExecMemsetNodeSetParams(exec, fill, &clear, work.gpu.context);
  }
  void run(uint32_t number) {
    const CUdeviceptr buffer = buffers[number % 2].pointer;
    const CUDA_MEMCPY3D in = copy(own.pointer, buffer), out = copy(buffer, own.pointer);
    CU(cuGraphExecMemcpyNodeSetParams(exec, copies[0], &in, work.gpu.context));
    for (uint32_t i = 0; i < 4; ++i) {
      set_kernel(number + i, [&](const CUDA_KERNEL_NODE_PARAMS* p) {
        return cuGraphExecKernelNodeSetParams(exec, kernels[i], p);
      });
      expected[number % 2] = expected[number % 2] * 3 + number + i;
    }
    CU(cuGraphExecMemcpyNodeSetParams(exec, copies[1], &out, work.gpu.context));
    const CUDA_MEMSET_NODE_PARAMS clear = memset_of(number);
    CU(cuGraphExecMemsetNodeSetParams(exec, fill, &clear, work.gpu.context));
    CU(cuGraphLaunch(exec, work.stream));
  }
  void verify() {
    for (int i = 0; i < 2; ++i) {
      std::vector<uint32_t> got(kWords);
      CU(cuMemcpyDtoH(got.data(), buffers[i].pointer, kWords * 4));
      EXPECT(got == std::vector<uint32_t>(kWords, expected[i]));
    }
  }
};

void say(const char* line) {
  puts(line);
  fflush(stdout);
}

bool input_ended(int timeout_ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char byte;
  return poll(&input, 1, timeout_ms) > 0 && read(STDIN_FILENO, &byte, 1) == 0;
}

void await_line() {
  char line[64];
  EXPECT(fgets(line, sizeof line, stdin) != nullptr);
}

void stand(Work& work) {
  uint32_t* word;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0));
  __atomic_store_n(word, 0, __ATOMIC_RELAXED);
  CU(cuStreamWaitValue32(work.stream, reinterpret_cast<CUdeviceptr>(word), 1,
                         CU_STREAM_WAIT_VALUE_GEQ));
  say("ready");
  while (!input_ended(-1)) {
  }
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  CU(cuStreamSynchronize(work.stream));
  CU(cuMemFreeHost(word));
}

void steps_on_a_stream(Work& work) {
  const CUstream own = work.stream;
  CU(cuStreamCreate(&work.stream, CU_STREAM_NON_BLOCKING));
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 32; ++i) work.launch();
    CU(cuStreamSynchronize(work.stream));
  }
  CU(cuStreamDestroy(work.stream));
  work.stream = own;
}

// One of the COUNT things.
void once(const std::string& what, Work& work, Instance* instance, uint32_t i, uint32_t length) {
  if (what == "sync") {
    work.launch();
    CU(cuStreamSynchronize(work.stream));
  } else if (what == "events") {
    CU(cuEventRecord(work.event, work.stream));
    CU(cuEventSynchronize(work.event));
    SHOW(cuEventQuery(work.event));
  } else if (what == "uploads") {
    const uint32_t values[4] = {1, 2, 3, 4};
    CU(cuMemcpyHtoD(work.upload_to, values, sizeof values));
  } else if (what == "updates") {
    instance->run(i);
  } else if (what == "refused") {
    instance->run(i);
    const CUresult result = cuStreamSynchronize(work.stream);
    if (result != CUDA_SUCCESS) printf("refused %d\n", static_cast<int>(result));
  } else if (what == "streams") {
    steps_on_a_stream(work);
    if (i == 0) {
      say("first");
      await_line();
    }
  } else if (what == "dropped") {
    Instance fresh(work);
    for (uint32_t k = 0; k < 2; ++k) fresh.run(k);
    printf("answered %d\n", static_cast<int>(fresh.update_after(i % 2 == 1)));
    CU(cuStreamSynchronize(work.stream));
  } else {
    work.launch(1 + i % length);
  }
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc >= 2);
  std::string what = argv[1];
  const bool mapped = what.starts_with("mapped_");
  if (mapped) what = what.substr(strlen("mapped_"));
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  const uint32_t length = argc > 3 ? static_cast<uint32_t>(atoi(argv[3])) : 1;
  Work work;
  std::unique_ptr<Instance> instance;
  if (what == "updates" || what == "refused") {
    instance = std::make_unique<Instance>(work, mapped);
    for (uint32_t i = 0; i < 2; ++i) instance->run(i);
    CU(cuStreamSynchronize(work.stream));
  }
  if (what == "uploads" && mapped) {
    size_t piece_bytes;
    const CUdeviceptr border = map_memory(2, &piece_bytes) + piece_bytes;
    work.upload_to = border - 8;
  }
  if (what == "stand") return stand(work), 0;
  say("ready");
  if (what == "idle") {
    while (!input_ended(-1)) {
    }
    return 0;
  }
  if (what == "hammer") {
    while (!input_ended(0)) {
      for (int i = 0; i < 500; ++i) work.launch();
      CU(cuStreamSynchronize(work.stream));
    }
    return 0;
  }
  await_line();
  for (int i = 0; i < count; ++i) {
    once(what, work, instance.get(), static_cast<uint32_t>(i), length);
  }
  say("done");
  await_line();
  CU(cuStreamSynchronize(work.stream));
  if (what == "updates") instance->verify();
  say("synchronised");
  while (!input_ended(-1)) {
  }
  return 0;
}

// A client for launches_test.py:
//
//   launches light KERNELS [BLOCKS [graph|nodes|queued]]
//                              for each line that it reads: so many kernels of one block, or of
//                              BLOCKS, and "took" with the milliseconds that the GPU's clock says;
//                              as a graph that was captured, or whose nodes were added, or begun
//                              when all are submitted
//   launches heavy BLOCKS [ex|graph|cooperative]
//                              kernels of so many blocks without pause until a line comes, then
//                              "done", if the blocks that ran are as many as were launched
//   launches spin              a kernel that never ends; "spinning"
//   launches fill STREAMS LAUNCHES
//                              as stand, with so many launches behind the last wait; another
//                              stream lets it go
//   launches stand STREAMS [host]
//                              so many streams that wait for a value in pinned memory, or for a
//                              host function: "standing", and for a line lets them go, the last one
//                              first; then "done", if what is behind each wait has run
//   launches loads             for each line so many modules, with a kernel of each; then "loaded"
//   launches meet              kernels that wait for those of another such program: says the handle
//                              of its memory or reads it, and "met" when both have seen each other
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <poll.h>
#include <unistd.h>

#include "tests/programs/common.h"

namespace {

// count: a block adds one. meet: after ROUNDS of nothing the first block says in words[MINE] that
// it is there, and waits for words[OTHER] to be as much, unless MINE is 2.
const char* const kImage = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry count(.param .u64 words) {
  .reg .u64 %a<2>;
  .reg .u32 %r<2>;
  ld.param.u64 %a0, [words];
  cvta.to.global.u64 %a1, %a0;
  atom.global.add.u32 %r0, [%a1], 1;
  ret;
}
.visible .entry meet(.param .u64 words, .param .u32 mine, .param .u32 rounds) {
  .reg .u64 %a<5>;
  .reg .u32 %r<8>;
  .reg .pred %p<4>;
  ld.param.u64 %a0, [words];
  cvta.to.global.u64 %a1, %a0;
  ld.param.u32 %r0, [mine];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %ctaid.x;
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra done;
idle:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra idle;
  setp.eq.u32 %p2, %r0, 2;
  @%p2 bra done;
  mul.wide.u32 %a2, %r0, 4;
  add.u64 %a3, %a1, %a2;
  st.volatile.global.u32 [%a3], 1;
  xor.b32 %r3, %r0, 1;
  mul.wide.u32 %a2, %r3, 4;
  add.u64 %a4, %a1, %a2;
again:
  ld.volatile.global.u32 %r4, [%a4];
  setp.eq.u32 %p3, %r4, 0;
  @%p3 bra again;
done:
  ret;
}
)";

constexpr size_t kInFlight = 64;

void say(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

char line[256];
bool told() { return std::fgets(line, sizeof line, stdin) != nullptr; }
bool waiting() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

struct Kernels {
  CUmodule module = nullptr;
  CUfunction count = nullptr, meet = nullptr;
  CUdeviceptr words = 0;
  CUstream stream = nullptr;
  Kernels() {
    CU(cuModuleLoadData(&module, kImage));
    CU(cuModuleGetFunction(&count, module, "count"));
    CU(cuModuleGetFunction(&meet, module, "meet"));
    CU(cuMemAlloc(&words, 64));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemsetD32Async(words, 0, 16, stream));
    sync();
  }
  void launch(unsigned blocks) {
    void* params[] = {&words};
    CU(cuLaunchKernel(count, blocks, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  }
  void launch_with(unsigned blocks, bool cooperative) {
    void* params[] = {&words};
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    CUlaunchConfig config{};
    config.gridDimX = blocks;
    config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = cooperative ? 1 : 0;
    CU(cuLaunchKernelEx(&config, count, params, nullptr));
  }
  void launch_meet(unsigned mine) {
    constexpr unsigned kBlocks = 300;
    unsigned rounds = 100'000;
    void* params[] = {&words, &mine, &rounds};
    CU(cuLaunchKernel(meet, kBlocks, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  }
  void sync() { CU(cuStreamSynchronize(stream)); }
  uint32_t counted() {
    uint32_t count = 0;
    CU(cuMemcpyDtoH(&count, words, sizeof count));
    return count;
  }
};

CUgraphExec capture(Kernels& kernels, int count, unsigned blocks) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CU(cuStreamBeginCapture(kernels.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < count; ++i) kernels.launch(blocks);
  CU(cuStreamEndCapture(kernels.stream, &graph));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

// A captured graph in whose instance every node is changed, then updated from another capture, with
// a memset and a copy in it, in a child graph.
CUgraph capture_inside(Kernels& kernels, int count, unsigned blocks) {
  CUgraph graph = nullptr, captured = nullptr;
  CUgraphNode node = nullptr;
  CU(cuStreamBeginCapture(kernels.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuMemsetD32Async(kernels.words + 40, 1, 1, kernels.stream));
  CU(cuMemcpyDtoDAsync(kernels.words + 44, kernels.words + 40, 4, kernels.stream));
  for (int i = 0; i < count; ++i) kernels.launch(blocks);
  CU(cuStreamEndCapture(kernels.stream, &captured));
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, captured));
  CU(cuGraphDestroy(captured));
  return graph;
}
void change_nodes(Kernels& kernels, CUgraphExec exec, CUgraph graph, unsigned blocks) {
  CUgraphNode outer = nullptr;
  CUgraph inner = nullptr;
  size_t count = 1;
  CU(cuGraphGetNodes(graph, &outer, &count));
  CU(cuGraphChildGraphNodeGetGraph(outer, &inner));
  CU(cuGraphGetNodes(inner, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  CU(cuGraphGetNodes(inner, nodes.data(), &count));
  CUcontext context = nullptr;
  CU(cuCtxGetCurrent(&context));
  void* pointers[] = {&kernels.words};
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    CUDA_MEMSET_NODE_PARAMS memset{};
    CUDA_MEMCPY3D copy{};
    CU(cuGraphNodeGetType(node, &type));
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      CU(cuGraphKernelNodeGetParams(node, &kernel));
      kernel.kernelParams = pointers;
      kernel.gridDimX = blocks;
      CU(cuGraphExecKernelNodeSetParams(exec, node, &kernel));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
      CU(cuGraphMemsetNodeGetParams(node, &memset));
      memset.value = 2;
      CU(cuGraphExecMemsetNodeSetParams(exec, node, &memset, context));
    } else {
      CU(cuGraphMemcpyNodeGetParams(node, &copy));
      copy.dstDevice += 4;
      CU(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context));
    }
  }
}
// The instance is known by the nodes of the graph that it was made from, after an update too.
void update(Kernels& kernels, CUgraphExec exec, CUgraph made_from, int count, unsigned blocks) {
  const CUgraph graph = capture_inside(kernels, count, 1);
  CUgraphExecUpdateResultInfo info{};
  CU(cuGraphExecUpdate(exec, graph, &info));
  change_nodes(kernels, exec, made_from, blocks);
  CU(cuGraphDestroy(graph));
}
CUgraphExec updated(Kernels& kernels, int count, unsigned blocks, CUgraph* made_from) {
  CUgraphExec exec = nullptr;
  *made_from = capture_inside(kernels, count, blocks);
  CU(cuGraphInstantiate(&exec, *made_from, 0));
  return exec;
}

// The same with nodes that are added one by one.
CUgraphExec add_nodes(Kernels& kernels, int count, unsigned blocks) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode last = nullptr;
  void* pointers[] = {&kernels.words};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernels.count;
  params.gridDimX = blocks;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = pointers;
  CU(cuGraphCreate(&graph, 0));
  for (int i = 0; i < count; ++i)
    CU(cuGraphAddKernelNode(&last, graph, &last, i == 0 ? 0 : 1, &params));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphExecKernelNodeSetParams(exec, last, &params));
  return exec;
}

int light(Kernels& kernels, int count, unsigned blocks, const std::string& way) {
  CUevent begin = nullptr, end = nullptr;
  CUstream other = nullptr;
  CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  kernels.launch(1);
  kernels.sync();
  CUgraph made_from = nullptr;
  const CUgraphExec graph = way == "graph"    ? capture(kernels, count, blocks)
                            : way == "nodes"  ? add_nodes(kernels, count, blocks)
                            : way == "update" ? updated(kernels, count, blocks, &made_from)
                                              : nullptr;
  const bool queued = way == "queued";
  const CUdeviceptr begun = kernels.words + 32;
  say("ready");
  for (uint32_t step = 1; told(); ++step) {
    if (way == "update") update(kernels, graph, made_from, count, blocks);
    if (queued) CU(cuStreamWaitValue32(kernels.stream, begun, step, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuEventRecord(begin, kernels.stream));
    if (graph != nullptr) CU(cuGraphLaunch(graph, kernels.stream));
    else
      for (int i = 0; i < count; ++i) kernels.launch(blocks);
    CU(cuEventRecord(end, kernels.stream));
    if (queued) CU(cuStreamWriteValue32(other, begun, step, 0));
    kernels.sync();
    float ms = 0;
    CU(cuEventElapsedTime(&ms, begin, end));
    say("took " + std::to_string(ms));
  }
  return 0;
}

int heavy(Kernels& kernels, unsigned blocks, const std::string& way) {
  const CUgraphExec graph = way == "graph" ? capture(kernels, 1, blocks) : nullptr;
  CUevent ends[kInFlight] = {};
  for (CUevent& end : ends) CU(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  uint32_t launched = 0;
  const auto launch = [&](CUevent end) {
    if (graph != nullptr) CU(cuGraphLaunch(graph, kernels.stream));
    else if (way.empty()) kernels.launch(blocks);
    else kernels.launch_with(blocks, way == "cooperative");
    launched += blocks;
    CU(cuEventRecord(end, kernels.stream));
  };
  for (CUevent end : ends) launch(end);
  size_t left = 0, all = 0;
  CU(cuMemGetInfo(&left, &all));  // a round trip: behind it the launches have reached the proxy
  say("ready");
  for (size_t oldest = 0; !waiting(); oldest = (oldest + 1) % kInFlight) {
    CU(cuEventSynchronize(ends[oldest]));
    launch(ends[oldest]);
  }
  kernels.sync();
  say(kernels.counted() == launched ? "done" : "other blocks");
  return 0;
}

volatile uint32_t host_may_go = 0;

void CUDA_CB until_told(void*) {
  while (host_may_go == 0) usleep(100);
}

int stand(Kernels& kernels, size_t count, bool host) {
  uint32_t* words = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), count * sizeof(uint32_t), 0));
  std::fill_n(words, count, 0);
  std::vector<CUstream> streams(count);
  void* params[] = {&kernels.words};
  for (size_t i = 0; i < count; ++i) {
    CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    if (host) CU(cuLaunchHostFunc(streams[i], until_told, nullptr));
    else
      CU(cuStreamWaitValue32(streams[i], reinterpret_cast<CUdeviceptr>(words + i), 1,
                             CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuLaunchKernel(kernels.count, 1, 1, 1, 1, 1, 1, 0, streams[i], params, nullptr));
  }
  say("standing");
  if (!told()) return 1;
  host_may_go = 1;
  for (size_t i = count; i-- > 0;) {
    __atomic_store_n(words + i, 1, __ATOMIC_RELEASE);
    CU(cuStreamSynchronize(streams[i]));
  }
  say(kernels.counted() == count ? "done" : "other blocks");
  return 0;
}

int fill(Kernels& kernels, size_t count, unsigned launches) {
  uint32_t* words = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&words), count * sizeof(uint32_t), 0));
  std::fill_n(words, count, 0);
  std::vector<CUstream> streams(count);
  for (size_t i = 0; i < count; ++i) {
    CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    CU(cuStreamWaitValue32(streams[i], reinterpret_cast<CUdeviceptr>(words + i), 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
  }
  void* params[] = {&kernels.words};
  for (unsigned i = 0; i < launches; ++i)
    CU(cuLaunchKernel(kernels.count, 1, 1, 1, 1, 1, 1, 0, streams.back(), params, nullptr));
  for (size_t i = 0; i < count; ++i)
    CU(cuStreamWriteValue32(kernels.stream, reinterpret_cast<CUdeviceptr>(words + i), 1, 0));
  for (CUstream each : streams) CU(cuStreamSynchronize(each));
  say(kernels.counted() == launches ? "done" : "other blocks");
  return 0;
}

int spin(Kernels& kernels) {
  kernels.launch_meet(0);
  say("spinning");
  (void)told();
  return 0;
}

int loads(Kernels& kernels) {
  say("ready");
  for (int image = 0; told();) {
    for (int end = image + std::atoi(line); image < end; ++image) {
      const std::string text = kImage + ("// " + std::to_string(image) + "\n");
      CU(cuModuleLoadData(&kernels.module, text.c_str()));
      CU(cuModuleGetFunction(&kernels.count, kernels.module, "count"));
      kernels.launch(1);
    }
    kernels.sync();
    say("loaded");
  }
  return 0;
}

int meet(Kernels& kernels) {
  // Known to be long before it matters.
  for (int i = 0; i < 5; ++i) {
    kernels.launch_meet(2);
    kernels.sync();
  }
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, kernels.words));
  std::string text;
  for (const char byte : handle.reserved) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  say(text);
  if (!told()) return 1;
  const bool opens = std::strncmp(line, "first", 5) != 0;
  if (opens) {
    for (size_t i = 0; i < sizeof handle.reserved; ++i)
      handle.reserved[i] =
          static_cast<char>(std::strtoul(std::string(line + 2 * i, 2).c_str(), nullptr, 16));
    CU(cuIpcOpenMemHandle(&kernels.words, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
  say("ready");
  if (!told()) return 1;
  kernels.launch_meet(opens ? 1 : 0);
  say("submitted");
  kernels.sync();
  say("met");
  (void)told();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  Gpu gpu;
  Kernels kernels;
  const std::string what = argv[1];
  if (what == "meet") return meet(kernels);
  if (what == "loads") return loads(kernels);
  if (what == "spin") return spin(kernels);
  if (argc < 3) return 2;
  const int number = std::atoi(argv[2]);
  const unsigned blocks = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1;
  if (what == "stand")
    return stand(kernels, static_cast<size_t>(number), argc > 3 && argv[3] == std::string("host"));
  if (what == "fill") return fill(kernels, static_cast<size_t>(number), blocks);
  const std::string way = argc > 3 && what == "heavy" ? argv[3] : argc > 4 ? argv[4] : "";
  return what == "light" ? light(kernels, number, blocks, way)
                         : heavy(kernels, static_cast<unsigned>(number), way);
}

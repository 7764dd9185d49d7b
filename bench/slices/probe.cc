// What green streams of one primary context do, natively: a line for each question of
// docs/decisions/0020-slices.md. Prints; judges only whether parts are disjoint (exit status 1).
//
//   bench/slices/probe [ROUNDS]   some seconds on one GPU; a few rounds are enough for a simulated
//   one
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

// where: each block says on which multiprocessor it is, and stays there for ROUNDS.
const char* const kImage = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry where(.param .u64 map, .param .u32 rounds) {
  .reg .u64 %a<4>;
  .reg .u32 %r<6>;
  .reg .pred %p<2>;
  ld.param.u64 %a0, [map];
  ld.param.u32 %r0, [rounds];
  cvta.to.global.u64 %a1, %a0;
  mov.u32 %r1, %smid;
  mul.wide.u32 %a2, %r1, 4;
  add.u64 %a3, %a1, %a2;
  mov.u32 %r2, 1;
  st.global.u32 [%a3], %r2;
again:
  setp.eq.u32 %p0, %r0, 0;
  @%p0 bra done;
  sub.u32 %r0, %r0, 1;
  mul.lo.u32 %r2, %r2, 1664525;
  bra again;
done:
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra end;
  st.global.u32 [%a1], %r2;
end:
  ret;
}
)";
constexpr unsigned kMapped = 1024;

const char* name_of(CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  return name;
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("FAILED %s: %s\n", what, name_of(result));
  std::exit(2);
}
#define CU(call) check(call, #call)

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using Sms = std::vector<uint32_t>;

struct Probe {
  CUcontext primary = nullptr;
  CUfunction where = nullptr;
  CUdeviceptr map = 0;
  CUstream plain = nullptr;
  int sms = 0;
  uint32_t rounds = 20'000;

  Probe() {
    CUmodule module = nullptr;
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&primary, 0));
    CU(cuCtxSetCurrent(primary));
    CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    CU(cuModuleLoadData(&module, kImage));
    CU(cuModuleGetFunction(&where, module, "where"));
    CU(cuMemAlloc(&map, kMapped * 4));
    CU(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  }
  void launch(CUstream stream, unsigned blocks, uint32_t spin) {
    void* params[] = {&map, &spin};
    CU(cuLaunchKernel(where, blocks, 1, 1, 32, 1, 1, 0, stream, params, nullptr));
  }
  unsigned blocks() const { return 16 * static_cast<unsigned>(sms); }
  unsigned long_blocks() const { return 4 * blocks(); }
  template <class Work>
  Sms where_is(CUstream stream, Work work) {
    CU(cuMemsetD32Async(map, 0, kMapped, stream));
    CU(cuStreamSynchronize(stream));
    work();
    CU(cuStreamSynchronize(stream));
    Sms words(kMapped), found;
    CU(cuMemcpyDtoH(words.data(), map, kMapped * 4));
    for (uint32_t i = 0; i < kMapped; ++i)
      if (words[i] != 0) found.push_back(i);
    return found;
  }
};

struct Part {
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  Sms found;
};

struct Split {
  Part small, large;
};

bool disjoint(const Sms& a, const Sms& b) {
  Sms both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both.empty();
}

std::string side(const Split& split, const Sms& found) {
  const std::string size = std::to_string(found.size()) + " SMs, ";
  if (disjoint(found, split.large.found)) return size + "in the small part";
  if (disjoint(found, split.small.found)) return size + "in the large part";
  return size + "in BOTH parts";
}

void make(Part& part, std::vector<CUdevResource> resources, const char* which) {
  CUdevResourceDesc description = nullptr;
  CU(cuDevResourceGenerateDesc(&description, resources.data(),
                               static_cast<unsigned>(resources.size())));
  const double begin = now_us();
  CU(cuGreenCtxCreate(&part.green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  const double made = now_us();
  CU(cuCtxFromGreenCtx(&part.context, part.green));
  std::vector<CUstream> streams(64);
  for (CUstream& stream : streams)
    CU(cuGreenCtxStreamCreate(&stream, part.green, CU_STREAM_NON_BLOCKING, 0));
  const double reserved = now_us();
  for (CUstream stream : streams) CU(cuStreamDestroy(stream));
  CU(cuGreenCtxStreamCreate(&part.stream, part.green, CU_STREAM_NON_BLOCKING, 0));
  std::printf("  %s part: green context %.0f us, 64 streams %.0f us\n", which, made - begin,
              reserved - made);
}

Split split_into(Probe& probe, unsigned size) {
  CUdevResource all{}, rest{};
  std::vector<CUdevResource> groups(256);
  unsigned count = 256;
  CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  CU(cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, size));
  groups.resize(count);
  std::printf("split by %u: %u groups of %u, %u remain\n", size, count, groups[0].sm.smCount,
              rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0);
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0) groups.push_back(rest);
  Split split;
  make(split.small, {groups[0]}, "small");
  make(split.large, {groups.begin() + 1, groups.end()}, "large");
  for (Part* part : {&split.small, &split.large})
    part->found = probe.where_is(part->stream,
                                 [&] { probe.launch(part->stream, probe.blocks(), probe.rounds); });
  std::printf("  kernels run on %zu and %zu SMs, %s\n", split.small.found.size(),
              split.large.found.size(),
              disjoint(split.small.found, split.large.found) ? "disjoint" : "OVERLAPPING");
  return split;
}

CUgraphExec captured(Probe& probe, CUstream stream, CUgraphNode* node) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  size_t count = 1;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  probe.launch(stream, probe.blocks(), probe.rounds);
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphGetNodes(graph, node, &count));
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

void graphs(Probe& probe, const Split& split) {
  CUgraphNode node = nullptr;
  const CUgraphExec exec = captured(probe, split.small.stream, &node);
  const auto run = [&](const char* what, CUgraphExec instance, CUstream stream) {
    const Sms found = probe.where_is(stream, [&] { CU(cuGraphLaunch(instance, stream)); });
    std::printf("%s: %s\n", what, side(split, found).c_str());
  };
  run("captured in the small part, launched there", exec, split.small.stream);
  run("the same, launched in the large part", exec, split.large.stream);
  run("the same, launched in a stream of the primary context", exec, probe.plain);
  CUDA_KERNEL_NODE_PARAMS params{};
  CU(cuGraphKernelNodeGetParams(node, &params));
  std::printf("its node: func %s, kern %s, ctx %s\n", params.func != nullptr ? "set" : "null",
              params.kern != nullptr ? "set" : "null",
              params.ctx == split.small.context ? "the small part's"
              : params.ctx == probe.primary     ? "the primary one"
              : params.ctx == nullptr           ? "null"
                                                : "another");
  uint32_t rounds = probe.rounds + 1;
  void* pointers[] = {&probe.map, &rounds};
  params.kernelParams = pointers;
  params.extra = nullptr;
  std::printf("its parameters set as they were got: %s\n",
              name_of(cuGraphExecKernelNodeSetParams(exec, node, &params)));
  run("  after that", exec, split.small.stream);
  params.ctx = nullptr;
  std::printf("the same without a context: %s\n",
              name_of(cuGraphExecKernelNodeSetParams(exec, node, &params)));
  run("  after that", exec, split.small.stream);
  for (CUcontext context : {CUcontext{}, split.small.context}) {
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    CU(cuGraphCreate(&graph, 0));
    params.ctx = context;
    const CUresult added = cuGraphAddKernelNode(&node, graph, nullptr, 0, &params);
    std::printf("a node added by hand, ctx %s: %s\n", context != nullptr ? "set" : "null",
                name_of(added));
    if (added != CUDA_SUCCESS || cuGraphInstantiateWithFlags(&made, graph, 0) != CUDA_SUCCESS)
      continue;
    run("  launched in the small part", made, split.small.stream);
  }
}

// A kernel node's parameters with other values.
struct OtherValues {
  CUdeviceptr map;
  uint32_t rounds;
  void* pointers[2] = {&map, &rounds};
  explicit OtherValues(const Probe& probe) : map(probe.map), rounds(probe.rounds + 1) {}
  void into(CUDA_KERNEL_NODE_PARAMS& params) {
    params.kernelParams = pointers;
    params.extra = nullptr;
  }
};

void run_in_small(Probe& probe, const Split& split, CUgraphExec instance) {
  const Sms found =
      probe.where_is(split.small.stream, [&] { CU(cuGraphLaunch(instance, split.small.stream)); });
  std::printf("    then: %s\n", side(split, found).c_str());
}

// A captured node's parameters, set in an instance and in the graph.
void changed_nodes(Probe& probe, const Split& split) {
  OtherValues values(probe);
  CUDA_KERNEL_NODE_PARAMS params{};
  CUgraphNode node = nullptr;
  const CUgraphExec exec = captured(probe, split.small.stream, &node);
  CU(cuGraphKernelNodeGetParams(node, &params));
  values.into(params);
  CUresult error = cuGraphExecKernelNodeSetParams(exec, node, &params);
  std::printf("  set in the instance: %s\n", name_of(error));
  if (error == CUDA_SUCCESS) run_in_small(probe, split, exec);
  error = cuGraphKernelNodeSetParams(node, &params);
  std::printf("  set in the graph: %s", name_of(error));
  CU(cuGraphKernelNodeGetParams(node, &params));
  std::printf(", its context after that: %s\n",
              params.ctx == split.small.context ? "the small part's" : "another");
}

// Nodes added by hand: of a function, and of a library's kernel with a context.
void added_nodes(Probe& probe, const Split& split) {
  OtherValues values(probe);
  for (const bool as_kernel : {false, true}) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.gridDimX = probe.blocks();
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = 32;
    values.into(params);
    if (as_kernel) {
      CUlibrary library = nullptr;
      CU(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
      CU(cuLibraryGetKernel(&params.kern, library, "where"));
      params.ctx = split.small.context;
    } else {
      params.func = probe.where;
    }
    CU(cuGraphCreate(&graph, 0));
    const CUresult error = cuGraphAddKernelNode(&node, graph, nullptr, 0, &params);
    std::printf("  a node added by hand%s: %s\n", as_kernel ? ", of a library, ctx set" : "",
                name_of(error));
    if (error != CUDA_SUCCESS || cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS)
      continue;
    run_in_small(probe, split, exec);
    std::printf("  set in that instance: %s\n",
                name_of(cuGraphExecKernelNodeSetParams(exec, node, &params)));
    run_in_small(probe, split, exec);
  }
}

// Whether instances follow a capture of the same work in another place, as those of a program do
// whose part comes or goes between two captures.
void updates(Probe& probe, const Split& split) {
  struct Place {
    const char* name;
    CUstream stream;
  };
  const Place places[] = {
      {"small", split.small.stream}, {"large", split.large.stream}, {"whole", probe.plain}};
  for (const Place& from : places) {
    for (const Place& to : places) {
      CUgraphNode node = nullptr;
      CUgraph graph = nullptr;
      CUgraphExec exec = captured(probe, from.stream, &node);
      CU(cuStreamBeginCapture(to.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      probe.launch(to.stream, probe.blocks(), probe.rounds);
      CU(cuStreamEndCapture(to.stream, &graph));
      CUgraphExecUpdateResultInfo info{};
      const CUresult error = cuGraphExecUpdate(exec, graph, &info);
      std::printf("%s updated by %s: %s (%d)", from.name, to.name, name_of(error),
                  static_cast<int>(info.result));
      const Sms found = probe.where_is(probe.plain, [&] { CU(cuGraphLaunch(exec, probe.plain)); });
      std::printf(", then %s\n", side(split, found).c_str());
    }
  }
}

// Memset and copy nodes captured in the small part, and changed with each context named and
// current.
void other_nodes(Probe& probe, const Split& split) {
  struct Named {
    const char* name;
    CUcontext context;
  };
  const Named contexts[] = {{"primary", probe.primary}, {"small", split.small.context}};
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 1 << 20));
  for (const bool copies : {false, true}) {
    for (const Named& named : contexts) {
      for (const Named& current : contexts) {
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        CUgraphNode node = nullptr;
        size_t count = 1;
        const CUstream stream = split.small.stream;
        CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        if (copies) CU(cuMemcpyDtoDAsync(memory, memory + 65536, 65536, stream));
        else CU(cuMemsetD8Async(memory, 1, 65536, stream));
        CU(cuStreamEndCapture(stream, &graph));
        CU(cuGraphGetNodes(graph, &node, &count));
        CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CU(cuCtxSetCurrent(current.context));
        CUresult error = CUDA_SUCCESS;
        if (copies) {
          CUDA_MEMCPY3D copy{};
          CU(cuGraphMemcpyNodeGetParams(node, &copy));
          copy.srcDevice += 4096;
          error = cuGraphExecMemcpyNodeSetParams(exec, node, &copy, named.context);
        } else {
          CUDA_MEMSET_NODE_PARAMS set{};
          CU(cuGraphMemsetNodeGetParams(node, &set));
          set.value = 2;
          error = cuGraphExecMemsetNodeSetParams(exec, node, &set, named.context);
        }
        CU(cuCtxSetCurrent(probe.primary));
        std::printf("a %s node of the small part set with context %s, %s current: %s\n",
                    copies ? "copy" : "memset", named.name, current.name, name_of(error));
        CU(cuGraphLaunch(exec, stream));
        CU(cuStreamSynchronize(stream));
      }
    }
  }
}

// A kernel, a memset and a copy, captured.
CUgraph three_nodes(Probe& probe, CUdeviceptr memory, CUstream stream) {
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  probe.launch(stream, probe.blocks(), probe.rounds);
  CU(cuMemsetD8Async(memory, 1, 65536, stream));
  CU(cuMemcpyDtoDAsync(memory, memory + 65536, 65536, stream));
  CU(cuStreamEndCapture(stream, &graph));
  return graph;
}

struct ThreeNodes {
  CUgraphNode kernel = nullptr, memset = nullptr, copy = nullptr;
};

// Sets each node of the graph to what it has.
ThreeNodes bring(CUgraph graph) {
  ThreeNodes three;
  CUgraphNode nodes[3] = {};
  size_t count = 3;
  CU(cuGraphGetNodes(graph, nodes, &count));
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    CU(cuGraphNodeGetType(node, &type));
    CUresult error = CUDA_ERROR_UNKNOWN;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      CUDA_KERNEL_NODE_PARAMS params{};
      CU(cuGraphKernelNodeGetParams(three.kernel = node, &params));
      error = cuGraphKernelNodeSetParams(node, &params);
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
      CUDA_MEMSET_NODE_PARAMS params{};
      CU(cuGraphMemsetNodeGetParams(three.memset = node, &params));
      error = cuGraphMemsetNodeSetParams(node, &params);
    } else {
      CUDA_MEMCPY3D params{};
      CU(cuGraphMemcpyNodeGetParams(three.copy = node, &params));
      error = cuGraphMemcpyNodeSetParams(node, &params);
    }
    std::printf("a node of type %d brought: %s\n", static_cast<int>(type), name_of(error));
  }
  return three;
}

// A launch priority stays when its node is brought.
void brought_priority(CUgraphNode kernel) {
  CUlaunchAttributeValue value{};
  value.priority = -3;
  CU(cuGraphKernelNodeSetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  CUDA_KERNEL_NODE_PARAMS params{};
  CU(cuGraphKernelNodeGetParams(kernel, &params));
  CU(cuGraphKernelNodeSetParams(kernel, &params));
  value = {};
  CU(cuGraphKernelNodeGetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  std::printf("its priority -3 after it was brought back: %d\n", value.priority);
}

// Whether setting a node to what it has, with another context current, brings it there; in a child
// graph too.
void brought_nodes(Probe& probe, const Split& split) {
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 1 << 20));
  const CUgraph flat = three_nodes(probe, memory, probe.plain);
  CUgraph graph = nullptr, inner = nullptr;
  CUgraphNode child = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddChildGraphNode(&child, graph, nullptr, 0, flat));
  CU(cuGraphChildGraphNodeGetGraph(child, &inner));
  CU(cuCtxSetCurrent(split.small.context));
  (void)bring(inner);
  const ThreeNodes three = bring(flat);
  CU(cuCtxSetCurrent(probe.primary));
  CUgraphExec exec = nullptr, other = nullptr;
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  run_in_small(probe, split, exec);
  CUDA_MEMSET_NODE_PARAMS memset{};
  CUDA_MEMCPY3D copy{};
  CU(cuGraphMemsetNodeGetParams(three.memset, &memset));
  CU(cuGraphMemcpyNodeGetParams(three.copy, &copy));
  CU(cuGraphInstantiateWithFlags(&other, flat, 0));
  for (CUcontext context : {probe.primary, split.small.context})
    std::printf("  set in an instance with the %s context: memset %s, copy %s\n",
                context == probe.primary ? "primary" : "part's",
                name_of(cuGraphExecMemsetNodeSetParams(other, three.memset, &memset, context)),
                name_of(cuGraphExecMemcpyNodeSetParams(other, three.copy, &copy, context)));
  brought_priority(three.kernel);
}

void calls(Probe& probe, const Split& split) {
  const CUstream green = split.small.stream;
  CUcontext context = nullptr;
  CU(cuStreamGetCtx(green, &context));
  std::printf("cuStreamGetCtx of a green stream: %s\n",
              context == probe.primary ? "the primary context" : "another");
  CUevent begin = nullptr, end = nullptr;
  CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CU(cuEventRecord(begin, green));
  probe.launch(green, 16, probe.rounds);
  CU(cuStreamWaitEvent(split.large.stream, begin, 0));
  CU(cuEventRecord(end, green));
  CU(cuStreamWaitEvent(probe.plain, end, 0));
  CU(cuStreamSynchronize(probe.plain));
  float ms = 0;
  std::printf("events of the primary context across parts: %s, %.3f ms\n",
              name_of(cuEventElapsedTime(&ms, begin, end)), static_cast<double>(ms));
  CUdeviceptr memory = 0;
  std::printf("cuMemAllocAsync there: %s", name_of(cuMemAllocAsync(&memory, 1 << 20, green)));
  std::printf(", cuMemsetD8Async: %s", name_of(cuMemsetD8Async(memory, 1, 1 << 20, green)));
  std::printf(", cuMemFreeAsync: %s\n", name_of(cuMemFreeAsync(memory, green)));
  void* params[] = {&probe.map, &probe.rounds};
  int per_sm = 0;
  CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, probe.where, 32, 0));
  for (const unsigned blocks : {per_sm * 8u, per_sm * static_cast<unsigned>(probe.sms)})
    std::printf(
        "a cooperative launch of %u blocks (%d fit an SM): %s\n", blocks, per_sm,
        name_of(cuLaunchCooperativeKernel(probe.where, blocks, 1, 1, 32, 1, 1, 0, green, params)));
  CU(cuCtxSynchronize());
  CUstream urgent = nullptr;
  int priority = 0;
  CU(cuGreenCtxStreamCreate(&urgent, split.small.green, CU_STREAM_NON_BLOCKING, -3));
  CU(cuStreamGetPriority(urgent, &priority));
  CUgraphNode node = nullptr;
  (void)captured(probe, urgent, &node);
  CUlaunchAttributeValue value{};
  CU(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  std::printf("a green stream asked for priority -3 has %d, a node captured from it %d\n", priority,
              value.priority);
  std::printf("cuStreamCopyAttributes to a green stream: %s, from one: %s\n",
              name_of(cuStreamCopyAttributes(urgent, probe.plain)),
              name_of(cuStreamCopyAttributes(probe.plain, urgent)));
}

// A step of 150 short kernels in the small part while `heavy` streams always have long ones.
void step_beside(Probe& probe, const Split& split, const std::vector<CUstream>& heavy,
                 const char* where) {
  const uint32_t long_rounds = probe.rounds * 20;
  for (int turn = 0; turn < 4; ++turn)
    for (CUstream stream : heavy) probe.launch(stream, probe.long_blocks(), long_rounds);
  std::vector<double> took;
  for (int step = 0; step < 5; ++step) {
    const double begin = now_us();
    for (int i = 0; i < 150; ++i) probe.launch(split.small.stream, 64, probe.rounds / 40);
    CU(cuStreamSynchronize(split.small.stream));
    took.push_back(now_us() - begin);
  }
  bool beside = false;
  for (CUstream stream : heavy) beside = beside || cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
  const double memset_begin = now_us();
  CU(cuMemsetD32Async(probe.map, 0, kMapped, split.small.stream));
  CU(cuStreamSynchronize(split.small.stream));
  const double memset_us = now_us() - memset_begin;
  const double begin = now_us();
  for (CUstream stream : heavy) CU(cuStreamSynchronize(stream));
  std::sort(took.begin(), took.end());
  std::printf(
      "step in the small part, %s: median %.0f us, most %.0f us; memset %.0f us; the others %s, "
      "%.0f us more\n",
      where, took[2], took[4], memset_us, beside ? "still ran" : "were done", now_us() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Probe probe;
  if (argc > 1) probe.rounds = static_cast<uint32_t>(std::atoi(argv[1]));
  std::printf(
      "%d SMs; a kernel of the primary context: %zu SMs\n", probe.sms,
      probe.where_is(probe.plain, [&] { probe.launch(probe.plain, probe.blocks(), probe.rounds); })
          .size());
  bool apart = true;
  for (const unsigned size : {16u, 32u, 64u}) {
    if (size >= static_cast<unsigned>(probe.sms)) continue;
    const Split split = split_into(probe, size);
    apart = apart && disjoint(split.small.found, split.large.found);
  }
  // Once more with work under way: how long does making one wait?
  for (int i = 0; i < 4; ++i) probe.launch(probe.plain, probe.long_blocks(), probe.rounds * 20);
  const double begin = now_us();
  const Split split = split_into(probe, 16);
  std::printf("with four long kernels under way that took %.0f us\n", now_us() - begin);
  graphs(probe, split);
  for (CUcontext current : {probe.primary, split.small.context}) {
    CU(cuCtxSetCurrent(current));
    std::printf("with %s context current:\n",
                current == probe.primary ? "the primary" : "the small part's");
    changed_nodes(probe, split);
    added_nodes(probe, split);
  }
  CU(cuCtxSetCurrent(probe.primary));
  updates(probe, split);
  other_nodes(probe, split);
  brought_nodes(probe, split);
  calls(probe, split);
  std::vector<CUstream> large(4), whole(4);
  for (CUstream& stream : large)
    CU(cuGreenCtxStreamCreate(&stream, split.large.green, CU_STREAM_NON_BLOCKING, 0));
  for (CUstream& stream : whole) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  step_beside(probe, split, {}, "alone");
  step_beside(probe, split, large, "4 heavy streams in the large part");
  step_beside(probe, split, whole, "4 heavy streams in the primary context");
  return apart ? 0 : 1;
}

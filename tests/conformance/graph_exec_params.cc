// Parameters of an instance's nodes, changed again and again between launches, as programs do that
// keep an instance and give it other addresses each step: in which order updates and launches take
// effect, and what an update in between does to the next.
#include <thread>

#include "tests/conformance/graph.h"

CASES_HOLD_STREAMS;

namespace {

// One kernel: data = data * factor + addend.
struct StepGraph : GraphGpu {
  Module module{"kernels.fatbin"};
  DeviceArray<uint32_t> data{std::vector<uint32_t>(64, 1)};
  CUgraphNode node = nullptr;
  StepGraph() {
    StepArgs args(data.pointer, 1, 0, 64);
    const auto p = step_params(module.function("step"), args);
    CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &p));
  }
  CUresult set(CUgraphExec exec, uint32_t factor, uint32_t addend) { return set(exec, module.function("step"), factor, addend); }
  CUresult set(CUgraphExec exec, CUfunction function, uint32_t factor, uint32_t addend) {
    StepArgs args(data.pointer, factor, addend, 64);
    const auto p = step_params(function, args);
    return cuGraphExecKernelNodeSetParams(exec, node, &p);
  }
};

struct FillArgs {
  CUdeviceptr data;
  uint32_t value;
  int count = 64;
  void* pointers[3] = {&data, &value, &count};
  FillArgs(CUdeviceptr d, uint32_t v) : data(d), value(v) {}
  FillArgs(const FillArgs&) = delete;
  FillArgs& operator=(const FillArgs&) = delete;
};

// One copy from `a` or `b` to `to`.
struct CopyGraph : GraphGpu {
  DeviceArray<uint32_t> a{std::vector<uint32_t>(64, 1)}, b{std::vector<uint32_t>(64, 2)}, to{std::vector<uint32_t>(64, 0)};
  CUDA_MEMCPY3D params = copy_params(CU_MEMORYTYPE_DEVICE, to.pointer, CU_MEMORYTYPE_DEVICE, a.pointer, 128);
  CUgraphNode node = nullptr;
  CopyGraph() { CU(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &params, context)); }
  CUresult set(CUgraphExec exec, CUdeviceptr dst, CUdeviceptr src) {
    params.dstDevice = dst, params.srcDevice = src;
    return cuGraphExecMemcpyNodeSetParams(exec, node, &params, context);
  }
};

}  // namespace

CASE(each_launch_has_the_update_before_it) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 6; ++i) {
    SHOW(g.set(exec, 2, i));
    CU(cuGraphLaunch(exec, g.stream));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(updates_behind_launches_that_wait) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  g.set(exec, 3, 1);
  g.run(exec);
  Gate gate;
  gate.stop(g.stream);
  for (uint32_t i = 0; i < 4; ++i) {
    SHOW(g.set(exec, 3, i));
    CU(cuGraphLaunch(exec, g.stream));
  }
  SHOW(g.set(exec, 0, 99));
  gate.open();
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
  g.run(exec);
  print_values("the last update", g.data.read(), 2);
}

CASE(the_last_of_several_updates_counts) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 5; ++i) CU(g.set(exec, 0, i));
  g.run(exec);
  print_values("data", g.data.read(), 2);
}

CASE(arguments_are_copied_at_the_call) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  StepArgs args(g.data.pointer, 0, 5, 64);
  auto p = step_params(g.module.function("step"), args);
  for (uint32_t i = 0; i < 3; ++i) {
    args.addend = 5 + i;
    SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
    args.addend = 77;
    p.gridDimX = 0;
    g.run(exec);
    print_values("data", g.data.read(), 2);
    p.gridDimX = 1;
  }
}

CASE(packed_arguments) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  struct {
    CUdeviceptr data;
    uint32_t factor, addend;
    int count;
  } packed = {g.data.pointer, 0, 0, 64};
  size_t bytes = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  StepArgs none(0, 0, 0, 0);
  auto p = step_params(g.module.function("step"), none);
  p.kernelParams = nullptr;
  p.extra = extra;
  for (uint32_t i = 1; i < 4; ++i) {
    packed.addend = i;
    SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
    packed.addend = 88;
    g.run(exec);
    print_values("data", g.data.read(), 2);
  }
}

// As large as the parameters, not as the struct around them.
CASE(packed_arguments_of_the_exact_size) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  struct {
    CUdeviceptr data;
    uint32_t factor, addend;
    int count;
  } packed = {g.data.pointer, 0, 7, 64};
  size_t bytes = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  StepArgs none(0, 0, 0, 0);
  auto p = step_params(g.module.function("step"), none);
  p.kernelParams = nullptr;
  p.extra = extra;
  SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
  g.run(exec);
  print_values("data", g.data.read(), 2);
  for (size_t size : {size_t{20}, sizeof packed}) {
    bytes = size;
    printf("size %zu\n", size);
    CUgraphNode node = nullptr;
    SHOW(cuGraphAddKernelNode(&node, g.graph, &g.node, 1, &p));
    SHOW(cuGraphKernelNodeSetParams(g.node, &p));
  }
  g.run(g.instantiate());
  print_values("data", g.data.read(), 2);
}

CASE(packed_arguments_that_are_too_few) {
  StepGraph g;
  struct {
    CUdeviceptr data;
    uint32_t factor, addend;
    int count;
  } packed = {g.data.pointer, 0, 7, 64};
  size_t bytes = 16;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  StepArgs none(0, 0, 0, 0);
  auto p = step_params(g.module.function("step"), none);
  p.kernelParams = nullptr;
  p.extra = extra;
  CUgraphExec exec = g.instantiate();
  SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddKernelNode(&node, g.graph, nullptr, 0, &p));
  SHOW(cuGraphKernelNodeSetParams(g.node, &p));
}

CASE(shapes_in_turn) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 6; ++i) {
    StepArgs args(g.data.pointer, 1, 1, 64);
    auto p = step_params(g.module.function("step"), args);
    p.gridDimX = 1 + i % 2;
    p.blockDimX = i % 3 == 0 ? 32 : 16;
    SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
    g.run(exec);
    const auto values = g.data.read();
    printf("ends %u %u %u %u\n", values[0], values[16], values[32], values[48]);
  }
}

CASE(functions_in_turn) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 5; ++i) {
    FillArgs args(g.data.pointer, 10 * i);
    StepArgs unused(0, 0, 0, 0);
    auto p = step_params(g.module.function("fill"), unused);
    p.kernelParams = args.pointers;
    SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
    g.run(exec);
    print_values("filled", g.data.read(), 2);
    SHOW(g.set(exec, 2, i));
    g.run(exec);
    print_values("stepped", g.data.read(), 2);
  }
}

CASE(an_update_that_fails_after_others) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 1; i < 3; ++i) CU(g.set(exec, 0, i));
  SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, nullptr));
  const auto fill = fill_params(g.data.pointer, 9, 64);
  SHOW(cuGraphExecMemsetNodeSetParams(exec, g.node, &fill, g.context));
  g.run(exec);
  print_values("as before", g.data.read(), 2);
  for (uint32_t i = 3; i < 5; ++i) SHOW(g.set(exec, 0, i));
  g.run(exec);
  print_values("data", g.data.read(), 2);
}

CASE(a_node_of_another_graph_after_others) {
  StepGraph g;
  StepArgs args(g.data.pointer, 1, 7, 64);
  const auto p = step_params(g.module.function("step"), args);
  CUgraph other = nullptr;
  CUgraphNode theirs = nullptr;
  CU(cuGraphCreate(&other, 0));
  CU(cuGraphAddKernelNode(&theirs, other, nullptr, 0, &p));
  CUgraphExec exec = g.instantiate(), their_exec = g.instantiate(other);
  for (int i = 0; i < 3; ++i) {
    SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
    SHOW(cuGraphExecKernelNodeSetParams(their_exec, theirs, &p));
    SHOW(cuGraphExecKernelNodeSetParams(exec, theirs, &p));
    SHOW(cuGraphExecKernelNodeSetParams(their_exec, g.node, &p));
  }
  g.run(exec);
  g.run(their_exec);
  print_values("data", g.data.read(), 2);
}

CASE(two_instances_of_one_graph) {
  StepGraph g;
  CUgraphExec one = g.instantiate(), two = g.instantiate();
  for (uint32_t i = 0; i < 4; ++i) {
    SHOW(g.set(one, 1, 1));
    SHOW(g.set(two, 10, 0));
    CU(cuGraphLaunch(one, g.stream));
    CU(cuGraphLaunch(two, g.stream));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(the_graph_keeps_its_own) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 3; ++i) CU(g.set(exec, 0, 40 + i));
  CUDA_KERNEL_NODE_PARAMS got{};
  CU(cuGraphKernelNodeGetParams(g.node, &got));
  printf("factor %u, addend %u\n", *static_cast<uint32_t*>(got.kernelParams[1]), *static_cast<uint32_t*>(got.kernelParams[2]));
  g.run(g.instantiate());
  print_values("another instance", g.data.read(), 2);
  g.run(exec);
  print_values("data", g.data.read(), 2);
}

CASE(updated_then_destroyed) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  CU(g.set(exec, 1, 1));
  SHOW(g.set(exec, 2, 5));
  CU(cuGraphLaunch(exec, g.stream));
  SHOW(g.set(exec, 0, 99));
  SHOW(cuGraphExecDestroy(exec));
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(instances_come_and_go) {
  StepGraph g;
  for (uint32_t i = 0; i < 50; ++i) {
    CUgraphExec exec = g.instantiate();
    for (uint32_t k = 0; k < 3; ++k) {
      CU(g.set(exec, 1, k));
      CU(cuGraphLaunch(exec, g.stream));
    }
    CU(cuGraphExecDestroy(exec));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(updated_as_a_whole_in_between) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 2; ++i) CU(g.set(exec, 0, i));
  CUgraph other = nullptr;
  CUgraphNode theirs = nullptr;
  StepArgs args(g.data.pointer, 0, 70, 64);
  const auto p = step_params(g.module.function("step"), args);
  CU(cuGraphCreate(&other, 0));
  CU(cuGraphAddKernelNode(&theirs, other, nullptr, 0, &p));
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(exec, other, &info));
  g.run(exec);
  print_values("data", g.data.read(), 2);
}

CASE(typed_and_old_calls_in_turn) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 6; ++i) {
    StepArgs args(g.data.pointer, 2, i, 64);
    if (i % 2 == 0) {
      CUgraphNodeParams p{};
      p.type = CU_GRAPH_NODE_TYPE_KERNEL;
      p.kernel.func = g.module.function("step");
      p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
      p.kernel.blockDimX = 64;
      p.kernel.kernelParams = args.pointers;
      SHOW(cuGraphExecNodeSetParams(exec, g.node, &p));
    } else {
      SHOW(g.set(exec, 2, i));
    }
    CU(cuGraphLaunch(exec, g.stream));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(switched_off_in_between) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 2; ++i) CU(g.set(exec, 0, i));
  CU(cuGraphNodeSetEnabled(exec, g.node, 0));
  SHOW(g.set(exec, 0, 50));
  g.run(exec);
  print_values("off", g.data.read(), 2);
  CU(cuGraphNodeSetEnabled(exec, g.node, 1));
  g.run(exec);
  print_values("on", g.data.read(), 2);
}

CASE(a_captured_kernel) {
  StepGraph g;
  g.begin();
  LAUNCH(g.module.function("step"), {1}, {64}, 0, g.stream, g.data.pointer, 1u, 0u, 64);
  CUgraph captured = g.end();
  g.node = nodes_of(captured)[0];
  CUgraphExec exec = g.instantiate(captured);
  for (uint32_t i = 0; i < 4; ++i) {
    SHOW(g.set(exec, 2, i));
    CU(cuGraphLaunch(exec, g.stream));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(a_node_of_a_clone) {
  StepGraph g;
  CUgraph clone = nullptr;
  CU(cuGraphClone(&clone, g.graph));
  CU(cuGraphNodeFindInClone(&g.node, g.node, clone));
  CUgraphExec exec = g.instantiate(clone);
  for (uint32_t i = 0; i < 4; ++i) {
    SHOW(g.set(exec, 3, i));
    CU(cuGraphLaunch(exec, g.stream));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(another_graph_ends_in_between) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 4; ++i) {
    CUgraph other = nullptr;
    CUgraphNode node = nullptr;
    CU(cuGraphCreate(&other, 0));
    CU(cuGraphAddEmptyNode(&node, other, nullptr, 0));
    SHOW(g.set(exec, 2, i));
    if (i % 2 == 0) CU(cuGraphDestroyNode(node));
    CU(cuGraphDestroy(other));
    SHOW(g.set(exec, 2, i + 1));
    CU(cuGraphLaunch(exec, g.stream));
  }
  CU(cuStreamSynchronize(g.stream));
  print_values("data", g.data.read(), 2);
}

CASE(the_function_of_an_update_is_unloaded) {
  StepGraph g;
  CUgraphExec exec = g.instantiate();
  const auto image = read_beside("kernels.fatbin");
  for (uint32_t i = 0; i < 3; ++i) {
    CUmodule guest = nullptr;
    CUfunction step = nullptr;
    CU(cuModuleLoadData(&guest, image.data()));
    CU(cuModuleGetFunction(&step, guest, "step"));
    for (uint32_t k = 0; k < 2; ++k) {
      SHOW(g.set(exec, step, 2, k));
      g.run(exec);
    }
    SHOW(g.set(exec, 1, 0));
    CU(cuModuleUnload(guest));
    SHOW(g.set(exec, 3, 1));
    g.run(exec);
  }
  print_values("data", g.data.read(), 2);
}

CASE(more_shared_memory_in_between) {
  StepGraph g;
  CUfunction step = g.module.function("step");
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 4; ++i) {
    StepArgs args(g.data.pointer, 1, 1, 64);
    auto p = step_params(step, args);
    p.sharedMemBytes = i < 2 ? 1024 : 60 << 10;
    CU(cuFuncSetAttribute(step, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(p.sharedMemBytes)));
    SHOW(cuGraphExecKernelNodeSetParams(exec, g.node, &p));
    g.run(exec);
  }
  print_values("data", g.data.read(), 2);
}

CASE(copies_from_two_places_in_turn) {
  CopyGraph g;
  CUgraphExec exec = g.instantiate();
  for (int i = 0; i < 4; ++i) {
    SHOW(g.set(exec, g.to.pointer + (i < 2 ? 0 : 128), i % 2 == 0 ? g.b.pointer : g.a.pointer));
    g.run(exec);
    const auto values = g.to.read();
    printf("to %u %u\n", values[0], values[32]);
  }
}

CASE(copies_behind_launches_that_wait) {
  CopyGraph g;
  CUgraphExec exec = g.instantiate();
  CU(g.set(exec, g.to.pointer, g.b.pointer));
  g.run(exec);
  Gate gate;
  gate.stop(g.stream);
  SHOW(g.set(exec, g.to.pointer, g.a.pointer));
  CU(cuGraphLaunch(exec, g.stream));
  SHOW(g.set(exec, g.to.pointer + 128, g.b.pointer));
  CU(cuGraphLaunch(exec, g.stream));
  gate.open();
  CU(cuStreamSynchronize(g.stream));
  const auto values = g.to.read();
  printf("to %u %u\n", values[0], values[32]);
}

CASE(a_copy_from_memory_that_came_later) {
  CopyGraph g;
  CUgraphExec exec = g.instantiate();
  for (uint32_t i = 0; i < 4; ++i) {
    DeviceArray<uint32_t> fresh(std::vector<uint32_t>(64, 20 + i));
    SHOW(g.set(exec, g.to.pointer, fresh.pointer));
    g.run(exec);
    print_values("to", g.to.read(), 2);
  }
}

CASE(memsets_in_turn) {
  GraphGpu gpu;
  DeviceArray<uint32_t> a(std::vector<uint32_t>(64, 0)), b(std::vector<uint32_t>(64, 0));
  auto p = fill_params(a.pointer, 1, 32);
  CUgraphNode node = nullptr;
  CU(cuGraphAddMemsetNode(&node, gpu.graph, nullptr, 0, &p, gpu.context));
  CUgraphExec exec = gpu.instantiate();
  for (uint32_t i = 0; i < 4; ++i) {
    p.dst = (i % 2 == 0 ? a : b).pointer + (i < 2 ? 0 : 128);
    p.value = 5 + i;
    SHOW(cuGraphExecMemsetNodeSetParams(exec, node, &p, gpu.context));
    gpu.run(exec);
  }
  auto bad = p;
  bad.elementSize = 3;
  SHOW(cuGraphExecMemsetNodeSetParams(exec, node, &bad, gpu.context));
  const auto in_a = a.read(), in_b = b.read();
  printf("a %u %u, b %u %u\n", in_a[0], in_a[32], in_b[0], in_b[32]);
  p.value = 100;
  SHOW(cuGraphExecMemsetNodeSetParams(exec, node, &p, gpu.context));
  gpu.run(exec);
  printf("b %u\n", b.read()[32]);
}

// Each thread has a graph and an instance of its own: graphs are not to be shared among threads.
CASE(two_threads) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  std::vector<uint32_t> ends[2];
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      DeviceArray<uint32_t> data(std::vector<uint32_t>(64, 1));
      CUgraph graph = nullptr;
      CUgraphNode node = nullptr;
      CUgraphExec exec = nullptr;
      CUstream stream = nullptr;
      StepArgs args(data.pointer, 1, 0, 64);
      const auto p = step_params(step, args);
      CU(cuGraphCreate(&graph, 0));
      CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &p));
      CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
      for (uint32_t i = 0; i < 200; ++i) {
        args.factor = 3 + 2 * t, args.addend = i;
        CU(cuGraphExecKernelNodeSetParams(exec, node, &p));
        CU(cuGraphLaunch(exec, stream));
      }
      CU(cuStreamSynchronize(stream));
      ends[t] = data.read();
    });
  }
  for (auto& thread : threads) thread.join();
  print_values("first", ends[0], 2);
  print_values("second", ends[1], 2);
}

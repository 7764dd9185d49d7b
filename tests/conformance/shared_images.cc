// Two programs that load the same image: what one does to its module is nothing to the other.
#include "tests/conformance/two_processes.h"

constexpr auto kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
constexpr unsigned kMuch = 60000;  // bytes of shared memory that a launch gets only after the limit was raised

static void get(CUfunction function, const char* name, CUfunction_attribute which) {
  int value = -77;
  const CUresult result = cuFuncGetAttribute(&value, which, function);
  printf("%s: %s, %d\n", name, code_name(result), value);
}

// What `dynamic_shared` computes with this much shared memory, or the launch's code.
static void run_with(CUfunction function, unsigned bytes) {
  DeviceArray<int> out(1);
  int words = static_cast<int>(bytes / 4);
  void* arguments[] = {&out.pointer, &words};
  const CUresult result = cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, bytes, nullptr, arguments, nullptr);
  printf("launch with %u: %s\n", bytes, code_name(result));
  if (result == CUDA_SUCCESS) printf("computed %d\n", out.read()[0]);
}

static void fill_with(CUfunction function, uint32_t value) {
  DeviceArray<uint32_t> out(64);
  int count = 64;
  void* arguments[] = {&out.pointer, &value, &count};
  CU(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  print_hash("filled", out.read());
}

static void read_state(const Module& module) {
  DeviceArray<int> counter(2);
  DeviceArray<float> table(64), weights(16);
  void* arguments[] = {&counter.pointer, &table.pointer, &weights.pointer};
  CU(cuLaunchKernel(module.function("read_state"), 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  const auto counters = counter.read();
  printf("counter %d and %d, weight %.0f\n", counters[0], counters[1], static_cast<double>(weights.read()[3]));
}

CASE(variable_that_one_writes) {
  Other other([](Link& first) {
    first.wait();
    Gpu gpu;
    Module module("globals.fatbin");
    read_state(module);
    int by = 1000;
    void* arguments[] = {&by};
    CU(cuLaunchKernel(module.function("bump"), 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    read_state(module);
    first.done();
    first.wait();
    read_state(module);
  });
  Gpu gpu;
  Module module("globals.fatbin");
  int by = 5;
  void* arguments[] = {&by};
  CU(cuLaunchKernel(module.function("bump"), 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
  read_state(module);
  other.link().done();
  other.link().wait();
  read_state(module);
  other.link().done();
}

CASE(constant_that_one_sets) {
  Other other([](Link& first) {
    Gpu gpu;
    Module module("globals.fatbin");
    read_state(module);
    first.wait();
    read_state(module);
  });
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr weights;
  size_t bytes = 0;
  CU(cuModuleGetGlobal(&weights, &bytes, module.handle, "weights"));
  const std::vector<float> mine(16, 77.0f);
  CU(cuMemcpyHtoD(weights, mine.data(), bytes));
  read_state(module);
  other.link().done();
}

CASE(limit_that_one_raises) {
  Other other([](Link& first) {
    Gpu gpu;
    Module module("kernels.fatbin");
    const CUfunction before = module.function("dynamic_shared");
    first.wait();
    get(before, "limit", kLimit);
    run_with(before, kMuch);
    run_with(before, 1024);
    CU(cuFuncSetAttribute(before, kLimit, kMuch));
    get(before, "limit", kLimit);
    run_with(before, kMuch);
    run_with(before, kMuch + 4096);
  });
  Gpu gpu;
  Module module("kernels.fatbin");
  const CUfunction function = module.function("dynamic_shared");
  CU(cuFuncSetAttribute(function, kLimit, 70000));
  run_with(function, kMuch);
  other.link().done();
  other.finish();
  get(function, "limit", kLimit);
  run_with(function, 69632);
}

CASE(limit_that_one_had_raised_before_the_other_came) {
  Other other([](Link& first) {
    first.wait();
    Gpu gpu;
    Module module("kernels.fatbin");
    get(module.function("dynamic_shared"), "limit", kLimit);
    run_with(module.function("dynamic_shared"), kMuch);
  });
  Gpu gpu;
  CUlibrary library;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  CU(cuLibraryGetKernel(&kernel, library, "dynamic_shared"));
  CU(cuKernelSetAttribute(kLimit, 70000, kernel, 0));
  Module module("kernels.fatbin");
  CU(cuFuncSetAttribute(module.function("dynamic_shared"), kLimit, 70000));
  other.link().done();
  other.finish();
  CU(cuLibraryUnload(library));
}

CASE(graph_node_beyond_its_own_limit) {
  Other other([](Link& first) {
    first.wait();
    Gpu gpu;
    Module module("kernels.fatbin");
    CUgraph graph;
    CU(cuGraphCreate(&graph, 0));
    DeviceArray<int> out(1);
    int words = kMuch / 4;
    void* arguments[] = {&out.pointer, &words};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = module.function("dynamic_shared");
    params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = 64;
    params.sharedMemBytes = kMuch;
    params.kernelParams = arguments;
    CUgraphNode node;
    CUgraphExec exec = nullptr;
    const CUresult added = cuGraphAddKernelNode(&node, graph, nullptr, 0, &params);
    const CUresult made = added == CUDA_SUCCESS ? cuGraphInstantiate(&exec, graph, 0) : added;
    const CUresult launched = made == CUDA_SUCCESS ? cuGraphLaunch(exec, nullptr) : made;
    printf("it gets as far as launching: %s\n", launched == CUDA_SUCCESS ? "yes" : "no");
    CU(cuGraphDestroy(graph));
  });
  Gpu gpu;
  Module module("kernels.fatbin");
  CU(cuFuncSetAttribute(module.function("dynamic_shared"), kLimit, 70000));
  run_with(module.function("dynamic_shared"), kMuch);
  other.link().done();
}

CASE(other_attributes_that_one_sets) {
  Other other([](Link& first) {
    Gpu gpu;
    Module module("kernels.fatbin");
    const CUfunction function = module.function("fill");
    first.wait();
    get(function, "carve-out", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    get(function, "non-portable", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    get(function, "policy", CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
    fill_with(function, 5);
  });
  Gpu gpu;
  Module module("kernels.fatbin");
  const CUfunction function = module.function("fill");
  fill_with(function, 9);
  CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_CLUSTER_SCHEDULING_POLICY_SPREAD));
  CU(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_SHARED));
  fill_with(function, 9);
  fill_with(module.function("fill"), 10);
  get(function, "non-portable", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  other.link().done();
}

CASE(unload_by_one_while_the_other_goes_on) {
  Other other([](Link& first) {
    Gpu gpu;
    {
      Module module("kernels.fatbin");
      fill_with(module.function("fill"), 1);
      first.wait();
    }
    first.done();
    first.wait();
    Module again("kernels.fatbin");
    fill_with(again.function("fill"), 2);
  });
  Gpu gpu;
  Module module("kernels.fatbin");
  const CUfunction function = module.function("fill");
  fill_with(function, 3);
  other.link().done();
  other.link().wait();
  fill_with(function, 4);
  fill_with(module.function("fill"), 5);
  DeviceArray<uint32_t> out(64);
  fill_with(function, 6);
  other.link().done();
  other.finish();
  fill_with(function, 7);
}

CASE(end_of_one_without_unloading) {
  Other other([](Link& first) {
    Gpu gpu;
    CUmodule module;
    CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
    CUfunction function;
    CU(cuModuleGetFunction(&function, module, "fill"));
    fill_with(function, 1);
    first.done();
  });
  Gpu gpu;
  Module module("kernels.fatbin");
  other.link().wait();
  other.finish();
  fill_with(module.function("fill"), 3);
}

CASE(names_after_the_other_asked) {
  Other other([](Link& first) {
    Gpu gpu;
    Module module("kernels.fatbin");
    (void)module.function("fill");
    (void)module.function("saxpy");
    first.done();
    first.wait();
  });
  other.link().wait();
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, module.handle, "no_such_kernel"));
  SHOW(cuModuleGetFunction(&function, module.handle, "fil"));
  SHOW(cuModuleGetFunction(&function, module.handle, "fill"));
  const char* name = nullptr;
  SHOW(cuFuncGetName(&name, function));
  printf("%s\n", name);
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 77, size = 77;
    const CUresult result = cuFuncGetParamInfo(function, i, &offset, &size);
    printf("parameter %zu: %s, %zu, %zu\n", i, code_name(result), offset, size);
  }
  get(function, "threads", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  fill_with(function, 8);
  CUmodule of = nullptr;
  SHOW(cuFuncGetModule(&of, function));
  printf("of its module: %s\n", of == module.handle ? "yes" : "no");
  other.link().done();
}

CASE(two_modules_of_one_program_beside_anothers) {
  Other other([](Link& first) {
    Gpu gpu;
    Module module("kernels.fatbin");
    fill_with(module.function("fill"), 1);
    first.done();
    first.wait();
  });
  other.link().wait();
  Gpu gpu;
  Module one("kernels.fatbin"), two("kernels.fatbin");
  const CUfunction a = one.function("fill"), b = two.function("fill");
  printf("one function: %s\n", a == b ? "yes" : "no");
  CU(cuFuncSetAttribute(one.function("dynamic_shared"), kLimit, 70000));
  get(two.function("dynamic_shared"), "two", kLimit);
  run_with(two.function("dynamic_shared"), kMuch);
  CUgraph graph;
  CUgraphNode node;
  CU(cuGraphCreate(&graph, 0));
  DeviceArray<uint32_t> out(64);
  uint32_t value = 3;
  int count = 64;
  void* arguments[] = {&out.pointer, &value, &count};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = b;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 64;
  params.kernelParams = arguments;
  CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  CUDA_KERNEL_NODE_PARAMS read{};
  CU(cuGraphKernelNodeGetParams(node, &read));
  printf("the node's function: %s\n", read.func == b ? "the second" : read.func == a ? "the first" : "another");
  CU(cuGraphDestroy(graph));
  fill_with(a, 4);
  fill_with(b, 5);
  other.link().done();
}

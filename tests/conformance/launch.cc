// Launches: arguments, dimensions, shared memory, what is refused at once.
#include "tests/conformance/case.h"

namespace {
struct Kernels {
  Gpu gpu;
  Module module{"kernels.fatbin"};
  CUfunction get(const char* name) const { return module.function(name); }
};
}  // namespace

static CUresult launch(CUfunction function, Dim grid, Dim block, unsigned shared, CUstream stream, void** arguments, void** extra = nullptr) {
  return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, extra);
}

CASE(values_reach_the_kernel) {
  Kernels kernels;
  DeviceArray<uint32_t> out(64);
  SHOW(try_launch(kernels.get("fill"), {2}, {32}, 0, nullptr, out.pointer, 1000u, 64));
  printf("%u %u\n", out.read()[0], out.read()[63]);
}

CASE(arguments_are_copied_at_the_call) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  uint32_t value = 7;
  int count = 4;
  void* arguments[] = {&out.pointer, &value, &count};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, arguments));
  value = 9;
  count = 0;
  printf("%u\n", out.read()[3]);
}

CASE(packed_arguments) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  struct {
    CUdeviceptr out;
    uint32_t value;
    int count;
  } packed{out.pointer, 70, 4};
  size_t size = sizeof(packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr, extra));
  printf("%u\n", out.read()[3]);
}

CASE(packed_and_single_arguments_at_once) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  char packed[16] = {};
  size_t size = sizeof(packed);
  uint32_t value = 1;
  int count = 4;
  void* arguments[] = {&out.pointer, &value, &count};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, arguments, extra));
}

CASE(packed_arguments_too_few) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  size_t size = 8;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &out.pointer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr, extra));
  SHOW(cuCtxSynchronize());
}

CASE(packed_arguments_too_many) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  char packed[400] = {};
  std::memcpy(packed, &out.pointer, sizeof(out.pointer));
  size_t size = sizeof(packed);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr, extra));
  SHOW(cuCtxSynchronize());
}

CASE(packed_arguments_malformed) {
  Kernels kernels;
  char packed[16] = {};
  size_t size = sizeof(packed);
  void* no_buffer[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr, no_buffer));
  void* no_size[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr, no_size));
  void* unknown[] = {reinterpret_cast<void*>(9), packed, CU_LAUNCH_PARAM_END};
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr, unknown));
}

CASE(no_arguments_where_some_are_needed) {
  Kernels kernels;
  SHOW(launch(kernels.get("fill"), {1}, {4}, 0, nullptr, nullptr));
}

CASE(zero_dimensions) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  CUfunction fill = kernels.get("fill");
  SHOW(try_launch(fill, {0}, {4}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1, 0}, {4}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1, 1, 0}, {4}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {0}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {4, 0}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {4, 1, 0}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(cuCtxSynchronize());
}

CASE(too_large_blocks) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  CUfunction fill = kernels.get("fill");
  SHOW(try_launch(fill, {1}, {1024}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {1025}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {1, 1025}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {1, 1, 64}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {1, 1, 65}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {32, 33}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(try_launch(fill, {1}, {65536, 65536, 65536}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(cuCtxSynchronize());
}

CASE(more_threads_than_launch_bounds) {
  Kernels kernels;
  DeviceArray<int> out(512);
  SHOW(try_launch(kernels.get("bounded"), {1}, {256}, 0, nullptr, out.pointer));
  SHOW(try_launch(kernels.get("bounded"), {1}, {257}, 0, nullptr, out.pointer));
  SHOW(try_launch(kernels.get("bounded"), {1}, {512}, 0, nullptr, out.pointer));
  SHOW(try_launch(kernels.get("bounded"), {1}, {2000}, 0, nullptr, out.pointer));
  SHOW(cuCtxSynchronize());
}

CASE(too_large_grids) {
  Kernels kernels;
  DeviceArray<uint32_t> out(4);
  CUfunction fill = kernels.get("fill");
  SHOW(try_launch(fill, {0x80000000u}, {1}, 0, nullptr, out.pointer, 1u, 0));
  SHOW(try_launch(fill, {1, 65535}, {1}, 0, nullptr, out.pointer, 1u, 0));
  SHOW(try_launch(fill, {1, 65536}, {1}, 0, nullptr, out.pointer, 1u, 0));
  SHOW(try_launch(fill, {1, 1, 65536}, {1}, 0, nullptr, out.pointer, 1u, 0));
  SHOW(try_launch(fill, {0xffffffffu, 0xffffffffu, 0xffffffffu}, {1}, 0, nullptr, out.pointer, 1u, 0));
  SHOW(cuCtxSynchronize());
}

CASE(shared_memory_over_the_default_limit) {
  Kernels kernels;
  DeviceArray<int> out(1);
  CUfunction function = kernels.get("dynamic_shared");
  SHOW(try_launch(function, {1}, {32}, 49152, nullptr, out.pointer, 100));
  SHOW(try_launch(function, {1}, {32}, 49153, nullptr, out.pointer, 100));
  SHOW(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
  SHOW(try_launch(function, {1}, {32}, 65536, nullptr, out.pointer, 16384));
  printf("%d\n", out.read()[0]);
  SHOW(try_launch(function, {1}, {32}, 65537, nullptr, out.pointer, 100));
  SHOW(cuCtxSynchronize());
}

CASE(shared_memory_beyond_the_device) {
  Kernels kernels;
  DeviceArray<int> out(1);
  SHOW(try_launch(kernels.get("dynamic_shared"), {1}, {32}, 1u << 30, nullptr, out.pointer, 100));
  SHOW(try_launch(kernels.get("dynamic_shared"), {1}, {32}, 0xffffffffu, nullptr, out.pointer, 100));
}

CASE(static_and_dynamic_shared_memory_together) {
  Kernels kernels;
  DeviceArray<float> a(256), b(256), c(256);
  CU(cuMemsetD8(a.pointer, 0, a.bytes()));
  CU(cuMemsetD8(b.pointer, 0, b.bytes()));
  SHOW(try_launch(kernels.get("matmul"), {1}, {16, 16}, 49152 - 2048, nullptr, a.pointer, b.pointer, c.pointer, 16));
  SHOW(try_launch(kernels.get("matmul"), {1}, {16, 16}, 49152 - 2047, nullptr, a.pointer, b.pointer, c.pointer, 16));
  SHOW(cuCtxSynchronize());
}

CASE(null_function) {
  Gpu gpu;
  SHOW(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

CASE(null_function_and_bad_dimensions) {
  Gpu gpu;
  SHOW(cuLaunchKernel(nullptr, 0, 0, 0, 0, 0, 0, 0, nullptr, nullptr, nullptr));
}

CASE(big_parameters) {
  Kernels kernels;
  struct Big {
    int values[900];
  } big;
  for (int i = 0; i < 900; ++i) big.values[i] = i;
  DeviceArray<int> out(900);
  SHOW(try_launch(kernels.get("big_params"), {8}, {128}, 0, nullptr, big, out.pointer));
  printf("%d %d\n", out.read()[0], out.read()[899]);
}

CASE(mixed_parameters) {
  Kernels kernels;
  struct Mixed {
    char c;
    double d;
    short s;
    float f[3];
    long long l;
  } mixed{3, 2.5, 4, {1, 2, 3}, 1ll << 40};
  DeviceArray<int> in(std::vector<int>{10, 20});
  DeviceArray<long long> out(9);
  SHOW(try_launch(kernels.get("mixed_params"), {1}, {1}, 0, nullptr, static_cast<char>(-5), mixed, static_cast<short>(-300), in.pointer, 1.25,
                  out.pointer));
  for (long long value : out.read()) printf("%lld ", value);
  printf("\n");
}

CASE(large_grid_in_three_dimensions) {
  Kernels kernels;
  DeviceArray<uint32_t> out(8);
  SHOW(try_launch(kernels.get("fill"), {2, 3, 4}, {2, 2, 2}, 0, nullptr, out.pointer, 5u, 8));
  printf("%u %u\n", out.read()[0], out.read()[3]);
}

CASE(order_in_one_stream) {
  Kernels kernels;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(32, 1));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUfunction step = kernels.get("step");
  for (uint32_t i = 1; i <= 20; ++i) LAUNCH(step, {1}, {32}, 0, stream, data.pointer, 3u, i, 32);
  SHOW(cuStreamSynchronize(stream));
  printf("%u\n", data.read()[31]);
  CU(cuStreamDestroy(stream));
}

CASE(cooperative) {
  Kernels kernels;
  DeviceArray<uint32_t> out(64);
  uint32_t value = 3;
  int count = 64;
  void* arguments[] = {&out.pointer, &value, &count};
  CUfunction fill = kernels.get("fill");
  SHOW(cuLaunchCooperativeKernel(fill, 2, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  printf("%u\n", out.read()[63]);
  SHOW(cuLaunchCooperativeKernel(fill, 1000000, 1, 1, 1024, 1, 1, 0, nullptr, arguments));
  SHOW(cuLaunchCooperativeKernel(fill, 0, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  SHOW(cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  SHOW(cuLaunchCooperativeKernel(fill, 2, 1, 1, 32, 1, 1, 0, nullptr, nullptr));
}

CASE(unloaded_module) {
  Gpu gpu;
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction fill = nullptr;
  CU(cuModuleGetFunction(&fill, module, "fill"));
  DeviceArray<uint32_t> out(4);
  LAUNCH(fill, {1}, {4}, 0, nullptr, out.pointer, 1u, 4);
  SHOW(cuModuleUnload(module));
  printf("%u\n", out.read()[3]);
}

FAULTING_CASE(store_out_of_bounds) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction poke = module.function("poke");
  SHOW(try_launch(poke, {1}, {1}, 0, nullptr, CUdeviceptr{1} << 46, 1u));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(nullptr));
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, 0));
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, 0));
  SHOW(try_launch(poke, {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
  CUdevice device = -1;
  SHOW(cuCtxGetDevice(&device));
  SHOW(cuCtxPopCurrent(nullptr));
  SHOW(cuDeviceGetCount(&device));
  fflush(stdout);
  _exit(0);
}

FAULTING_CASE(misaligned_store) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64));
  SHOW(try_launch(module.function("poke"), {1}, {1}, 0, nullptr, memory + 2, 1u));
  SHOW(cuCtxSynchronize());
  SHOW(cuMemFree(memory));
  fflush(stdout);
  _exit(0);
}

FAULTING_CASE(fault_seen_by_a_copy) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64));
  SHOW(try_launch(module.function("poke"), {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
  char bytes[64];
  SHOW(cuMemcpyDtoH(bytes, memory, 64));
  SHOW(cuMemcpyDtoH(bytes, memory, 64));
  SHOW(cuMemsetD8(memory, 0, 64));
  fflush(stdout);
  _exit(0);
}

FAULTING_CASE(fault_seen_by_an_event) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(try_launch(module.function("poke"), {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
  const CUresult recorded = cuEventRecord(event, nullptr);
  printf("record: %s\n", recorded == CUDA_SUCCESS || recorded == CUDA_ERROR_ILLEGAL_ADDRESS ? "as it comes" : code_name(recorded));
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
  SHOW(cuEventDestroy(event));
  fflush(stdout);
  _exit(0);
}

FAULTING_CASE(primary_context_reset_after_a_fault) {
  Gpu gpu;
  Module module("kernels.fatbin");
  SHOW(try_launch(module.function("poke"), {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
  SHOW(cuCtxSynchronize());
  SHOW(cuDevicePrimaryCtxReset(gpu.device));
  fflush(stdout);
  _exit(0);
}

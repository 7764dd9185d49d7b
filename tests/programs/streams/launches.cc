// Ways to pass kernel arguments: pointers, a packed buffer, structs with padding, 3600 bytes,
// launch attributes, cooperative.
#include "tests/programs/common.h"

struct Mixed {
  char c;
  double d;
  short s;
  float f[3];
  long long l;
};
struct Big {
  int values[900];
};

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  CUfunction mixed = module.function("mixed_params");
  const int count = 1000;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(count, 3));

  struct {
    CUdeviceptr data;
    uint32_t factor, addend;
    int count;
  } packed = {data.pointer, 3, 4, count};
  size_t size = 20;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  SHOW(cuLaunchKernel(step, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  void* one = &packed;
  SHOW(cuLaunchKernel(step, 4, 1, 1, 256, 1, 1, 0, nullptr, &one, extra));
  print_hash("packed", data.read());

  Mixed m = {'m', 1234.5, -77, {1, 2, 3}, 0x1122334455667788ll};
  DeviceArray<int> in(std::vector<int>{10, 20, 30});
  DeviceArray<long long> out(9);
  LAUNCH(mixed, {1}, {32}, 0, nullptr, 'c', m, static_cast<short>(-5), in.pointer, 6.789,
         out.pointer);
  for (long long value : out.read()) printf("%lld ", value);
  printf("\n");
  for (size_t i = 0; i < 7; ++i) {
    size_t offset = 0, bytes = 0;
    CUresult code = cuFuncGetParamInfo(mixed, i, &offset, &bytes);
    printf("parameter %zu: %s %zu %zu\n", i, code_name(code), offset, bytes);
  }

  Big big;
  for (int i = 0; i < 900; ++i) big.values[i] = i * i;
  DeviceArray<int> big_out(900);
  LAUNCH(module.function("big_params"), {4}, {256}, 0, nullptr, big, big_out.pointer);
  print_hash("big", big_out.read());

  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = 0;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[1].value.programmaticStreamSerializationAllowed = 0;
  CUlaunchConfig config = {};
  config.gridDimX = 4, config.gridDimY = 1, config.gridDimZ = 1;
  config.blockDimX = 256, config.blockDimY = 1, config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  CUdeviceptr pointer = data.pointer;
  uint32_t factor = 5, addend = 6;
  int number = count;
  void* args[] = {&pointer, &factor, &addend, &number};
  SHOW(cuLaunchKernelEx(&config, step, args, nullptr));
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  config.numAttrs = 1;
  SHOW(cuLaunchKernelEx(&config, step, args, nullptr));
  SHOW(cuLaunchCooperativeKernel(step, 4, 1, 1, 256, 1, 1, 0, stream, args));
  CU(cuStreamSynchronize(stream));
  print_hash("attributes", data.read());
  // Three dimensions.
  LAUNCH(module.function("fill"), {1, 1, 1}, {10, 5, 2}, 0, stream, data.pointer, 9u, 10);
  CU(cuStreamSynchronize(stream));
  print_hash("3D", data.read());
  SHOW(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, args, nullptr));
  // Many small launches.
  for (uint32_t i = 0; i < 2000; ++i)
    LAUNCH(step, {1}, {32}, 0, stream, data.pointer, 2 * i + 1, i, 32);
  CU(cuStreamSynchronize(stream));
  print_hash("many", data.read());
  CU(cuStreamDestroy(stream));
  return 0;
}

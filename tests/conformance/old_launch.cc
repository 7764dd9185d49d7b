// The launch interface of CUDA 3: settings in the function, then a launch of a grid.
#include "tests/conformance/case.h"

namespace {

struct OldKernel : Gpu {
  Module module{"kernels.fatbin"};
  CUfunction fill = module.function("fill");
  DeviceArray<uint32_t> out{64};
  // fill(uint32_t* out, uint32_t value, int count)
  void set_parameters(uint32_t value, int count) {
    CU(cuParamSetSize(fill, 16));
    CU(cuParamSetv(fill, 0, &out.pointer, sizeof out.pointer));
    CU(cuParamSeti(fill, 8, value));
    CU(cuParamSeti(fill, 12, static_cast<unsigned>(count)));
  }
  void show(const char* what) {
    CU(cuCtxSynchronize());
    print_hash(what, out.read());
  }
  void clear() {
    CU(cuMemsetD32(out.pointer, 0, 64));
    CU(cuCtxSynchronize());
  }
};

}  // namespace

CASE(one_block) {
  OldKernel k;
  k.clear();
  CU(cuFuncSetBlockShape(k.fill, 32, 1, 1));
  k.set_parameters(7, 64);
  SHOW(cuLaunch(k.fill));
  k.show("out");
}

CASE(a_grid) {
  OldKernel k;
  k.clear();
  CU(cuFuncSetBlockShape(k.fill, 16, 1, 1));
  k.set_parameters(100, 64);
  SHOW(cuLaunchGrid(k.fill, 4, 1));
  k.show("out");
}

CASE(a_grid_in_a_stream) {
  OldKernel k;
  k.clear();
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuFuncSetBlockShape(k.fill, 8, 1, 1));
  k.set_parameters(1000, 60);
  SHOW(cuLaunchGridAsync(k.fill, 8, 1, stream));
  CU(cuStreamSynchronize(stream));
  k.show("out");
  CU(cuStreamDestroy(stream));
}

CASE(parameters_stay_for_the_next_launch) {
  OldKernel k;
  k.clear();
  CU(cuFuncSetBlockShape(k.fill, 16, 1, 1));
  k.set_parameters(5, 64);
  CU(cuLaunchGrid(k.fill, 1, 1));
  k.show("first");
  CU(cuParamSeti(k.fill, 8, 50));
  CU(cuLaunchGrid(k.fill, 2, 1));
  k.show("second");
}

CASE(a_launch_takes_the_parameters_of_its_time) {
  OldKernel k;
  k.clear();
  CU(cuFuncSetBlockShape(k.fill, 64, 1, 1));
  k.set_parameters(1, 64);
  CU(cuLaunch(k.fill));
  k.set_parameters(2, 0);  // the launch above has its own
  k.show("out");
}

CASE(float_parameter) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction saxpy = module.function("saxpy");
  std::vector<float> ones(32, 1.0f), twos(32, 2.0f);
  DeviceArray<float> x(ones), y(twos);
  CU(cuFuncSetBlockShape(saxpy, 32, 1, 1));
  CU(cuParamSetSize(saxpy, 28));
  CU(cuParamSetf(saxpy, 0, 2.5f));
  CU(cuParamSetv(saxpy, 8, &x.pointer, 8));
  CU(cuParamSetv(saxpy, 16, &y.pointer, 8));
  CU(cuParamSeti(saxpy, 24, 32));
  SHOW(cuLaunch(saxpy));
  CU(cuCtxSynchronize());
  printf("%g\n", static_cast<double>(y.read()[31]));
}

CASE(shared_memory) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction sum = module.function("block_sum");
  std::vector<float> ones(128, 1.0f);
  DeviceArray<float> in(ones), out(1);
  const int count = 128;
  CU(cuFuncSetBlockShape(sum, 64, 1, 1));
  SHOW(cuFuncSetSharedSize(sum, 64 * sizeof(float)));
  CU(cuParamSetSize(sum, 20));
  CU(cuParamSetv(sum, 0, &in.pointer, 8));
  CU(cuParamSetv(sum, 8, &out.pointer, 8));
  CU(cuParamSeti(sum, 16, count));
  SHOW(cuLaunch(sum));
  CU(cuCtxSynchronize());
  printf("%g\n", static_cast<double>(out.read()[0]));
}

CASE(block_shape_bad_arguments) {
  OldKernel k;
  SHOW(cuFuncSetBlockShape(k.fill, 0, 1, 1));
  SHOW(cuFuncSetBlockShape(k.fill, 1, 0, 1));
  SHOW(cuFuncSetBlockShape(k.fill, 1, 1, 0));
  SHOW(cuFuncSetBlockShape(k.fill, -1, 1, 1));
  SHOW(cuFuncSetBlockShape(nullptr, 1, 1, 1));
}

CASE(block_shape_too_large) {
  OldKernel k;
  k.set_parameters(1, 64);
  SHOW(cuFuncSetBlockShape(k.fill, 2048, 1, 1));
  SHOW(cuLaunch(k.fill));
}

CASE(block_shape_at_the_limit) {
  OldKernel k;
  k.clear();
  k.set_parameters(1, 64);
  SHOW(cuFuncSetBlockShape(k.fill, 1024, 1, 1));
  SHOW(cuLaunch(k.fill));
  k.show("out");
}

CASE(shared_size_bad_arguments) {
  OldKernel k;
  SHOW(cuFuncSetSharedSize(nullptr, 16));
  SHOW(cuFuncSetSharedSize(k.fill, 0));
}

CASE(parameter_size_bad_arguments) {
  OldKernel k;
  SHOW(cuParamSetSize(nullptr, 16));
  SHOW(cuParamSetSize(k.fill, 0));
  SHOW(cuParamSetSize(k.fill, 16));
  SHOW(cuParamSetSize(k.fill, 1u << 20));
}

CASE(parameter_bad_arguments) {
  OldKernel k;
  int value = 1;
  SHOW(cuParamSeti(nullptr, 0, 1));
  SHOW(cuParamSetf(nullptr, 0, 1.0f));
  SHOW(cuParamSetv(nullptr, 0, &value, 4));
  SHOW(cuParamSetv(k.fill, 0, &value, 0));
}

CASE(launch_bad_arguments) {
  OldKernel k;
  k.set_parameters(1, 0);
  SHOW(cuLaunch(nullptr));
  SHOW(cuLaunchGrid(nullptr, 1, 1));
  SHOW(cuLaunchGrid(k.fill, 0, 1));
  SHOW(cuLaunchGrid(k.fill, 1, 0));
  SHOW(cuLaunchGrid(k.fill, -1, 1));
  SHOW(cuLaunchGridAsync(nullptr, 1, 1, nullptr));
}

CASE(launch_without_a_block_shape) {
  OldKernel k;
  k.clear();
  k.set_parameters(9, 64);
  SHOW(cuLaunch(k.fill));
  k.show("out");
}

CASE(without_a_context) {
  CU(cuInit(0));
  SHOW(cuFuncSetBlockShape(nullptr, 1, 1, 1));
  SHOW(cuFuncSetSharedSize(nullptr, 1));
  SHOW(cuParamSetSize(nullptr, 1));
  SHOW(cuLaunch(nullptr));
  SHOW(cuLaunchGrid(nullptr, 1, 1));
  SHOW(cuLaunchGridAsync(nullptr, 1, 1, nullptr));
}

CASE(texture_reference_bad_arguments) {
  OldKernel k;
  SHOW(cuParamSetTexRef(k.fill, CU_PARAM_TR_DEFAULT, nullptr));
  SHOW(cuParamSetTexRef(k.fill, 0, nullptr));
  SHOW(cuParamSetTexRef(nullptr, CU_PARAM_TR_DEFAULT, nullptr));
}

namespace {

struct Cooperative : OldKernel {
  CUstream stream = nullptr;
  uint32_t value = 3;
  int count = 64;
  void* arguments[3] = {&out.pointer, &value, &count};
  CUDA_LAUNCH_PARAMS params{};
  Cooperative() {
    CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    params.function = fill;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = 64;
    params.blockDimY = params.blockDimZ = 1;
    params.hStream = stream;
    params.kernelParams = arguments;
  }
  ~Cooperative() { CU(cuStreamDestroy(stream)); }
};

}  // namespace

CASE(cooperative_on_one_device) {
  Cooperative c;
  c.clear();
  SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 1, 0));
  CU(cuStreamSynchronize(c.stream));
  c.show("out");
}

CASE(cooperative_flags) {
  Cooperative c;
  for (unsigned flags : {1u, 2u, 3u, 4u}) SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 1, flags));
  CU(cuStreamSynchronize(c.stream));
}

CASE(cooperative_bad_arguments) {
  Cooperative c;
  SHOW(cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0));
  SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 0, 0));
  SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 1000, 0));
}

CASE(cooperative_in_a_default_stream) {
  Cooperative c;
  c.params.hStream = nullptr;
  SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 1, 0));
  c.params.hStream = CU_STREAM_LEGACY;
  SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 1, 0));
  c.params.hStream = CU_STREAM_PER_THREAD;
  SHOW(cuLaunchCooperativeKernelMultiDevice(&c.params, 1, 0));
}

TWO_DEVICES_CASE(cooperative_twice_on_one_device) {
  Cooperative c;
  CUDA_LAUNCH_PARAMS both[2] = {c.params, c.params};
  SHOW(cuLaunchCooperativeKernelMultiDevice(both, 2, 0));
}

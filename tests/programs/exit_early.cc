// A program that ends with work in flight and nothing freed: its exit code and output must be its
// own.
#include "tests/programs/common.h"

static void at_exit() {
  // Programs do this in their exit handlers and static destructors: it must not crash or hang.
  CUdevice device = 0;
  CUresult code = cuDeviceGet(&device, 0);
  printf("at exit: %s\n",
         code == CUDA_SUCCESS || code == CUDA_ERROR_DEINITIALIZED ? "answered" : code_name(code));
}

int main() {
  atexit(at_exit);
  CU(cuInit(0));
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CUmodule module;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction slow;
  CU(cuModuleGetFunction(&slow, module, "slow_step"));
  CUdeviceptr data;
  CU(cuMemAlloc(&data, 4096));
  for (int i = 0; i < 50; ++i) LAUNCH(slow, {4}, {256}, 0, nullptr, data, 3u, 1u, 1024, 100);
  printf("leaving\n");
  return 7;
}

// A kernel that stores to a wild address: the error comes at the next synchronising call and stays.
#include "tests/programs/common.h"

int main() {
  CU(cuInit(0));
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CUmodule module;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction poke;
  CU(cuModuleGetFunction(&poke, module, "poke"));
  CUdeviceptr good;
  CU(cuMemAlloc(&good, 64));
  LAUNCH(poke, {1}, {1}, 0, nullptr, good, 42u);
  SHOW(cuCtxSynchronize());
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr wild = 0x7ddd00000000ull;
  SHOW(try_launch(poke, {1}, {1}, 0, stream, wild, 42u));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuCtxSynchronize());
  uint32_t value = 0;
  SHOW(cuMemcpyDtoH(&value, good, 4));
  CUdeviceptr more;
  SHOW(cuMemAlloc(&more, 64));
  SHOW(cuStreamQuery(stream));
  return 0;
}

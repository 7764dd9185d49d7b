// A driver-API program that computes one thing and checks it, with a stamp after each phase of its
// start.
//
//   driver_start IMAGE      IMAGE: kernel.fatbin beside it
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernel.h"
#include "stamps.h"

static void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const char* name = "unknown";
  cuGetErrorName(code, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define CU(call) check((call), #call)

int main(int argc, char** argv) {
  Stamps stamps;
  stamps.mark("main");
  if (argc != 2) return 2;
  CU(cuInit(0));
  stamps.mark("init");
  CUdevice device;
  CUcontext context;
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  stamps.mark("context");
  std::ifstream file(argv[1], std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  CUmodule module;
  CUfunction kernel;
  CU(cuModuleLoadData(&module, image.c_str()));
  CU(cuModuleGetFunction(&kernel, module, "combine"));
  stamps.mark("module");
  std::vector<uint32_t> a(kCount), b(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = input_a(i), b[i] = input_b(i);
  CUdeviceptr da, db, dout;
  CU(cuMemAlloc(&da, kCount * 4));
  CU(cuMemAlloc(&db, kCount * 4));
  CU(cuMemAlloc(&dout, kCount * 4));
  CU(cuMemcpyHtoD(da, a.data(), kCount * 4));
  CU(cuMemcpyHtoD(db, b.data(), kCount * 4));
  stamps.mark("memory");
  int count = kCount;
  void* arguments[] = {&da, &db, &dout, &count};
  CU(cuLaunchKernel(kernel, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
  CU(cuCtxSynchronize());
  stamps.mark("kernel");
  CU(cuMemcpyDtoH(out.data(), dout, kCount * 4));
  if (!as_expected(out)) return 1;
  stamps.mark("result");
  stamps.print();
  return 0;
}

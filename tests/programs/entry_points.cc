// cuGetProcAddress: versions, the per-thread flag, unknown names; and calls through what it gives.
#include "tests/programs/common.h"

static void look(const char* name, int version, cuuint64_t flags) {
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status = static_cast<CUdriverProcAddressQueryResult>(77);
  CUresult code = cuGetProcAddress(name, &pointer, version, flags, &status);
  // For what is not there the documentation allows success with a null pointer as well as an error:
  // callers look at the pointer.
  bool found = pointer != nullptr;
  printf("%s %d %llu: %s, status %d\n", name, version, static_cast<unsigned long long>(flags),
         found ? code_name(code) : "null", static_cast<int>(status));
}

int main() {
  const char* names[] = {"cuInit",
                         "cuMemAlloc",
                         "cuMemcpyHtoDAsync",
                         "cuLaunchKernel",
                         "cuLaunchKernelEx",
                         "cuGetProcAddress",
                         "cuGraphInstantiate",
                         "cuCtxCreate",
                         "cuStreamGetCaptureInfo",
                         "cuEventElapsedTime",
                         "cuCtxGetDevice"};
  for (const char* name : names)
    for (int version : {2000, 3020, 7000, 9000, 11000, 11040, 12000, 12050, 13000})
      for (cuuint64_t flags : {0, 1, 2}) look(name, version, flags);
  look("cuNoSuchThing", 13000, 0);
  look("cuInit", 99000, 0);
  look("cuMemAlloc_v2", 13000, 0);

  void* pointer = nullptr;
  CU(cuGetProcAddress("cuInit", &pointer, 2000, 0, nullptr));
  SHOW(reinterpret_cast<CUresult (*)(unsigned)>(pointer)(0));
  Gpu gpu;
  CU(cuGetProcAddress("cuMemAlloc", &pointer, 13000, 0, nullptr));
  CUdeviceptr memory = 0;
  SHOW(reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(pointer)(&memory, 256));
  CU(cuMemFree(memory));
  return 0;
}

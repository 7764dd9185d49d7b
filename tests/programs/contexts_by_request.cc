// A context for each request, for more requests than the progress words that a process has: with
// work on its legacy stream and on a stream that is destroyed with work left, and the next one
// begins where the last one ended.
#include "tests/programs/common.h"

int main() {
  CU(cuInit(0));
  CUdevice device = 0;
  CU(cuDeviceGet(&device, 0));
  for (int round = 0; round < 8300; ++round) {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr memory = 0;
    CU(cuCtxCreate(&context, nullptr, 0, device));
    CU(cuMemAlloc(&memory, 4));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemsetD32Async(memory, round, 1, stream));
    CU(cuStreamDestroy(stream));
    CU(cuMemsetD32Async(memory, round, 1, nullptr));
    CU(cuCtxSynchronize());
    CU(cuCtxDestroy(context));
  }
  printf("all requests\n");
  return 0;
}

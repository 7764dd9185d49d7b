// A program in which a check of the hook's own fails. The hook is linked in: no call of CUDA's
// reaches a check that fails.
//
// Prints the results of its calls before and after, and what a thread gets that stands in a
// synchronise meanwhile.
#include <cuda.h>

#include <cstdio>
#include <thread>

#include "base/check.h"

int main() {
  CUdevice device;
  CUcontext context;
  CUstream stream;
  CUdeviceptr word = 0, other = 0;
  CUresult made = cuInit(0);
  if (made == CUDA_SUCCESS) made = cuDeviceGet(&device, 0);
  if (made == CUDA_SUCCESS) made = cuDevicePrimaryCtxRetain(&context, device);
  if (made == CUDA_SUCCESS) made = cuCtxSetCurrent(context);
  if (made == CUDA_SUCCESS) made = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (made == CUDA_SUCCESS) made = cuMemAlloc(&word, 4);
  if (made == CUDA_SUCCESS) made = cuMemsetD32(word, 0, 1);
  if (made == CUDA_SUCCESS) made = cuStreamWaitValue32(stream, word, 1, 0);
  std::printf("before %d\n", made);

  CUresult waited = CUDA_SUCCESS;
  std::thread waits([&] {
    (void)cuCtxSetCurrent(context);
    waited = cuStreamSynchronize(stream);
  });
  const bool held = TUBE_EXPECT(word == 0), again = TUBE_EXPECT(word == 0);
  waits.join();
  std::printf("checks %d %d\n", held, again);
  std::printf("a wait of another thread %d\n", waited);
  std::printf("after %d %d %d\n", cuMemAlloc(&other, 4), cuCtxSynchronize(),
              cuMemsetD32(word, 0, 1));
  std::printf("the program goes on\n");
  return 0;
}

// A function that works without end, in steps: the victim of the kill test and a load for others.
// One argument: how many steps (0: for ever). Prints a line when it has started, and its result
// when it ends by itself.
#include "tests/programs/common.h"

int main(int argc, char** argv) {
  long steps = argc > 1 ? atol(argv[1]) : 0;
  Gpu gpu;
  Module module("kernels.fatbin");
  Module state("globals.fatbin");
  CUfunction step = module.function("step");
  CUfunction bump = state.function("bump");
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint32_t* pinned = nullptr;
  CU(cuMemAllocHost(reinterpret_cast<void**>(&pinned), 1 << 16));
  printf("started\n");
  fflush(stdout);
  uint64_t hash = 0;
  for (long i = 0; steps == 0 || i < steps; ++i) {
    CUdeviceptr data;
    CUevent event;
    size_t count = 1024 + static_cast<size_t>(i % 7) * 500;
    CU(cuMemAlloc(&data, count * 4));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuMemsetD32Async(data, static_cast<unsigned>(i), count, stream));
    for (uint32_t k = 0; k < 4; ++k) LAUNCH(step, {4}, {256}, 0, stream, data, 2 * k + 3, k, 1024);
    LAUNCH(bump, {1}, {32}, 0, stream, 1);
    CU(cuEventRecord(event, stream));
    CU(cuMemcpyDtoHAsync(pinned, data, 4096, stream));
    CU(cuStreamSynchronize(stream));
    hash = hash * 31 + hash_bytes(pinned, 4096);
    CU(cuEventDestroy(event));
    CU(cuMemFree(data));
  }
  printf("steps %ld, %016llx\n", steps, static_cast<unsigned long long>(hash));
  CU(cuMemFreeHost(pinned));
  CU(cuStreamDestroy(stream));
  return 0;
}

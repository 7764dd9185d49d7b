// A thread's own default stream ends with its context, and with the thread; whichever is first, it
// is only that stream that ends.
#include <barrier>
#include <thread>

#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  constexpr uint32_t kCount = 32;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(kCount, 1));
  for (int round = 0; round < 4; ++round) {
    CUcontext context;
    CU(cuCtxCreate(&context, nullptr, 0, gpu.device));
    std::barrier in_turn(2);
    std::thread other([&] {
      CU(cuCtxSetCurrent(context));
      CUevent event;
      CU(cuEventCreate(&event, 0));
      CU(cuEventRecord(event, CU_STREAM_PER_THREAD));
      CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
      CU(cuEventDestroy(event));
      in_turn.arrive_and_wait();
      in_turn.arrive_and_wait();  // the context is gone, and others' streams have come
    });
    in_turn.arrive_and_wait();
    CU(cuCtxDestroy(context));
    CU(cuCtxSetCurrent(gpu.context));
    CUstream streams[16];
    for (CUstream& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    in_turn.arrive_and_wait();
    other.join();
    for (CUstream stream : streams) {
      LAUNCH(step, {1}, {kCount}, 0, stream, data.pointer, 3u, 1u, kCount);
      CU(cuStreamSynchronize(stream));
      CU(cuStreamDestroy(stream));
    }
  }
  print_hash("steps", data.read());
  return 0;
}

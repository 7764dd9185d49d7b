// Two threads feed one stream in turns they agree on: the order in which calls return is the order
// in which work runs.
#include "tests/programs/common.h"

#include <pthread.h>

#include <atomic>

static CUcontext context;
static CUfunction step;
static CUstream stream;
static CUdeviceptr data;
static std::atomic<int> turn{0};
static const int kTurns = 200;
static const int kCount = 512;

static void* work(void* argument) {
  int self = *static_cast<int*>(argument);
  CU(cuCtxSetCurrent(context));
  for (int i = self; i < kTurns; i += 2) {
    while (turn.load(std::memory_order_acquire) != i) sched_yield();
    LAUNCH(step, {2}, {256}, 0, stream, data, static_cast<uint32_t>(2 * i + 1),
           static_cast<uint32_t>(self + i), kCount);
    turn.store(i + 1, std::memory_order_release);
  }
  return nullptr;
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  context = gpu.context;
  step = module.function("step");
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  DeviceArray<uint32_t> array(std::vector<uint32_t>(kCount, 1));
  data = array.pointer;
  pthread_t threads[2];
  int selves[2] = {0, 1};
  for (int i = 0; i < 2; ++i) EXPECT(pthread_create(&threads[i], nullptr, work, &selves[i]) == 0);
  for (pthread_t thread : threads) EXPECT(pthread_join(thread, nullptr) == 0);
  CU(cuStreamSynchronize(stream));
  std::vector<uint32_t> result = array.read();
  uint32_t expected = 1;
  for (int i = 0; i < kTurns; ++i)
    expected = expected * (2 * i + 1) + static_cast<uint32_t>(i % 2 + i);
  EXPECT(result[0] == expected && result[kCount - 1] == expected);
  print_hash("turns", result);
  CU(cuStreamDestroy(stream));
  return 0;
}

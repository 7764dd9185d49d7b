// Eight threads, each with its own stream, module lookups, allocations and copies; results gathered
// in thread order.
#include "tests/programs/common.h"

#include <pthread.h>

static const int kThreads = 8;
static const int kCount = 4096;

struct Job {
  CUcontext context;
  CUfunction step;
  int index;
  uint64_t hash;
};

static void* work(void* argument) {
  auto* job = static_cast<Job*>(argument);
  CU(cuCtxSetCurrent(job->context));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Random random(100 + job->index);
  std::vector<uint32_t> host(kCount);
  for (uint32_t& value : host) value = random.next();
  uint64_t hash = 0;
  for (int round = 0; round < 20; ++round) {
    DeviceArray<uint32_t> data(kCount);
    CU(cuMemcpyHtoDAsync(data.pointer, host.data(), kCount * 4, stream));
    for (uint32_t i = 0; i < 5; ++i)
      LAUNCH(job->step, {16}, {256}, 0, stream, data.pointer, 2 * i + 3, i + job->index, kCount);
    CU(cuMemcpyDtoHAsync(host.data(), data.pointer, kCount * 4, stream));
    CU(cuStreamSynchronize(stream));
    hash = hash * 31 + hash_of(host);
  }
  CU(cuStreamDestroy(stream));
  job->hash = hash;
  return nullptr;
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  Job jobs[kThreads];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    jobs[i] = {gpu.context, module.function("step"), i, 0};
    EXPECT(pthread_create(&threads[i], nullptr, work, &jobs[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    EXPECT(pthread_join(threads[i], nullptr) == 0);
    printf("thread %d: %016llx\n", i, static_cast<unsigned long long>(jobs[i].hash));
  }
  return 0;
}

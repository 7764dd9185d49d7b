// Compiled for the per-thread default stream: stream 0 means one stream per thread (the _ptsz and
// _ptds entry points).
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include "tests/programs/common.h"

#include <pthread.h>

struct Job {
  CUcontext context;
  CUfunction slow;
  int index;
  uint64_t hash;
};

static void* work(void* argument) {
  auto* job = static_cast<Job*>(argument);
  CU(cuCtxSetCurrent(job->context));
  const int count = 1024;
  std::vector<uint32_t> host(count, static_cast<uint32_t>(job->index));
  DeviceArray<uint32_t> data(count);
  CU(cuMemcpyHtoDAsync(data.pointer, host.data(), count * 4, nullptr));
  for (uint32_t i = 0; i < 30; ++i)
    LAUNCH(job->slow, {4}, {256}, 0, nullptr, data.pointer, 2 * i + 1, i, count, 20);
  CU(cuMemcpyDtoHAsync(host.data(), data.pointer, count * 4, CU_STREAM_PER_THREAD));
  CU(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(nullptr));
  job->hash = hash_of(host);
  CUevent event;
  CU(cuEventCreate(&event, 0));
  CU(cuEventRecord(event, nullptr));
  CU(cuEventSynchronize(event));
  CU(cuEventDestroy(event));
  return nullptr;
}

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  Job jobs[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) {
    jobs[i] = {gpu.context, module.function("slow_step"), i, 0};
    EXPECT(pthread_create(&threads[i], nullptr, work, &jobs[i]) == 0);
  }
  for (pthread_t thread : threads) EXPECT(pthread_join(thread, nullptr) == 0);
  for (const Job& job : jobs)
    printf("thread %d: %016llx\n", job.index, static_cast<unsigned long long>(job.hash));
  return 0;
}

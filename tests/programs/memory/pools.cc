// Stream-ordered allocation: the default pool, an own pool with a threshold, trimming.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const int count = 10000;
  uint64_t hash = 0;
  for (uint32_t round = 0; round < 10; ++round) {
    CUdeviceptr data;
    CU(cuMemAllocAsync(&data, count * 4, stream));
    CU(cuMemsetD32Async(data, round, count, stream));
    LAUNCH(step, {40}, {256}, 0, stream, data, 3u, round, count);
    std::vector<uint32_t> host(count);
    CU(cuMemcpyDtoHAsync(host.data(), data, count * 4, stream));
    CU(cuMemFreeAsync(data, stream));
    CU(cuStreamSynchronize(stream));
    hash = hash * 31 + hash_of(host);
  }
  printf("default pool: %016llx\n", static_cast<unsigned long long>(hash));
  // What is freed is not the program's any more, whoever keeps it.
  CUdeviceptr freed;
  CU(cuMemAllocAsync(&freed, 4096, stream));
  CU(cuMemFreeAsync(freed, stream));
  CU(cuStreamSynchronize(stream));
  printf("freed again: %d", cuMemFree(freed));
  printf(" %d\n", cuMemFreeAsync(freed, stream));

  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool;
  CU(cuMemPoolCreate(&pool, &props));
  cuuint64_t threshold = 1 << 24;
  CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  threshold = 0;
  CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  printf("threshold %llu\n", static_cast<unsigned long long>(threshold));
  CUdeviceptr a, b;
  CU(cuMemAllocFromPoolAsync(&a, 1000, pool, stream));
  CU(cuMemAllocFromPoolAsync(&b, 2000, pool, stream));
  CU(cuMemsetD8Async(a, 7, 1000, stream));
  CU(cuMemcpyDtoDAsync(b, a, 1000, stream));
  unsigned char last = 0;
  CU(cuMemcpyDtoHAsync(&last, b + 999, 1, stream));
  CU(cuStreamSynchronize(stream));
  printf("last %d\n", last);
  CU(cuMemFreeAsync(a, stream));
  CU(cuMemFreeAsync(b, stream));
  CU(cuStreamSynchronize(stream));
  CU(cuMemPoolTrimTo(pool, 0));
  CU(cuMemPoolDestroy(pool));
  CUmemoryPool standard, current;
  CU(cuDeviceGetDefaultMemPool(&standard, gpu.device));
  CU(cuDeviceGetMemPool(&current, gpu.device));
  printf("default pool is %s\n", standard == current ? "current" : "not current");
  CU(cuStreamDestroy(stream));
  return 0;
}

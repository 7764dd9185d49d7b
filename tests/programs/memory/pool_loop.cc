// Loops that allocate and free in stream order, as frameworks do at every step: the same sizes
// again and again, in several streams, with and without synchronising, streams and pools that end
// while memory is freed but not yet back, and memory that is needed for something else.
#include "tests/programs/common.h"

struct Kernels {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("step");
};

// One turn: three buffers, each written by a copy and kernels and read back; the sizes repeat.
static uint64_t turn(const Kernels& kernels, CUstream stream, int number, bool wait) {
  const int count = 1000 + 500 * (number % 3);
  std::vector<uint32_t> values(static_cast<size_t>(count), static_cast<uint32_t>(number));
  CUdeviceptr buffers[3];
  for (int i = 0; i < 3; ++i) {
    CU(cuMemAllocAsync(&buffers[i], static_cast<size_t>(count) * 4, stream));
    CU(cuMemcpyHtoDAsync(buffers[i], values.data(), values.size() * 4, stream));
    LAUNCH(kernels.step, {10}, {256}, 0, stream, buffers[i], 3u, static_cast<unsigned>(i), count);
  }
  EXPECT(buffers[0] != buffers[1] && buffers[1] != buffers[2] && buffers[0] != buffers[2]);
  std::vector<uint32_t> back(values.size() * 3);
  for (size_t i = 0; i < 3; ++i) {
    CU(cuMemcpyDtoHAsync(back.data() + i * values.size(), buffers[i], values.size() * 4, stream));
    CU(cuMemFreeAsync(buffers[i], stream));
  }
  if (wait) CU(cuStreamSynchronize(stream));
  else
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    }
  return hash_of(back);
}

static void loops(const Kernels& kernels) {
  CUstream streams[3] = {nullptr, nullptr, nullptr};
  CU(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&streams[2], CU_STREAM_DEFAULT));
  uint64_t hash = 0;
  for (int number = 0; number < 300; ++number)
    hash = hash * 31 + turn(kernels, streams[number % 3], number, number % 7 != 0);
  printf("loops: %016llx\n", static_cast<unsigned long long>(hash));
  CUmemoryPool pool;
  uint64_t used = 1;
  CU(cuDeviceGetDefaultMemPool(&pool, 0));
  CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  printf("used %llu\n", static_cast<unsigned long long>(used));
  CUdeviceptr last;
  CU(cuMemAllocAsync(&last, 4000, streams[1]));
  CU(cuMemFreeAsync(last, streams[1]));
  CU(cuStreamDestroy(streams[1]));  // with freed memory
  CU(cuStreamDestroy(streams[2]));
  SHOW(cuCtxSynchronize());
  unsigned type = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, last));
  SHOW(cuMemFreeAsync(last, nullptr));
}

static void pool_that_ends(const Kernels& kernels) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  uint64_t hash = 0;
  for (int round = 0; round < 5; ++round) {
    CUmemoryPool pool;
    CU(cuMemPoolCreate(&pool, &props));
    uint64_t threshold = round % 2 == 0 ? UINT64_MAX : 0;
    CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    for (int i = 0; i < 40; ++i) {
      CUdeviceptr p;
      CU(cuMemAllocFromPoolAsync(&p, 4096, pool, nullptr));
      CU(cuMemsetD32Async(p, static_cast<unsigned>(i), 1024, nullptr));
      LAUNCH(kernels.step, {4}, {256}, 0, nullptr, p, 5u, 1u, 1024);
      uint32_t value = 0;
      CU(cuMemcpyDtoHAsync(&value, p, 4, nullptr));
      CU(cuMemFreeAsync(p, nullptr));
      CU(cuStreamSynchronize(nullptr));
      hash = hash * 31 + value;
    }
    SHOW(cuMemPoolTrimTo(pool, 0));
    SHOW(cuMemPoolDestroy(pool));
  }
  printf("pools: %016llx\n", static_cast<unsigned long long>(hash));
}

// Freed memory must not be in the way. On a large GPU that others use too, this would be too much
// to ask for.
static void memory_for_something_else() {
  size_t free = 0, total = 0;
  CU(cuMemGetInfo(&free, &total));
  if (total <= (size_t{16} << 30)) {
    CUmemoryPool pool;
    CU(cuDeviceGetDefaultMemPool(&pool, 0));
    uint64_t threshold = UINT64_MAX;
    CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CUdeviceptr p;
    for (const size_t tenths : {6, 7, 8}) {
      CU(cuMemAllocAsync(&p, total / 10 * tenths, nullptr));
      CU(cuMemFreeAsync(p, nullptr));
      CU(cuStreamSynchronize(nullptr));
    }
    CU(cuMemPoolTrimTo(pool, 0));
    CU(cuMemAlloc(&p, total / 10 * 7));
    CU(cuMemFree(p));
  }
  printf("memory for something else: ok\n");
}

static void context_that_ends() {
  CUcontext own;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr p;
  for (int i = 0; i < 3; ++i) {
    CU(cuMemAllocAsync(&p, 5000, stream));
    CU(cuMemFreeAsync(p, stream));
  }
  SHOW(cuCtxDestroy(own));
  CU(cuMemAllocAsync(&p, 5000, nullptr));
  CU(cuMemsetD8(p, 1, 5000));
  CU(cuMemFreeAsync(p, nullptr));
  SHOW(cuCtxSynchronize());
}

int main() {
  Gpu gpu;
  {
    const Kernels kernels;
    loops(kernels);
    pool_that_ends(kernels);
  }
  memory_for_something_else();
  context_that_ends();
  SHOW(cuDevicePrimaryCtxReset(gpu.device));
  CUcontext again;
  CU(cuDevicePrimaryCtxRetain(&again, gpu.device));
  CU(cuCtxSetCurrent(again));
  CUdeviceptr p;
  CU(cuMemAllocAsync(&p, 5000, nullptr));
  CU(cuMemFreeAsync(p, nullptr));
  SHOW(cuCtxSynchronize());
  return 0;
}

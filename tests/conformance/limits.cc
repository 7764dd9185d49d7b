// Limits of a context: stack, printf buffer, heap and their kin.
#include "tests/conformance/case.h"

static void get(const char* name, CUlimit which) {
  size_t value = 99;
  const CUresult result = cuCtxGetLimit(&value, which);
  printf("%s: %s, %zu\n", name, code_name(result), value);
}

CASE(defaults) {
  Gpu gpu;
  get("stack", CU_LIMIT_STACK_SIZE);
  get("heap", CU_LIMIT_MALLOC_HEAP_SIZE);
  get("sync depth", CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH);
  get("pending launches", CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT);
  get("fetch granularity", CU_LIMIT_MAX_L2_FETCH_GRANULARITY);
  get("persisting cache", CU_LIMIT_PERSISTING_L2_CACHE_SIZE);
}

CASE(printf_buffer_default) {
  Gpu gpu;
  get("printf", CU_LIMIT_PRINTF_FIFO_SIZE);
}

CASE(newer_limits) {
  Gpu gpu;
  get("shared memory", CU_LIMIT_SHMEM_SIZE);
  get("CIG", CU_LIMIT_CIG_ENABLED);
  get("CIG shared memory fallback", CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED);
}

CASE(get_bad_arguments) {
  Gpu gpu;
  size_t value = 0;
  SHOW(cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
  SHOW(cuCtxGetLimit(&value, static_cast<CUlimit>(10)));
  SHOW(cuCtxGetLimit(&value, static_cast<CUlimit>(1000)));
  SHOW(cuCtxGetLimit(&value, static_cast<CUlimit>(-1)));
}

CASE(set_stack_size) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  get("now", CU_LIMIT_STACK_SIZE);
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1000));
  get("now", CU_LIMIT_STACK_SIZE);
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0));
  get("now", CU_LIMIT_STACK_SIZE);
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, size_t{1} << 40));
}

CASE(set_printf_buffer) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20));
  get("now", CU_LIMIT_PRINTF_FIFO_SIZE);
  SHOW(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 100));
  get("now", CU_LIMIT_PRINTF_FIFO_SIZE);
}

CASE(set_heap) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
  get("now", CU_LIMIT_MALLOC_HEAP_SIZE);
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1000));
  get("now", CU_LIMIT_MALLOC_HEAP_SIZE);
}

CASE(set_device_runtime_limits) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096));
  get("pending launches", CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT);
  SHOW(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 3));
  get("sync depth", CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH);
}

CASE(set_fetch_granularity) {
  Gpu gpu;
  for (size_t value : {0, 32, 50, 64, 128, 129}) {
    const CUresult result = cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, value);
    printf("%zu: %s; ", value, code_name(result));
    get("now", CU_LIMIT_MAX_L2_FETCH_GRANULARITY);
  }
}

CASE(set_persisting_cache) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20));
  size_t value = 0;
  SHOW(cuCtxGetLimit(&value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
  printf("at least as much: %s\n", value >= (1 << 20) ? "yes" : "no");
  SHOW(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0));
  get("now", CU_LIMIT_PERSISTING_L2_CACHE_SIZE);
}

CASE(set_bad_arguments) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(static_cast<CUlimit>(10), 1));
  SHOW(cuCtxSetLimit(static_cast<CUlimit>(1000), 1));
  SHOW(cuCtxSetLimit(static_cast<CUlimit>(-1), 1));
  SHOW(cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1));
  SHOW(cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1));
}

CASE(without_a_context) {
  CU(cuInit(0));
  size_t value = 0;
  SHOW(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  SHOW(cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
}

CASE(are_the_contexts_own) {
  Gpu gpu;
  CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  get("in another context", CU_LIMIT_STACK_SIZE);
  CU(cuCtxDestroy(own));
  get("in the first", CU_LIMIT_STACK_SIZE);
}

CASE(end_with_a_reset) {
  Gpu gpu;
  CU(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
  CU(cuDevicePrimaryCtxReset(gpu.device));
  CUcontext again = nullptr;
  CU(cuDevicePrimaryCtxRetain(&again, gpu.device));
  CU(cuCtxSetCurrent(again));
  get("stack", CU_LIMIT_STACK_SIZE);
}

CASE(a_heap_as_large_as_asked_for) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20));
  Module module("limits.fatbin");
  DeviceArray<int> got(1);
  LAUNCH(module.function("fill_heap"), {1}, {1}, 0, nullptr, 40, 1ull << 20, got.pointer);
  SHOW(cuCtxSynchronize());
  printf("%d blocks of 1 MiB\n", got.read()[0]);
}

// Of the kind that has a proxy of its own: another case's kernels may have used the heap before.
FAULTING_CASE(a_heap_that_kernels_have_used) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
  Module module("limits.fatbin");
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 << 20));
  DeviceArray<int> got(1);
  LAUNCH(module.function("fill_heap"), {1}, {1}, 0, nullptr, 17, 1ull << 20, got.pointer);
  SHOW(cuCtxSynchronize());
  printf("%d blocks of 1 MiB\n", got.read()[0]);
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 20));
  get("heap", CU_LIMIT_MALLOC_HEAP_SIZE);
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 << 20));
  SHOW(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20));
  get("heap", CU_LIMIT_MALLOC_HEAP_SIZE);
}

// Of the kind that has a proxy of its own: a stack that is too small would end the context.
FAULTING_CASE(a_stack_as_deep_as_asked_for) {
  Gpu gpu;
  SHOW(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 << 10));
  Module module("limits.fatbin");
  DeviceArray<int> out(64);
  LAUNCH(module.function("deep"), {1}, {64}, 0, nullptr, 200, out.pointer);
  SHOW(cuCtxSynchronize());
  print_hash("sums", out.read());
}

// Contexts of a program's own: creation, the stack of current ones, destruction.
#include "tests/conformance/case.h"

static CUcontext create() {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  return context;
}
static const char* current_is(CUcontext expected) {
  CUcontext current = nullptr;
  CU(cuCtxGetCurrent(&current));
  return current == nullptr ? "null" : current == expected ? "that" : "another";
}

CASE(create_makes_it_current) {
  CUcontext context = create();
  printf("%s\n", current_is(context));
  SHOW(cuCtxDestroy(context));
  printf("%s\n", current_is(context));
}

CASE(create_bad_arguments) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  SHOW(cuCtxCreate(nullptr, nullptr, 0, 0));
  SHOW(cuCtxCreate(&context, nullptr, 0, 1000));
  SHOW(cuCtxCreate(&context, nullptr, 0, -1));
  SHOW(cuCtxCreate(&context, nullptr, 0x10000, 0));
  SHOW(cuCtxCreate(&context, nullptr, 0xffffffffu, 0));
  SHOW(cuCtxCreate(&context, nullptr, 3, 0));
  printf("%s\n", current_is(nullptr));
}

CASE(create_versions) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  SHOW(cuCtxCreate_v2(&context, CU_CTX_SCHED_SPIN, 0));
  unsigned flags = 0;
  SHOW(cuCtxGetFlags(&flags));
  printf("%u\n", flags);
  SHOW(cuCtxDestroy(context));
  SHOW(cuCtxCreate_v3(&context, nullptr, 0, CU_CTX_SCHED_YIELD, 0));
  SHOW(cuCtxGetFlags(&flags));
  printf("%u\n", flags);
  SHOW(cuCtxDestroy(context));
  CUctxCreateParams params = {};
  SHOW(cuCtxCreate_v4(&context, &params, CU_CTX_SCHED_BLOCKING_SYNC, 0));
  SHOW(cuCtxGetFlags(&flags));
  printf("%u\n", flags);
  SHOW(cuCtxDestroy(context));
}

CASE(flags_of_a_created_context) {
  CU(cuInit(0));
  for (unsigned wanted : {0u, 1u, 2u, 4u, 8u, 16u, 0x80u, 0x100u}) {
    CUcontext context = nullptr;
    const CUresult result = cuCtxCreate(&context, nullptr, wanted, 0);
    unsigned flags = 0;
    if (result == CUDA_SUCCESS) CU(cuCtxGetFlags(&flags));
    printf("%#x: %s, flags %#x\n", wanted, code_name(result), flags);
    if (result == CUDA_SUCCESS) CU(cuCtxDestroy(context));
  }
}

CASE(set_flags) {
  CUcontext context = create();
  unsigned flags = 0;
  SHOW(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  CU(cuCtxGetFlags(&flags));
  printf("%#x\n", flags);
  SHOW(cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC));
  CU(cuCtxGetFlags(&flags));
  printf("%#x\n", flags);
  SHOW(cuCtxSetFlags(0x10000));
  SHOW(cuCtxSetFlags(3));
  SHOW(cuCtxGetFlags(nullptr));
  SHOW(cuCtxDestroy(context));
}

CASE(push_and_pop) {
  CUcontext one = create();
  CUcontext two = create();
  printf("%s\n", current_is(two));
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent(&popped));
  printf("popped two: %s, current %s\n", popped == two ? "yes" : "no", current_is(one));
  SHOW(cuCtxPushCurrent(two));
  SHOW(cuCtxPushCurrent(two));
  SHOW(cuCtxPopCurrent(nullptr));
  SHOW(cuCtxPopCurrent(&popped));
  SHOW(cuCtxPopCurrent(&popped));
  printf("popped one: %s, current %s\n", popped == one ? "yes" : "no", current_is(nullptr));
  SHOW(cuCtxPopCurrent(&popped));
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(first_versions_of_push_pop_and_destroy) {
  CUcontext context = create();
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent_v1(&popped));
  printf("%s\n", popped == context ? "that" : "another");
  SHOW(cuCtxPushCurrent_v1(context));
  printf("%s\n", current_is(context));
  SHOW(cuCtxDestroy_v1(context));
  printf("%s\n", current_is(context));
}

CASE(pop_of_an_empty_stack) {
  CU(cuInit(0));
  CUcontext popped = reinterpret_cast<CUcontext>(8);
  SHOW(cuCtxPopCurrent(&popped));
  printf("%s\n", popped == reinterpret_cast<CUcontext>(8) ? "untouched" : popped == nullptr ? "null" : "set");
  SHOW(cuCtxPopCurrent(nullptr));
}

CASE(push_null) {
  CU(cuInit(0));
  SHOW(cuCtxPushCurrent(nullptr));
  CUcontext context = create();
  SHOW(cuCtxPushCurrent(nullptr));
  printf("%s\n", current_is(context));
  SHOW(cuCtxDestroy(context));
}

CASE(set_current_replaces_the_top) {
  CUcontext one = create();
  CUcontext two = create();
  SHOW(cuCtxSetCurrent(one));
  printf("%s\n", current_is(one));
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent(&popped));
  printf("popped one: %s, below is one: %s\n", popped == one ? "yes" : "no", current_is(one));
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(set_current_null_pops) {
  CUcontext one = create();
  CUcontext two = create();
  SHOW(cuCtxSetCurrent(nullptr));
  printf("%s\n", current_is(one));
  SHOW(cuCtxSetCurrent(nullptr));
  printf("%s\n", current_is(one));
  SHOW(cuCtxSetCurrent(nullptr));
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(get_current_into_null) {
  CU(cuInit(0));
  SHOW(cuCtxGetCurrent(nullptr));
}

CASE(destroy_null) {
  CU(cuInit(0));
  SHOW(cuCtxDestroy(nullptr));
}

CASE(destroy_twice) {
  CUcontext context = create();
  SHOW(cuCtxDestroy(context));
  SHOW(cuCtxDestroy(context));
}

CASE(destroyed_context_set_current) {
  CUcontext context = create();
  SHOW(cuCtxDestroy(context));
  SHOW(cuCtxSetCurrent(context));
  SHOW(cuCtxPushCurrent(context));
}

CASE(destroy_the_context_below_the_top) {
  CUcontext one = create();
  CUcontext two = create();
  SHOW(cuCtxDestroy(one));
  printf("%s\n", current_is(two));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 64));
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent(&popped));
  printf("%s\n", current_is(one));
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxDestroy(two));
}

CASE(device_of_the_current_context) {
  CU(cuInit(0));
  CUdevice device = -3;
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CUcontext context = create();
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  SHOW(cuCtxGetDevice(nullptr));
  SHOW(cuCtxDestroy(context));
}

CASE(device_of_a_named_context) {
  CUcontext context = create();
  CUdevice device = -3;
  SHOW(cuCtxGetDevice_v2(&device, context));
  printf("%d\n", device);
  device = -3;
  SHOW(cuCtxGetDevice_v2(&device, nullptr));
  printf("%d\n", device);
  SHOW(cuCtxGetDevice_v2(nullptr, context));
  CUcontext popped;
  CU(cuCtxPopCurrent(&popped));
  SHOW(cuCtxGetDevice_v2(&device, nullptr));
  SHOW(cuCtxGetDevice_v2(&device, context));
  SHOW(cuCtxDestroy(context));
}

CASE(api_version) {
  CUcontext context = create();
  unsigned version = 0;
  SHOW(cuCtxGetApiVersion(context, &version));
  printf("%u\n", version);
  version = 0;
  SHOW(cuCtxGetApiVersion(nullptr, &version));
  printf("%u\n", version);
  SHOW(cuCtxGetApiVersion(context, nullptr));
  CUcontext second = nullptr;
  CU(cuCtxCreate_v2(&second, 0, 0));
  SHOW(cuCtxGetApiVersion(second, &version));
  printf("%u\n", version);
  SHOW(cuCtxDestroy(second));
  SHOW(cuCtxDestroy(context));
}

CASE(api_version_without_a_context) {
  CU(cuInit(0));
  unsigned version = 0;
  SHOW(cuCtxGetApiVersion(nullptr, &version));
}

CASE(ids_differ_and_stay) {
  CUcontext one = create();
  CUcontext two = create();
  unsigned long long a = 0, b = 0, again = 0, of_current = 0;
  SHOW(cuCtxGetId(one, &a));
  SHOW(cuCtxGetId(two, &b));
  SHOW(cuCtxGetId(one, &again));
  SHOW(cuCtxGetId(nullptr, &of_current));
  printf("differ %s, stays %s, current's %s\n", a != b ? "yes" : "no", a == again ? "yes" : "no", of_current == b ? "yes" : "no");
  SHOW(cuCtxGetId(one, nullptr));
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(id_without_a_context) {
  CU(cuInit(0));
  unsigned long long id = 0;
  SHOW(cuCtxGetId(nullptr, &id));
}

CASE(cache_config) {
  CUcontext context = create();
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_L1;
  SHOW(cuCtxGetCacheConfig(&config));
  printf("%d\n", static_cast<int>(config));
  SHOW(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
  SHOW(cuCtxGetCacheConfig(&config));
  printf("%d\n", static_cast<int>(config));
  SHOW(cuCtxSetCacheConfig(static_cast<CUfunc_cache>(77)));
  SHOW(cuCtxGetCacheConfig(nullptr));
  SHOW(cuCtxDestroy(context));
}

CASE(stream_priority_range) {
  CUcontext context = create();
  int least = -9, greatest = 9;
  SHOW(cuCtxGetStreamPriorityRange(&least, &greatest));
  printf("%d, negative greatest: %s\n", least, greatest < 0 ? "yes" : "no");
  SHOW(cuCtxGetStreamPriorityRange(nullptr, &greatest));
  SHOW(cuCtxGetStreamPriorityRange(&least, nullptr));
  SHOW(cuCtxGetStreamPriorityRange(nullptr, nullptr));
  SHOW(cuCtxDestroy(context));
}

CASE(stream_priority_range_without_a_context) {
  CU(cuInit(0));
  int least = -9, greatest = 9;
  SHOW(cuCtxGetStreamPriorityRange(&least, &greatest));
}

CASE(synchronise_named_context) {
  CUcontext context = create();
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxSynchronize_v2(context));
  SHOW(cuCtxSynchronize_v2(nullptr));
  CUcontext popped;
  CU(cuCtxPopCurrent(&popped));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxSynchronize_v2(nullptr));
  SHOW(cuCtxSynchronize_v2(context));
  SHOW(cuCtxDestroy(context));
}

CASE(calls_without_a_context) {
  CU(cuInit(0));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuMemFree(0));
  SHOW(cuMemFree(4096));
  void* host = nullptr;
  SHOW(cuMemAllocHost(&host, 64));
  SHOW(cuMemHostAlloc(&host, 64, 0));
  SHOW(cuMemFreeHost(nullptr));
  SHOW(cuMemsetD8(4096, 0, 1));
  char byte = 0;
  SHOW(cuMemcpyHtoD(4096, &byte, 1));
  SHOW(cuMemcpyDtoH(&byte, 4096, 1));
  size_t a, b;
  SHOW(cuMemGetInfo(&a, &b));
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, 0));
  SHOW(cuStreamSynchronize(nullptr));
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, 0));
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, "x"));
  SHOW(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  size_t limit;
  SHOW(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  CUfunc_cache config;
  SHOW(cuCtxGetCacheConfig(&config));
  unsigned flags;
  SHOW(cuCtxGetFlags(&flags));
}

CASE(bad_arguments_without_a_context) {
  CU(cuInit(0));
  SHOW(cuMemAlloc(nullptr, 64));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 0));
  SHOW(cuStreamCreate(nullptr, 0));
  SHOW(cuEventCreate(nullptr, 0));
  SHOW(cuModuleLoadData(nullptr, nullptr));
  SHOW(cuMemAllocHost(nullptr, 0));
  SHOW(cuCtxGetFlags(nullptr));
  SHOW(cuMemGetInfo(nullptr, nullptr));
}

CASE(memory_of_a_destroyed_context) {
  CUcontext one = create();
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4096));
  CUcontext two = create();
  SHOW(cuCtxDestroy(one));
  char byte = 7;
  SHOW(cuMemcpyHtoD(memory, &byte, 1));
  SHOW(cuMemFree(memory));
  SHOW(cuCtxDestroy(two));
}

CASE(memory_of_another_live_context) {
  CUcontext one = create();
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4096));
  CUcontext two = create();
  unsigned char bytes[4] = {1, 2, 3, 4}, back[4] = {};
  SHOW(cuMemcpyHtoD(memory, bytes, 4));
  SHOW(cuMemcpyDtoH(back, memory, 4));
  printf("%d %d\n", back[0], back[3]);
  SHOW(cuMemFree(memory));
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(objects_of_another_context) {
  CUcontext one = create();
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuEventCreate(&event, 0));
  CUcontext two = create();
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64));
  SHOW(cuMemsetD8Async(memory, 1, 64, stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuStreamQuery(stream));
  SHOW(cuEventRecord(event, stream));
  SHOW(cuEventRecord(event, nullptr));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuEventQuery(event));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  SHOW(cuEventDestroy(event));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(kernel_of_another_context) {
  CUcontext one = create();
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction fill = nullptr;
  CU(cuModuleGetFunction(&fill, module, "fill"));
  CUcontext two = create();
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64));
  SHOW(try_launch(fill, {1}, {16}, 0, nullptr, memory, 5u, 16));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxDestroy(two));
  SHOW(cuCtxDestroy(one));
}

CASE(persisting_cache_reset) {
  CUcontext context = create();
  SHOW(cuCtxResetPersistingL2Cache());
  SHOW(cuCtxDestroy(context));
  SHOW(cuCtxResetPersistingL2Cache());
}

CASE(many_contexts_one_after_the_other) {
  CU(cuInit(0));
  for (int i = 0; i < 6; ++i) {
    CUcontext context = create();
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, 1 << 20));
    CU(cuMemsetD8(memory, i, 1 << 20));
    unsigned char last = 0;
    CU(cuMemcpyDtoH(&last, memory + (1 << 20) - 1, 1));
    printf("%d\n", last);
    CU(cuCtxDestroy(context));
  }
}

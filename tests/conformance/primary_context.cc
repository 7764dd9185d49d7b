// The primary context: one per device and process, counted.
#include "tests/conformance/case.h"

static void state(const char* when) {
  unsigned flags = 77;
  int active = 77;
  const CUresult result = cuDevicePrimaryCtxGetState(0, &flags, &active);
  printf("%s: %s, flags %#x, active %d\n", when, code_name(result), flags, active);
}

CASE(state_follows_retain_and_release) {
  CU(cuInit(0));
  state("at first");
  CUcontext context = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&context, 0));
  state("retained");
  SHOW(cuDevicePrimaryCtxRelease(0));
  state("released");
}

CASE(retain_does_not_make_it_current) {
  CU(cuInit(0));
  CUcontext context = nullptr, current = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuCtxGetCurrent(&current));
  printf("%s\n", current == nullptr ? "null" : "set");
  CU(cuDevicePrimaryCtxRelease(0));
}

CASE(retained_twice_is_one_context) {
  CU(cuInit(0));
  CUcontext one = nullptr, two = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&one, 0));
  SHOW(cuDevicePrimaryCtxRetain(&two, 0));
  printf("same: %s\n", one == two ? "yes" : "no");
  SHOW(cuDevicePrimaryCtxRelease(0));
  state("released once");
  SHOW(cuDevicePrimaryCtxRelease(0));
  state("released twice");
  SHOW(cuDevicePrimaryCtxRelease(0));
}

CASE(release_of_one_never_retained) {
  CU(cuInit(0));
  SHOW(cuDevicePrimaryCtxRelease(0));
  SHOW(cuDevicePrimaryCtxRelease(1000));
  SHOW(cuDevicePrimaryCtxRelease(-1));
}

CASE(release_first_version) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuDevicePrimaryCtxRelease_v1(0));
  SHOW(cuDevicePrimaryCtxRelease_v1(0));
  state("after");
}

CASE(retain_bad_arguments) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(nullptr, 0));
  SHOW(cuDevicePrimaryCtxRetain(&context, 1000));
  SHOW(cuDevicePrimaryCtxRetain(&context, -1));
  state("after");
}

CASE(state_bad_arguments) {
  CU(cuInit(0));
  unsigned flags = 0;
  int active = 0;
  SHOW(cuDevicePrimaryCtxGetState(0, nullptr, &active));
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, nullptr));
  SHOW(cuDevicePrimaryCtxGetState(0, nullptr, nullptr));
  SHOW(cuDevicePrimaryCtxGetState(1000, &flags, &active));
}

CASE(flags_before_and_after_it_is_active) {
  CU(cuInit(0));
  SHOW(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
  state("set before");
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN));
  state("set while active");
  unsigned flags = 0;
  CU(cuCtxSetCurrent(context));
  SHOW(cuCtxGetFlags(&flags));
  printf("%#x\n", flags);
  CU(cuDevicePrimaryCtxRelease(0));
  state("released");
}

CASE(flags_first_version) {
  CU(cuInit(0));
  SHOW(cuDevicePrimaryCtxSetFlags_v1(0, CU_CTX_SCHED_YIELD));
  state("set before");
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuDevicePrimaryCtxSetFlags_v1(0, CU_CTX_SCHED_SPIN));
  state("set while active");
  CU(cuDevicePrimaryCtxRelease(0));
}

CASE(flags_bad_values) {
  CU(cuInit(0));
  SHOW(cuDevicePrimaryCtxSetFlags(0, 3));
  SHOW(cuDevicePrimaryCtxSetFlags(0, 0x10000));
  SHOW(cuDevicePrimaryCtxSetFlags(0, 0xffffffffu));
  SHOW(cuDevicePrimaryCtxSetFlags(1000, 0));
  state("after");
}

CASE(default_flags) {
  Gpu gpu;
  unsigned flags = 0;
  SHOW(cuCtxGetFlags(&flags));
  printf("%#x\n", flags);
}

CASE(reset_of_an_inactive_one) {
  CU(cuInit(0));
  SHOW(cuDevicePrimaryCtxReset(0));
  state("after");
  SHOW(cuDevicePrimaryCtxReset(1000));
  SHOW(cuDevicePrimaryCtxReset(-1));
}

CASE(reset_frees_its_memory) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 1 << 20));
  SHOW(cuDevicePrimaryCtxReset(0));
  state("reset");
  SHOW(cuMemFree(memory));
  CUcontext again = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&again, 0));
  printf("same handle: %s\n", again == context ? "yes" : "no");
  state("retained again");
  SHOW(cuCtxSetCurrent(again));
  SHOW(cuMemAlloc(&memory, 1 << 20));
  SHOW(cuMemFree(memory));
}

CASE(reset_first_version) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuDevicePrimaryCtxReset_v1(0));
  state("reset");
  SHOW(cuDevicePrimaryCtxRelease(0));
  state("released");
}

CASE(release_of_the_last_ends_it) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 4096));
  SHOW(cuDevicePrimaryCtxRelease(0));
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("still current: %s\n", current == context ? "yes" : "no");
  SHOW(cuMemAlloc(&memory, 4096));
  SHOW(cuCtxSynchronize());
  CUdevice device = -1;
  SHOW(cuCtxGetDevice(&device));
  unsigned flags = 0;
  SHOW(cuCtxGetFlags(&flags));
  SHOW(cuCtxSetCurrent(nullptr));
}

CASE(destroy_the_primary_context) {
  Gpu gpu;
  SHOW(cuCtxDestroy(gpu.context));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 64));
}

CASE(api_version) {
  Gpu gpu;
  unsigned version = 0;
  SHOW(cuCtxGetApiVersion(gpu.context, &version));
  printf("%u\n", version);
}

CASE(beside_a_created_context) {
  Gpu gpu;
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  unsigned long long a = 0, b = 0;
  CU(cuCtxGetId(gpu.context, &a));
  CU(cuCtxGetId(own, &b));
  printf("different contexts: %s\n", a != b && own != gpu.context ? "yes" : "no");
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuCtxDestroy(own));
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuMemFree(memory));
}

CASE(created_again_in_a_loop) {
  CU(cuInit(0));
  for (int i = 0; i < 5; ++i) {
    CUcontext context = nullptr;
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    DeviceArray<uint32_t> numbers(256);
    CU(cuMemsetD32(numbers.pointer, i * 3, 256));
    printf("%u\n", numbers.read()[255]);
    CU(cuMemFree(numbers.pointer));
    CU(cuMemAlloc(&numbers.pointer, 4));
    CU(cuDevicePrimaryCtxReset(0));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    CU(cuMemAlloc(&numbers.pointer, 4));
  }
}

TWO_DEVICES_CASE(of_two_devices) {
  CU(cuInit(0));
  CUcontext one = nullptr, two = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&one, 0));
  SHOW(cuDevicePrimaryCtxRetain(&two, 1));
  printf("same: %s\n", one == two ? "yes" : "no");
  CUdevice device = -1;
  CU(cuCtxSetCurrent(two));
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CU(cuCtxSetCurrent(one));
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  SHOW(cuDevicePrimaryCtxRelease(0));
  unsigned flags;
  int active = -1;
  SHOW(cuDevicePrimaryCtxGetState(1, &flags, &active));
  printf("%d\n", active);
  SHOW(cuDevicePrimaryCtxRelease(1));
}

TWO_DEVICES_CASE(stream_of_the_other_device) {
  CU(cuInit(0));
  CUcontext one = nullptr, two = nullptr;
  CU(cuDevicePrimaryCtxRetain(&one, 0));
  CU(cuDevicePrimaryCtxRetain(&two, 1));
  CU(cuCtxSetCurrent(one));
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction fill = nullptr;
  CU(cuModuleGetFunction(&fill, module, "fill"));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64));
  CU(cuCtxSetCurrent(two));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(try_launch(fill, {1}, {16}, 0, stream, memory, 1u, 16));
  CU(cuCtxSetCurrent(one));
  SHOW(try_launch(fill, {1}, {16}, 0, stream, memory, 1u, 16));
  SHOW(cuStreamSynchronize(stream));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuEventRecord(event, stream));
  SHOW(cuEventRecord(event, nullptr));
  SHOW(cuStreamWaitEvent(stream, event, 0));
  SHOW(cuStreamSynchronize(stream));
}

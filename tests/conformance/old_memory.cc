// The ABI from before CUDA 3.2: sizes and addresses of 32 bits.
#include "tests/conformance/case.h"

namespace {

// What is the same on every GPU of more than 4 GiB.
const char* shape(unsigned value) { return value == 0 ? "zero" : value == 0xffffffffu ? "all ones" : "something"; }

}  // namespace

CASE(total_memory) {
  CU(cuInit(0));
  unsigned bytes = 1;
  SHOW(cuDeviceTotalMem_v1(&bytes, 0));
  printf("%s\n", shape(bytes));
}

CASE(total_memory_bad_arguments) {
  CU(cuInit(0));
  unsigned bytes = 1;
  SHOW(cuDeviceTotalMem_v1(nullptr, 0));
  SHOW(cuDeviceTotalMem_v1(&bytes, 1000));
}

CASE(total_memory_before_init) {
  unsigned bytes = 1;
  SHOW(cuDeviceTotalMem_v1(&bytes, 0));
}

CASE(memory_info) {
  Gpu gpu;
  unsigned free = 1, total = 1;
  SHOW(cuMemGetInfo_v1(&free, &total));
  printf("total %s\n", shape(total));
}

CASE(memory_info_null) {
  Gpu gpu;
  unsigned value = 1;
  SHOW(cuMemGetInfo_v1(nullptr, &value));
  SHOW(cuMemGetInfo_v1(&value, nullptr));
  SHOW(cuMemGetInfo_v1(nullptr, nullptr));
}

CASE(memory_info_without_a_context) {
  CU(cuInit(0));
  unsigned free = 1, total = 1;
  SHOW(cuMemGetInfo_v1(&free, &total));
}

CASE(allocate) {
  Gpu gpu;
  CUdeviceptr_v1 pointer = 0;
  SHOW(cuMemAlloc_v1(&pointer, 1024));
}

CASE(allocate_bad_arguments) {
  Gpu gpu;
  CUdeviceptr_v1 pointer = 0;
  SHOW(cuMemAlloc_v1(nullptr, 1024));
  SHOW(cuMemAlloc_v1(&pointer, 0));
}

CASE(a_refused_allocation_is_not_kept) {
  Gpu gpu;
  size_t before = 0, after = 0, total = 0;
  CUdeviceptr warm;
  CU(cuMemAlloc(&warm, 64u << 20));
  CU(cuMemGetInfo(&before, &total));
  for (int i = 0; i < 8; ++i) {
    CUdeviceptr_v1 pointer = 0;
    if (cuMemAlloc_v1(&pointer, 64u << 20) == CUDA_SUCCESS) (void)cuMemFree_v1(pointer);
  }
  CU(cuMemGetInfo(&after, &total));
  printf("%s\n", after + (128u << 20) >= before ? "as much free as before" : "less free than before");
  CU(cuMemFree(warm));
}

CASE(allocate_pitch) {
  Gpu gpu;
  CUdeviceptr_v1 pointer = 0;
  unsigned pitch = 0;
  SHOW(cuMemAllocPitch_v1(&pointer, &pitch, 100, 10, 4));
  SHOW(cuMemAllocPitch_v1(nullptr, &pitch, 100, 10, 4));
  SHOW(cuMemAllocPitch_v1(&pointer, nullptr, 100, 10, 4));
  SHOW(cuMemAllocPitch_v1(&pointer, &pitch, 0, 10, 4));
  SHOW(cuMemAllocPitch_v1(&pointer, &pitch, 100, 0, 4));
  SHOW(cuMemAllocPitch_v1(&pointer, &pitch, 100, 10, 3));
}

CASE(free_null) {
  Gpu gpu;
  SHOW(cuMemFree_v1(0));
}

CASE(free_nothing) {
  Gpu gpu;
  SHOW(cuMemFree_v1(0x1000));
}

CASE(address_range_of_nothing) {
  Gpu gpu;
  CUdeviceptr_v1 base = 0;
  unsigned size = 0;
  SHOW(cuMemGetAddressRange_v1(&base, &size, 0x1000));
  SHOW(cuMemGetAddressRange_v1(nullptr, nullptr, 0));
}

CASE(allocate_host) {
  Gpu gpu;
  void* memory = nullptr;
  const CUresult result = cuMemAllocHost_v1(&memory, 4096);
  printf("%s\n", code_name(result));
  if (result == CUDA_SUCCESS) SHOW(cuMemFreeHost(memory));
  SHOW(cuMemAllocHost_v1(nullptr, 4096));
}

CASE(host_device_pointer) {
  Gpu gpu;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr_v1 pointer = 0;
  SHOW(cuMemHostGetDevicePointer_v1(&pointer, memory, 0));
  SHOW(cuMemHostGetDevicePointer_v1(nullptr, memory, 0));
  SHOW(cuMemHostGetDevicePointer_v1(&pointer, memory, 1));
  SHOW(cuMemHostGetDevicePointer_v1(&pointer, &pointer, 0));
  CU(cuMemFreeHost(memory));
}

CASE(module_global) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr_v1 pointer = 0;
  unsigned bytes = 0;
  SHOW(cuModuleGetGlobal_v1(&pointer, &bytes, module.handle, "table"));
}

CASE(module_global_size_only) {
  Gpu gpu;
  Module module("globals.fatbin");
  unsigned bytes = 0;
  SHOW(cuModuleGetGlobal_v1(nullptr, &bytes, module.handle, "table"));
  printf("%u\n", bytes);
}

CASE(module_global_bad_arguments) {
  Gpu gpu;
  Module module("globals.fatbin");
  CUdeviceptr_v1 pointer = 0;
  unsigned bytes = 0;
  SHOW(cuModuleGetGlobal_v1(&pointer, &bytes, module.handle, "no_such_variable"));
  SHOW(cuModuleGetGlobal_v1(&pointer, &bytes, module.handle, nullptr));
  SHOW(cuModuleGetGlobal_v1(&pointer, &bytes, nullptr, "table"));
  SHOW(cuModuleGetGlobal_v1(nullptr, nullptr, module.handle, "table"));
}

CASE(context) {
  CU(cuInit(0));
  CUcontext context = nullptr, current = nullptr;
  SHOW(cuCtxCreate_v1(&context, 0, 0));
  CU(cuCtxGetCurrent(&current));
  printf("%s\n", context == nullptr ? "none" : current == context ? "current" : "not current");
}

CASE(destroy_by_its_old_name) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate_v2(&context, 0, 0));
  SHOW(conformance::symbol_as<decltype(cuCtxDestroy)>("cuCtxDestroy")(context));
  SHOW(conformance::symbol_as<decltype(cuCtxDestroy)>("cuCtxDestroy")(nullptr));
}

CASE(context_bad_arguments) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  SHOW(cuCtxCreate_v1(nullptr, 0, 0));
  SHOW(cuCtxCreate_v1(&context, 0, 1000));
  SHOW(cuCtxCreate_v1(&context, 0x10000, 0));
}

CASE(api_versions_of_contexts) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  unsigned version = 0;
  CU(cuCtxCreate_v2(&context, 0, 0));
  SHOW(cuCtxGetApiVersion(context, &version));
  printf("%u\n", version);
  CU(cuCtxDestroy(context));
  CU(cuCtxCreate_v3(&context, nullptr, 0, 0, 0));
  SHOW(cuCtxGetApiVersion(context, &version));
  printf("%u\n", version);
  CU(cuCtxDestroy(context));
  CU(cuCtxCreate_v4(&context, nullptr, 0, 0));
  SHOW(cuCtxGetApiVersion(context, &version));
  printf("%u\n", version);
  CU(cuCtxDestroy(context));
}

CASE(stack_by_its_old_names) {
  CU(cuInit(0));
  CUcontext context = nullptr, popped = nullptr;
  CU(cuCtxCreate_v2(&context, 0, 0));
  auto* pop = conformance::symbol_as<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");
  auto* push = conformance::symbol_as<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
  SHOW(pop(&popped));
  printf("%s\n", popped == context ? "that one" : "another");
  SHOW(pop(&popped));
  SHOW(push(context));
  CU(cuCtxDestroy(context));
}

CASE(stream_and_event_by_their_old_names) {
  Gpu gpu;
  CUstream stream;
  CUevent event;
  CU(cuStreamCreate(&stream, 0));
  CU(cuEventCreate(&event, 0));
  auto* destroy_stream = conformance::symbol_as<decltype(cuStreamDestroy)>("cuStreamDestroy");
  auto* destroy_event = conformance::symbol_as<decltype(cuEventDestroy)>("cuEventDestroy");
  SHOW(destroy_event(event));
  SHOW(destroy_stream(stream));
}

CASE(primary_context_by_its_old_names) {
  CU(cuInit(0));
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(conformance::symbol_as<decltype(cuDevicePrimaryCtxSetFlags)>("cuDevicePrimaryCtxSetFlags")(0, CU_CTX_SCHED_YIELD));
  SHOW(conformance::symbol_as<decltype(cuDevicePrimaryCtxReset)>("cuDevicePrimaryCtxReset")(0));
  SHOW(conformance::symbol_as<decltype(cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease")(0));
}

// A context of the first call takes the calls of its time only. (Through Tube it is like any
// other.)
CASE(memory_in_a_context_of_the_first_call) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate_v1(&context, 0, 0));
  unsigned version = 0, free = 0, total = 0;
  CUdeviceptr_v1 old_pointer = 0;
  CUdeviceptr pointer = 0;
  SHOW(cuCtxGetApiVersion(context, &version));
  printf("%u\n", version);
  SHOW(cuMemAlloc_v1(&old_pointer, 1024));
  SHOW(cuMemGetInfo_v1(&free, &total));
  SHOW(cuMemAlloc(&pointer, 1024));
  SHOW(cuMemFree(pointer));
  SHOW(cuCtxDestroy(context));
}

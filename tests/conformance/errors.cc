// Error codes: their names and texts, and what a context answers once it has faulted.
#include "tests/conformance/case.h"

static void texts(int code) {
  const char* name = "untouched";
  const char* text = "untouched";
  const CUresult named = cuGetErrorName(static_cast<CUresult>(code), &name);
  const CUresult described = cuGetErrorString(static_cast<CUresult>(code), &text);
  printf("%d: %s %s %s: %s\n", code, code_name(named), code_name(described), name != nullptr ? name : "null", text != nullptr ? text : "null");
}

CASE(texts_of_every_code) {
  for (int code = 0; code <= 1000; ++code) {
    const char* name = nullptr;
    if (cuGetErrorName(static_cast<CUresult>(code), &name) == CUDA_SUCCESS) texts(code);
  }
}

CASE(texts_of_unknown_codes) {
  for (int code : {-1, 6, 99, 150, 300, 1001, 123456}) texts(code);
}

CASE(texts_are_the_same_place) {
  const char *one = nullptr, *two = nullptr;
  CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &one));
  CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &two));
  printf("%s\n", one == two ? "same" : "another");
}

namespace {
// The context has faulted on a store to 0.
struct Faulted {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction poke = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  Faulted() {
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&context, 0));
    CU(cuCtxSetCurrent(context));
    CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
    CU(cuModuleGetFunction(&poke, module, "poke"));
    CU(cuMemAlloc(&memory, 4096));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, 0));
    CU(try_launch(poke, {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
    printf("%s\n", code_name(cuCtxSynchronize()));
  }
  ~Faulted() {
    fflush(stdout);
    _exit(0);
  }
};
}  // namespace

FAULTING_CASE(after_a_fault_memory) {
  Faulted f;
  CUdeviceptr more = 0;
  void* host = nullptr;
  char byte = 0;
  size_t a = 0, b = 0;
  SHOW(cuMemAlloc(&more, 16));
  SHOW(cuMemFree(f.memory));
  SHOW(cuMemAllocHost(&host, 16));
  SHOW(cuMemcpyHtoD(f.memory, &byte, 1));
  SHOW(cuMemcpyDtoHAsync(&byte, f.memory, 1, f.stream));
  SHOW(cuMemsetD8Async(f.memory, 0, 16, f.stream));
  SHOW(cuMemGetInfo(&a, &b));
  SHOW(cuMemGetAddressRange(&more, &a, f.memory));
  unsigned type = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, f.memory));
}

FAULTING_CASE(after_a_fault_streams_and_events) {
  Faulted f;
  SHOW(cuStreamSynchronize(f.stream));
  SHOW(cuStreamQuery(f.stream));
  SHOW(cuStreamQuery(nullptr));
  SHOW(cuEventRecord(f.event, f.stream));
  SHOW(cuEventQuery(f.event));
  SHOW(cuEventSynchronize(f.event));
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, 0));
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, 0));
  int priority = 0;
  SHOW(cuStreamGetPriority(f.stream, &priority));
  SHOW(cuStreamWaitEvent(f.stream, f.event, 0));
}

FAULTING_CASE(after_a_fault_destruction) {
  Faulted f;
  SHOW(cuStreamDestroy(f.stream));
  SHOW(cuEventDestroy(f.event));
  SHOW(cuModuleUnload(f.module));
  SHOW(cuMemFree(f.memory));
}

FAULTING_CASE(after_a_fault_modules_and_launches) {
  Faulted f;
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, f.module, "fill"));
  int value = 0;
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f.poke));
  SHOW(try_launch(f.poke, {1}, {1}, 0, nullptr, f.memory, 1u));
  SHOW(cuLaunchHostFunc(nullptr, [](void*) {}, nullptr));
}

FAULTING_CASE(after_a_fault_contexts) {
  Faulted f;
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("%s\n", current == f.context ? "still current" : "another");
  CUdevice device = -1;
  SHOW(cuCtxGetDevice(&device));
  unsigned flags = 0;
  SHOW(cuCtxGetFlags(&flags));
  size_t limit = 0;
  SHOW(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  SHOW(cuCtxSynchronize());
  SHOW(cuCtxSetCurrent(nullptr));
  SHOW(cuCtxSetCurrent(f.context));
  unsigned long long id = 0;
  SHOW(cuCtxGetId(f.context, &id));
}

FAULTING_CASE(after_a_fault_questions_without_a_context) {
  Faulted f;
  int value = 0;
  SHOW(cuDeviceGetCount(&value));
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  SHOW(cuDriverGetVersion(&value));
  const char* text = nullptr;
  SHOW(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  SHOW(cuInit(0));
  size_t bytes = 0;
  SHOW(cuDeviceTotalMem(&bytes, 0));
  unsigned flags = 0;
  int active = 0;
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, &active));
  printf("%d\n", active);
}

FAULTING_CASE(after_a_fault_another_context) {
  Faulted f;
  CUcontext own = nullptr;
  SHOW(cuCtxCreate(&own, nullptr, 0, 0));
}

FAULTING_CASE(after_a_fault_release_and_retain) {
  Faulted f;
  SHOW(cuDevicePrimaryCtxRelease(0));
  CUcontext again = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&again, 0));
}

FAULTING_CASE(fault_of_one_stream_is_seen_by_the_others) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUstream one = nullptr, two = nullptr;
  CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  SHOW(try_launch(module.function("poke"), {1}, {1}, 0, one, CUdeviceptr{0}, 1u));
  SHOW(cuStreamSynchronize(one));
  SHOW(cuStreamSynchronize(two));
  SHOW(cuStreamSynchronize(nullptr));
  fflush(stdout);
  _exit(0);
}

FAULTING_CASE(ordinary_exit_after_a_fault) {
  Gpu* gpu = left_behind<Gpu>();
  CUmodule module = nullptr;
  CU(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  CUfunction poke = nullptr;
  CU(cuModuleGetFunction(&poke, module, "poke"));
  SHOW(try_launch(poke, {1}, {1}, 0, nullptr, CUdeviceptr{0}, 1u));
  SHOW(cuCtxSynchronize());
  printf("%d\n", gpu->device);
}

CASE(argument_errors_are_not_sticky) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 0));
  SHOW(cuMemFree(0x1234));
  SHOW(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, "nonsense"));
  SHOW(cuMemAlloc(&memory, size_t{1} << 50));
  SHOW(cuCtxSynchronize());
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuMemFree(memory));
}

CASE(a_refused_launch_is_not_sticky) {
  Gpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> out(4);
  CUfunction fill = module.function("fill");
  SHOW(try_launch(fill, {1}, {5000}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(try_launch(fill, {1}, {4}, 0, nullptr, out.pointer, 1u, 4));
  SHOW(cuStreamSynchronize(nullptr));
  printf("%u\n", out.read()[3]);
}

CASE(null_handles_everywhere) {
  Gpu gpu;
  CUfunction function = nullptr;
  int value = 0;
  SHOW(cuModuleGetFunction(&function, nullptr, "fill"));
  SHOW(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr));
  SHOW(cuEventQuery(nullptr));
  SHOW(cuEventDestroy(nullptr));
  SHOW(cuModuleUnload(nullptr));
  SHOW(cuLibraryUnload(nullptr));
  SHOW(cuGraphDestroy(nullptr));
  SHOW(cuGraphExecDestroy(nullptr));
  SHOW(cuGraphLaunch(nullptr, nullptr));
  SHOW(cuLinkDestroy(nullptr));
  SHOW(cuMemPoolDestroy(nullptr));
  SHOW(cuMemRelease(0));
  SHOW(cuArrayDestroy(nullptr));
  SHOW(cuTexObjectDestroy(0));
}

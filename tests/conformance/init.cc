// cuInit and what may be asked before it.
#include "tests/conformance/case.h"

CASE(init_twice) {
  SHOW(cuInit(0));
  SHOW(cuInit(0));
}

CASE(init_with_flags) {
  SHOW(cuInit(1));
  int count = -1;
  SHOW(cuDeviceGetCount(&count));
  SHOW(cuInit(0));
}

CASE(init_with_all_flags_after_init) {
  SHOW(cuInit(0));
  SHOW(cuInit(0xffffffffu));
}

CASE(device_count_before_init) {
  int count = -1;
  SHOW(cuDeviceGetCount(&count));
  printf("count %d\n", count);
}

CASE(device_questions_before_init) {
  CUdevice device = -7;
  SHOW(cuDeviceGet(&device, 0));
  int value = -1;
  SHOW(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  char name[64] = "untouched";
  SHOW(cuDeviceGetName(name, sizeof(name), 0));
  size_t bytes = 1;
  SHOW(cuDeviceTotalMem(&bytes, 0));
  CUuuid uuid;
  SHOW(cuDeviceGetUuid(&uuid, 0));
  printf("%d %d %s %zu\n", device, value, name, bytes);
}

CASE(driver_version_before_init) {
  int version = 0;
  SHOW(cuDriverGetVersion(&version));
  printf("at least 13.0: %s\n", version >= 13000 ? "yes" : "no");
  SHOW(cuDriverGetVersion(nullptr));
}

CASE(driver_version_is_the_same_after_init) {
  int before = 0, after = 0;
  CU(cuDriverGetVersion(&before));
  CU(cuInit(0));
  SHOW(cuDriverGetVersion(&after));
  printf("same: %s\n", before == after ? "yes" : "no");
}

CASE(error_texts_before_init) {
  const char* text = nullptr;
  SHOW(cuGetErrorName(CUDA_ERROR_NOT_INITIALIZED, &text));
  printf("%s\n", text);
  SHOW(cuGetErrorString(CUDA_ERROR_NOT_INITIALIZED, &text));
  printf("%s\n", text);
}

CASE(current_context_before_init) {
  CUcontext context = reinterpret_cast<CUcontext>(8);
  SHOW(cuCtxGetCurrent(&context));
  printf("%s\n", context == nullptr ? "null" : context == reinterpret_cast<CUcontext>(8) ? "untouched" : "set");
  SHOW(cuCtxSetCurrent(nullptr));
  SHOW(cuCtxPopCurrent(&context));
  CUdevice device;
  SHOW(cuCtxGetDevice(&device));
  SHOW(cuCtxSynchronize());
}

CASE(memory_calls_before_init) {
  CUdeviceptr pointer = 5;
  SHOW(cuMemAlloc(&pointer, 16));
  SHOW(cuMemFree(pointer));
  SHOW(cuMemFree(0));
  size_t free_bytes = 0, total = 0;
  SHOW(cuMemGetInfo(&free_bytes, &total));
  void* host = nullptr;
  SHOW(cuMemAllocHost(&host, 16));
  SHOW(cuMemHostAlloc(&host, 16, 0));
  SHOW(cuMemsetD8(16, 0, 16));
  printf("%llu\n", static_cast<unsigned long long>(pointer));
}

CASE(bad_arguments_before_init) {
  SHOW(cuDeviceGetCount(nullptr));
  SHOW(cuDeviceGet(nullptr, 0));
  SHOW(cuMemAlloc(nullptr, 0));
  SHOW(cuCtxGetCurrent(nullptr));
  SHOW(cuStreamCreate(nullptr, 77));
  SHOW(cuEventCreate(nullptr, 77));
}

CASE(stream_and_event_calls_before_init) {
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, 0));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(nullptr));
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, 0));
  SHOW(cuEventQuery(nullptr));
  SHOW(cuEventRecord(nullptr, nullptr));
}

CASE(module_calls_before_init) {
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, "x"));
  SHOW(cuModuleLoad(&module, "/nonexistent"));
  CUfunction function = nullptr;
  SHOW(cuModuleGetFunction(&function, nullptr, "f"));
  CUlibrary library = nullptr;
  SHOW(cuLibraryLoadData(&library, "x", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUmoduleLoadingMode mode;
  SHOW(cuModuleGetLoadingMode(&mode));
}

CASE(primary_context_before_init) {
  CUcontext context = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&context, 0));
  unsigned flags = 0;
  int active = -1;
  SHOW(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SHOW(cuDevicePrimaryCtxRelease(0));
  SHOW(cuDevicePrimaryCtxReset(0));
  SHOW(cuDevicePrimaryCtxSetFlags(0, 0));
  SHOW(cuCtxCreate(&context, nullptr, 0, 0));
}

CASE(pointer_questions_before_init) {
  int type = -1;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096));
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, 4096));
}

CASE(graph_calls_before_init) {
  CUgraph graph = nullptr;
  SHOW(cuGraphCreate(&graph, 0));
  SHOW(cuGraphDestroy(nullptr));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
}

CASE(proc_address_before_init) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  SHOW(cuGetProcAddress("cuInit", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
  printf("found %s, status %d\n", found != nullptr ? "yes" : "no", static_cast<int>(status));
  if (found != nullptr) SHOW(reinterpret_cast<CUresult (*)(unsigned)>(found)(0));
}

CASE(profiler_before_init) {
  SHOW(cuProfilerStart());
  SHOW(cuProfilerStop());
}

CASE(export_table_before_init) {
  const void* table = nullptr;
  CUuuid nobody = {};
  SHOW(cuGetExportTable(&table, &nobody));
  SHOW(cuGetExportTable(nullptr, &nobody));
}

CASE(link_before_init) {
  CUlinkState state = nullptr;
  SHOW(cuLinkCreate(0, nullptr, nullptr, &state));
}

// Streams: creation, questions, waiting, callbacks, attributes.
#include "tests/conformance/gate.h"

CASES_HOLD_STREAMS;

CASE(create_and_destroy) {
  Gpu gpu;
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  SHOW(cuStreamDestroy(stream));
  SHOW(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamDestroy(stream));
}

CASE(create_bad_arguments) {
  Gpu gpu;
  CUstream stream = nullptr;
  SHOW(cuStreamCreate(nullptr, 0));
  SHOW(cuStreamCreate(&stream, 2));
  SHOW(cuStreamCreate(&stream, 0xffffffffu));
  SHOW(cuStreamCreateWithPriority(nullptr, 0, 0));
  SHOW(cuStreamCreateWithPriority(&stream, 2, 0));
  printf("%s\n", stream == nullptr ? "null" : "set");
}

CASE(priorities_are_clamped) {
  Gpu gpu;
  int least = 0, greatest = 0;
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  for (int wanted : {0, -1, greatest, -1000, 1, 1000}) {
    CUstream stream = nullptr;
    const CUresult result = cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, wanted);
    int priority = 99;
    CU(cuStreamGetPriority(stream, &priority));
    printf("%s, %s\n", code_name(result), priority == wanted ? "as wanted" : priority == greatest ? "greatest" : priority == least ? "least" : "another");
    CU(cuStreamDestroy(stream));
  }
}

CASE(priority_of_default_streams) {
  Gpu gpu;
  int priority = 99;
  SHOW(cuStreamGetPriority(nullptr, &priority));
  printf("%d\n", priority);
  SHOW(cuStreamGetPriority(CU_STREAM_LEGACY, &priority));
  printf("%d\n", priority);
  SHOW(cuStreamGetPriority(CU_STREAM_PER_THREAD, &priority));
  printf("%d\n", priority);
  SHOW(cuStreamGetPriority(nullptr, nullptr));
}

CASE(flags) {
  Gpu gpu;
  CUstream plain = nullptr, free_running = nullptr;
  CU(cuStreamCreate(&plain, 0));
  CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
  unsigned flags = 99;
  SHOW(cuStreamGetFlags(plain, &flags));
  printf("%u\n", flags);
  SHOW(cuStreamGetFlags(free_running, &flags));
  printf("%u\n", flags);
  SHOW(cuStreamGetFlags(nullptr, &flags));
  printf("%u\n", flags);
  SHOW(cuStreamGetFlags(CU_STREAM_LEGACY, &flags));
  printf("%u\n", flags);
  SHOW(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
  printf("%u\n", flags);
  SHOW(cuStreamGetFlags(plain, nullptr));
}

CASE(ids) {
  Gpu gpu;
  CUstream one = nullptr, two = nullptr;
  CU(cuStreamCreate(&one, 0));
  CU(cuStreamCreate(&two, 0));
  unsigned long long a = 0, b = 0, again = 0, legacy = 0, of_null = 1;
  SHOW(cuStreamGetId(one, &a));
  SHOW(cuStreamGetId(two, &b));
  SHOW(cuStreamGetId(one, &again));
  SHOW(cuStreamGetId(nullptr, &of_null));
  SHOW(cuStreamGetId(CU_STREAM_LEGACY, &legacy));
  printf("differ %s, stays %s, null is legacy %s\n", a != b ? "yes" : "no", a == again ? "yes" : "no", legacy == of_null ? "yes" : "no");
  SHOW(cuStreamGetId(one, nullptr));
}

CASE(context_and_device) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUcontext context = nullptr;
  SHOW(cuStreamGetCtx(stream, &context));
  printf("same: %s\n", context == gpu.context ? "yes" : "no");
  context = nullptr;
  SHOW(cuStreamGetCtx(nullptr, &context));
  printf("same: %s\n", context == gpu.context ? "yes" : "no");
  SHOW(cuStreamGetCtx(stream, nullptr));
  CUdevice device = -1;
  SHOW(cuStreamGetDevice(stream, &device));
  printf("%d\n", device);
  SHOW(cuStreamGetDevice(nullptr, &device));
  SHOW(cuStreamGetDevice(stream, nullptr));
}

CASE(context_of_a_foreign_stream) {
  Gpu gpu;
  CUcontext own = nullptr, found = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuCtxSetCurrent(gpu.context));
  SHOW(cuStreamGetCtx(stream, &found));
  printf("its own: %s\n", found == own ? "yes" : "no");
  CU(cuCtxDestroy(own));
}

CASE(destroy_default_streams) {
  Gpu gpu;
  SHOW(cuStreamDestroy(nullptr));
  SHOW(cuStreamDestroy(CU_STREAM_LEGACY));
  SHOW(cuStreamDestroy(CU_STREAM_PER_THREAD));
}

CASE(destroy_with_work_left) {
  Gpu gpu;
  DeviceArray<uint32_t> data(64);
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.stop(stream);
  CU(cuMemsetD32Async(data.pointer, 77, 64, stream));
  SHOW(cuStreamDestroy(stream));
  gate.open();
  CU(cuCtxSynchronize());
  printf("%u\n", data.read()[63]);
}

CASE(destroy_first_version) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuStreamDestroy_v1(stream));
}

CASE(query_idle_and_busy) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(cuStreamQuery(stream));
  gate.stop(stream);
  SHOW(cuStreamQuery(stream));
  gate.open();
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuStreamQuery(stream));
  SHOW(cuStreamQuery(nullptr));
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
}

CASE(wait_event_orders_streams) {
  Gpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(32, 1));
  Gate gate;
  CUstream one = nullptr, two = nullptr;
  CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  gate.stop(one);
  LAUNCH(module.function("step"), {1}, {32}, 0, one, data.pointer, 10u, 1u, 32);
  CU(cuEventRecord(event, one));
  SHOW(cuStreamWaitEvent(two, event, 0));
  LAUNCH(module.function("step"), {1}, {32}, 0, two, data.pointer, 10u, 2u, 32);
  SHOW(cuStreamQuery(two));
  gate.open();
  SHOW(cuStreamSynchronize(two));
  printf("%u\n", data.read()[0]);
}

CASE(wait_event_bad_arguments) {
  Gpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuStreamWaitEvent(nullptr, nullptr, 0));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  SHOW(cuStreamWaitEvent(nullptr, event, 77));
  SHOW(cuStreamWaitEvent(nullptr, event, CU_EVENT_WAIT_EXTERNAL));
}

static void remember(void* where) { *static_cast<int*>(where) += 1; }
static void remember_status(CUstream, CUresult status, void* where) { *static_cast<CUresult*>(where) = status; }

CASE(host_function) {
  Gpu gpu;
  int count = 0;
  SHOW(cuLaunchHostFunc(nullptr, remember, &count));
  SHOW(cuStreamSynchronize(nullptr));
  printf("%d\n", count);
  SHOW(cuLaunchHostFunc(nullptr, nullptr, &count));
  SHOW(cuCtxSynchronize());
}

CASE(host_functions_run_in_order) {
  Gpu gpu;
  static std::vector<int> order;
  static int numbers[20];
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 20; ++i) {
    numbers[i] = i;
    CU(cuLaunchHostFunc(stream, [](void* n) { order.push_back(*static_cast<int*>(n)); }, &numbers[i]));
  }
  CU(cuStreamSynchronize(stream));
  for (int n : order) printf("%d ", n);
  printf("\n");
}

CASE(work_waits_for_a_host_function) {
  Gpu gpu;
  static int* pinned;
  void* memory = nullptr;
  CU(cuMemHostAlloc(&memory, 64, 0));
  pinned = static_cast<int*>(memory);
  *pinned = 1;
  DeviceArray<int> data(1);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuLaunchHostFunc(stream, [](void*) { *pinned = 42; }, nullptr));
  CU(cuMemcpyHtoDAsync(data.pointer, pinned, 4, stream));
  CU(cuStreamSynchronize(stream));
  printf("%d\n", data.read()[0]);
  CU(cuMemFreeHost(memory));
}

CASE(cuda_inside_a_host_function) {
  Gpu gpu;
  static CUresult result = CUDA_ERROR_UNKNOWN, counted = CUDA_ERROR_UNKNOWN;
  CU(cuLaunchHostFunc(nullptr, [](void*) {
    CUdeviceptr memory = 0;
    result = cuMemAlloc(&memory, 16);
    int count = 0;
    counted = cuDeviceGetCount(&count);
  }, nullptr));
  CU(cuStreamSynchronize(nullptr));
  printf("%s %s\n", code_name(result), code_name(counted));
}

CASE(callback) {
  Gpu gpu;
  CUresult status = CUDA_ERROR_UNKNOWN;
  SHOW(cuStreamAddCallback(nullptr, remember_status, &status, 0));
  SHOW(cuStreamSynchronize(nullptr));
  printf("%s\n", code_name(status));
  SHOW(cuStreamAddCallback(nullptr, nullptr, nullptr, 0));
  SHOW(cuStreamAddCallback(nullptr, remember_status, &status, 1));
}

CASE(callback_gets_its_stream) {
  Gpu gpu;
  static CUstream seen;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuStreamAddCallback(stream, [](CUstream s, CUresult, void*) { seen = s; }, nullptr, 0));
  CU(cuStreamSynchronize(stream));
  printf("same: %s\n", seen == stream ? "yes" : "no");
}

CASE(attributes_get_and_set) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUstreamAttrValue value = {};
  SHOW(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  SHOW(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  value = {};
  SHOW(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
  SHOW(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
  printf("%d\n", value.priority);
  SHOW(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
  printf("%d\n", static_cast<int>(value.memSyncDomain));
}

CASE(attribute_access_policy_window) {
  Gpu gpu;
  DeviceArray<uint32_t> data(1024);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUstreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(data.pointer);
  value.accessPolicyWindow.num_bytes = data.bytes();
  value.accessPolicyWindow.hitRatio = 1.0f;
  value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
  value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
  SHOW(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
  value = {};
  SHOW(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
  printf("same base %s, %zu bytes, ratio %g, %d %d\n", value.accessPolicyWindow.base_ptr == reinterpret_cast<void*>(data.pointer) ? "yes" : "no",
         value.accessPolicyWindow.num_bytes, value.accessPolicyWindow.hitRatio, static_cast<int>(value.accessPolicyWindow.hitProp),
         static_cast<int>(value.accessPolicyWindow.missProp));
}

CASE(attributes_bad_arguments) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUstreamAttrValue value = {};  // NULL crashes natively
  SHOW(cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(99), &value));
  SHOW(cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(99), &value));
  SHOW(cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(CU_LAUNCH_ATTRIBUTE_COOPERATIVE), &value));
  SHOW(cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(CU_LAUNCH_ATTRIBUTE_COOPERATIVE), &value));
  value.syncPolicy = static_cast<CUsynchronizationPolicy>(77);
  SHOW(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
}

CASE(attributes_of_the_default_stream) {
  Gpu gpu;
  CUstreamAttrValue value = {};
  SHOW(cuStreamGetAttribute(nullptr, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
  SHOW(cuStreamGetAttribute(nullptr, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
  SHOW(cuStreamSetAttribute(nullptr, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
}

CASE(set_priority_as_attribute) {
  Gpu gpu;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CUstreamAttrValue value = {};
  value.priority = -2;
  SHOW(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
  int priority = 99;
  SHOW(cuStreamGetPriority(stream, &priority));
  printf("%d\n", priority);
}

CASE(copy_attributes) {
  Gpu gpu;
  CUstream one = nullptr, two = nullptr;
  CU(cuStreamCreate(&one, 0));
  CU(cuStreamCreate(&two, 0));
  CUstreamAttrValue value = {};
  value.syncPolicy = CU_SYNC_POLICY_SPIN;
  CU(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  SHOW(cuStreamCopyAttributes(two, one));
  value = {};
  CU(cuStreamGetAttribute(two, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  printf("%d\n", static_cast<int>(value.syncPolicy));
  SHOW(cuStreamCopyAttributes(one, one));
  SHOW(cuStreamCopyAttributes(nullptr, one));
}

CASE(is_capturing_when_not) {
  Gpu gpu;
  CUstreamCaptureStatus status = static_cast<CUstreamCaptureStatus>(9);
  SHOW(cuStreamIsCapturing(nullptr, &status));
  printf("%d\n", static_cast<int>(status));
  SHOW(cuStreamIsCapturing(nullptr, nullptr));
  CUgraph graph = nullptr;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuStreamEndCapture(stream, &graph));
  SHOW(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
}

CASE(attach_memory_that_is_not_managed) {
  Gpu gpu;
  DeviceArray<uint32_t> data(64);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  SHOW(cuStreamAttachMemAsync(stream, data.pointer, 0, CU_MEM_ATTACH_SINGLE));
  SHOW(cuStreamAttachMemAsync(stream, 0, 0, CU_MEM_ATTACH_SINGLE));
}

CASE(many_streams) {
  Gpu gpu;
  DeviceArray<uint32_t> data(256);
  std::vector<CUstream> streams(256);
  for (auto& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (size_t i = 0; i < streams.size(); ++i) CU(cuMemsetD32Async(data.pointer + 4 * i, static_cast<unsigned>(i), 1, streams[i]));
  SHOW(cuCtxSynchronize());
  const auto values = data.read();
  bool right = true;
  for (size_t i = 0; i < values.size(); ++i) right = right && values[i] == i;
  printf("right: %s\n", right ? "yes" : "no");
  for (auto& stream : streams) CU(cuStreamDestroy(stream));
}

// Usage counts, settings without effect, events of whole contexts, affinity, notifications,
// checkpoints.
#include "tests/conformance/case.h"

// ---- usage counts ----

CASE(attach_and_detach) {
  CU(cuInit(0));
  CUcontext context, attached = nullptr;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  SHOW(cuCtxAttach(&attached, 0));
  printf("%s\n", attached == context ? "the current one" : "another");
  SHOW(cuCtxDetach(attached));
  CUcontext current = nullptr;
  CU(cuCtxGetCurrent(&current));
  printf("%s\n", current == context ? "still current" : "gone");
  SHOW(cuCtxDetach(context));
  CU(cuCtxGetCurrent(&current));
  printf("%s\n", current == nullptr ? "gone" : "still there");
}

CASE(attach_bad_arguments) {
  Gpu gpu;
  CUcontext context = nullptr;
  SHOW(cuCtxAttach(nullptr, 0));
  SHOW(cuCtxAttach(&context, 1));
}

CASE(attach_without_a_context) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  SHOW(cuCtxAttach(&context, 0));
  SHOW(cuCtxDetach(nullptr));
}

CASE(detach_another_context) {
  CU(cuInit(0));
  CUcontext first, second;
  CU(cuCtxCreate(&first, nullptr, 0, 0));
  CU(cuCtxCreate(&second, nullptr, 0, 0));
  SHOW(cuCtxDetach(first));
  SHOW(cuCtxDetach(nullptr));
  CU(cuCtxDestroy(second));
  CU(cuCtxDestroy(first));
}

CASE(attach_a_primary_context) {
  Gpu gpu;
  CUcontext context = nullptr;
  SHOW(cuCtxAttach(&context, 0));
  printf("%s\n", context == gpu.context ? "the current one" : "another");
  SHOW(cuCtxDetach(context));
}

// ---- settings of older GPUs ----

CASE(shared_memory_banks) {
  Gpu gpu;
  CUsharedconfig config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  SHOW(cuCtxGetSharedMemConfig(&config));
  printf("%d\n", static_cast<int>(config));
  for (int wanted : {0, 1, 2, 3, -1}) SHOW(cuCtxSetSharedMemConfig(static_cast<CUsharedconfig>(wanted)));
  SHOW(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  SHOW(cuCtxGetSharedMemConfig(&config));
  printf("%d\n", static_cast<int>(config));
  SHOW(cuCtxGetSharedMemConfig(nullptr));
}

CASE(shared_memory_banks_of_a_function) {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction f = module.function("fill");
  for (int wanted : {0, 1, 2, 3}) SHOW(cuFuncSetSharedMemConfig(f, static_cast<CUsharedconfig>(wanted)));
  SHOW(cuFuncSetSharedMemConfig(nullptr, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
}

CASE(shared_memory_banks_without_a_context) {
  CU(cuInit(0));
  CUsharedconfig config;
  SHOW(cuCtxGetSharedMemConfig(&config));
  SHOW(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
}

CASE(persisting_cache_reset) {
  Gpu gpu;
  SHOW(cuCtxResetPersistingL2Cache());
  CU(cuCtxSynchronize());
}

CASE(persisting_cache_reset_without_a_context) {
  CU(cuInit(0));
  SHOW(cuCtxResetPersistingL2Cache());
}

// ---- affinity ----

CASE(affinity_support) {
  CU(cuInit(0));
  int value = -1;
  SHOW(cuDeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  printf("%d\n", value);
  SHOW(cuDeviceGetExecAffinitySupport(nullptr, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
  SHOW(cuDeviceGetExecAffinitySupport(&value, static_cast<CUexecAffinityType>(7), 0));
  SHOW(cuDeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 1000));
}

CASE(affinity_of_a_context) {
  Gpu gpu;
  CUexecAffinityParam param{};
  const CUresult result = cuCtxGetExecAffinity(&param, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
  printf("%s\n", code_name(result));
  int sms = 0;
  CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  if (result == CUDA_SUCCESS) printf("%s\n", param.param.smCount.val == static_cast<unsigned>(sms) ? "all SMs" : "some SMs");
}

CASE(affinity_bad_arguments) {
  Gpu gpu;
  CUexecAffinityParam param{};
  SHOW(cuCtxGetExecAffinity(nullptr, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
  SHOW(cuCtxGetExecAffinity(&param, static_cast<CUexecAffinityType>(7)));
}

CASE(create_with_affinity) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CUexecAffinityParam param{};
  param.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
  param.param.smCount.val = 8;
  SHOW(cuCtxCreate_v3(&context, &param, 1, 0, 0));
  SHOW(cuCtxCreate_v3(&context, nullptr, 1, 0, 0));
  SHOW(cuCtxCreate_v3(&context, &param, -1, 0, 0));
}

CASE(create_with_parameters) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CUexecAffinityParam affinity{};
  affinity.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
  affinity.param.smCount.val = 8;
  CUctxCreateParams params{};
  params.execAffinityParams = &affinity;
  params.numExecAffinityParams = 1;
  SHOW(cuCtxCreate_v4(&context, &params, 0, 0));
  params = {};
  SHOW(cuCtxCreate_v4(&context, &params, 0, 0));
  SHOW(cuCtxDestroy(context));
}

// ---- events of a whole context ----

namespace {

struct TwoStreams : Gpu {
  Module module{"kernels.fatbin"};
  CUfunction step = module.function("slow_step");
  CUstream a = nullptr, b = nullptr;
  CUevent event = nullptr;
  DeviceArray<uint32_t> data{32};
  TwoStreams() {
    CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuMemsetD32(data.pointer, 1, 32));
    CU(cuCtxSynchronize());
  }
  ~TwoStreams() {
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(a));
    CU(cuStreamDestroy(b));
  }
  void launch(CUstream stream, uint32_t factor, uint32_t addend) {
    LAUNCH(step, {1}, {32}, 0, stream, data.pointer, factor, addend, 32, 2000);
  }
};

}  // namespace

CASE(record_covers_every_stream) {
  TwoStreams t;
  t.launch(t.a, 3, 1);
  SHOW(cuCtxRecordEvent(t.context, t.event));
  CU(cuStreamWaitEvent(t.b, t.event, 0));
  t.launch(t.b, 5, 2);
  CU(cuStreamSynchronize(t.b));
  print_hash("data", t.data.read());
}

CASE(recorded_event_can_be_waited_for) {
  TwoStreams t;
  t.launch(t.a, 3, 1);
  CU(cuCtxRecordEvent(t.context, t.event));
  SHOW(cuEventSynchronize(t.event));
  SHOW(cuStreamQuery(t.a));
  SHOW(cuEventQuery(t.event));
}

CASE(record_again) {
  TwoStreams t;
  for (int i = 0; i < 5; ++i) {
    t.launch(t.a, 3, 1);
    CU(cuCtxRecordEvent(t.context, t.event));
    CU(cuStreamWaitEvent(t.b, t.event, 0));
    t.launch(t.b, 5, 2);
    CU(cuCtxRecordEvent(t.context, t.event));
    CU(cuStreamWaitEvent(t.a, t.event, 0));
  }
  CU(cuCtxSynchronize());
  print_hash("data", t.data.read());
}

CASE(wait_holds_every_stream) {
  TwoStreams t;
  t.launch(t.a, 3, 1);
  CU(cuEventRecord(t.event, t.a));
  SHOW(cuCtxWaitEvent(t.context, t.event));
  t.launch(t.b, 5, 2);
  CU(cuStreamSynchronize(t.b));
  print_hash("data", t.data.read());
}

CASE(wait_for_an_unrecorded_event) {
  TwoStreams t;
  SHOW(cuCtxWaitEvent(t.context, t.event));
  SHOW(cuCtxSynchronize());
}

CASE(context_event_bad_arguments) {
  TwoStreams t;
  SHOW(cuCtxRecordEvent(t.context, nullptr));
  SHOW(cuCtxWaitEvent(t.context, nullptr));
  SHOW(cuCtxRecordEvent(nullptr, t.event));
  SHOW(cuCtxWaitEvent(nullptr, t.event));
}

CASE(record_an_event_of_another_context) {
  TwoStreams t;
  CUcontext other;
  CU(cuCtxCreate(&other, nullptr, 0, 0));
  SHOW(cuCtxRecordEvent(other, t.event));
  SHOW(cuCtxWaitEvent(other, t.event));
  CU(cuCtxDestroy(other));
}

CASE(record_while_capturing) {
  TwoStreams t;
  CU(cuStreamBeginCapture(t.a, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuCtxRecordEvent(t.context, t.event));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(t.a, &graph));
}

CASE(wait_while_capturing) {
  TwoStreams t;
  CU(cuEventRecord(t.event, t.b));
  CU(cuStreamBeginCapture(t.a, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuCtxWaitEvent(t.context, t.event));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(t.a, &graph));
}

// ---- notifications, checkpoints, profiler ----

CASE(async_notification) {
  CU(cuInit(0));
  CUasyncCallbackHandle handle = nullptr;
  auto callback = [](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {};
  const CUresult result = cuDeviceRegisterAsyncNotification(0, callback, nullptr, &handle);
  printf("%s\n", code_name(result));
  if (result == CUDA_SUCCESS) SHOW(cuDeviceUnregisterAsyncNotification(0, handle));
}

CASE(async_notification_bad_arguments) {
  CU(cuInit(0));
  CUasyncCallbackHandle handle = nullptr;
  auto callback = [](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {};
  SHOW(cuDeviceRegisterAsyncNotification(0, nullptr, nullptr, &handle));
  SHOW(cuDeviceRegisterAsyncNotification(1000, callback, nullptr, &handle));
  SHOW(cuDeviceUnregisterAsyncNotification(0, nullptr));
}

CASE(checkpoint_state) {
  Gpu gpu;
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  SHOW(cuCheckpointProcessGetState(static_cast<int>(getpid()), &state));
  printf("%d\n", static_cast<int>(state));
  SHOW(cuCheckpointProcessGetState(static_cast<int>(getpid()), nullptr));
  SHOW(cuCheckpointProcessGetState(0, &state));
  SHOW(cuCheckpointProcessGetState(999999999, &state));
}

CASE(checkpoint_of_a_running_process) {
  Gpu gpu;
  int thread = 0;
  const int self = static_cast<int>(getpid());
  SHOW(cuCheckpointProcessGetRestoreThreadId(self, &thread));
  printf("%s\n", thread > 0 ? "a thread" : "no thread");
  SHOW(cuCheckpointProcessUnlock(self, nullptr));
  SHOW(cuCheckpointProcessCheckpoint(self, nullptr));
  SHOW(cuCheckpointProcessRestore(self, nullptr));
}

CASE(checkpoint_of_no_process) {
  Gpu gpu;
  int thread = 0;
  SHOW(cuCheckpointProcessGetRestoreThreadId(999999999, &thread));
  SHOW(cuCheckpointProcessLock(999999999, nullptr));
  SHOW(cuCheckpointProcessCheckpoint(999999999, nullptr));
  SHOW(cuCheckpointProcessRestore(999999999, nullptr));
  SHOW(cuCheckpointProcessUnlock(999999999, nullptr));
}

CASE(profiler_initialize) {
  Gpu gpu;
  SHOW(cuProfilerInitialize("", "", CU_OUT_CSV));
  SHOW(cuProfilerInitialize(nullptr, nullptr, CU_OUT_KEY_VALUE_PAIR));
}

CASE(sci_sync_attributes) {
  CU(cuInit(0));
  SHOW(cuDeviceGetNvSciSyncAttributes(nullptr, 0, 0));
}

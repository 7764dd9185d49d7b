// Where errors show: at the call, at a later one, for good (sticky) or once.
#include "tests/conformance/streams.h"

CASES_HOLD_STREAMS;

namespace {

// Objects that nobody destroys: after a sticky error that fails.
struct Broken {
  Gpu* gpu = left_behind<Gpu>();
  Module* module = left_behind<Module>("kernels.fatbin");
  DeviceArray<uint32_t>* data = left_behind<DeviceArray<uint32_t>>(std::vector<uint32_t>(64, 1));
  Apart* a = left_behind<Apart>();
  Event* event = left_behind<Event>();
  void store_to_null(CUstream stream) const { LAUNCH(module->function("poke"), {1}, {1}, 0, stream, static_cast<CUdeviceptr>(0), 1u); }
};

}  // namespace

CASE(bad_launch_is_reported_at_once_and_leaves_nothing) {
  Order o;
  Apart a;
  SHOW(try_launch(o.kernel, {0}, {32}, 0, a, o.value.pointer, 3u, 1u, 32));
  SHOW(try_launch(o.kernel, {1}, {2048}, 0, a, o.value.pointer, 3u, 1u, 32));
  SHOW(try_launch(o.kernel, {1}, {32}, 1u << 28, a, o.value.pointer, 3u, 1u, 32));
  SHOW(cuStreamSynchronize(a));
  SHOW(cuCtxSynchronize());
  o.first(a);
  o.finish();
}
CASE(bad_memset_is_not_sticky) {
  Order o;
  Apart a;
  SHOW(cuMemsetD8(0, 1, 16));
  SHOW(cuMemsetD8Async(0, 1, 16, a));
  (void)cuStreamSynchronize(a);
  SHOW(cuCtxSynchronize());
  o.first(a);
  o.finish();
}
CASE(bad_copy_is_not_sticky) {
  Order o;
  Apart a;
  uint32_t word = 0;
  SHOW(cuMemcpyDtoH(&word, 0, 4));
  SHOW(cuMemcpyHtoD(0, &word, 4));
  SHOW(cuMemcpyDtoD(o.value.pointer, 0, 4));
  SHOW(cuMemcpyDtoHAsync(&word, 0, 4, a));
  (void)cuStreamSynchronize(a);
  SHOW(cuCtxSynchronize());
  o.first(a);
  o.finish();
}
CASE(bad_free_is_not_sticky) {
  Order o;
  SHOW(cuMemFree(0));
  SHOW(cuMemFree(o.value.pointer + 4));
  SHOW(cuMemFree(0x1234));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 16));
  SHOW(cuMemFree(memory));
  SHOW(cuMemFree(memory));
  SHOW(cuCtxSynchronize());
  o.finish();
}
CASE(out_of_memory_is_not_sticky) {
  Order o;
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, size_t{1} << 50));
  SHOW(cuMemAlloc(&memory, 0));
  SHOW(cuCtxSynchronize());
  o.first(nullptr);
  o.finish();
}
CASE(not_ready_is_no_error) {
  Order o;
  Apart a;
  o.hold(a);
  SHOW(cuStreamQuery(a));
  SHOW(cuStreamQuery(a));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 16));
  o.gate.open();
  SHOW(cuMemFree(memory));
  o.finish();
}
FAULTING_CASE(fault_shows_at_the_stream) {
  Broken b;
  b.store_to_null(*b.a);
  SHOW(cuStreamSynchronize(*b.a));
  SHOW(cuStreamSynchronize(*b.a));
  SHOW(cuStreamQuery(*b.a));
}
FAULTING_CASE(fault_shows_at_another_stream) {
  Broken b;
  b.store_to_null(*b.a);
  SHOW(cuCtxSynchronize());
  SHOW(cuStreamQuery(nullptr));
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}
FAULTING_CASE(fault_shows_at_an_event) {
  Broken b;
  auto* gate = left_behind<Gate>();
  gate->hold(*b.a);
  b.store_to_null(*b.a);
  CU(cuEventRecord(*b.event, *b.a));
  gate->open();
  SHOW(cuEventSynchronize(*b.event));
  SHOW(cuEventQuery(*b.event));
  SHOW(cuEventDestroy(b.event->handle));
}
FAULTING_CASE(fault_shows_at_a_copy) {
  Broken b;
  b.store_to_null(nullptr);
  uint32_t word = 0;
  SHOW(cuMemcpyDtoH(&word, b.data->pointer, 4));
  SHOW(cuMemcpyHtoD(b.data->pointer, &word, 4));
}
FAULTING_CASE(fault_stays_in_every_call) {
  Broken b;
  CUfunction step = b.module->function("step");
  b.store_to_null(*b.a);
  SHOW(cuCtxSynchronize());
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUcontext context = nullptr;
  size_t free_bytes = 0, total = 0;
  int count = 0;
  void* host = nullptr;
  SHOW(cuMemAlloc(&memory, 16));
  SHOW(cuMemFree(b.data->pointer));
  SHOW(cuMemHostAlloc(&host, 16, 0));
  SHOW(cuMemsetD8(b.data->pointer, 0, 16));
  SHOW(cuMemGetInfo(&free_bytes, &total));
  SHOW(cuStreamCreate(&stream, 0));
  SHOW(cuStreamDestroy(b.a->handle));
  SHOW(cuEventCreate(&event, 0));
  SHOW(cuEventRecord(*b.event, nullptr));
  SHOW(cuModuleLoadData(&module, read_beside("kernels.fatbin").data()));
  SHOW(cuModuleGetFunction(&function, b.module->handle, "step"));
  SHOW(try_launch(step, {1}, {32}, 0, nullptr, b.data->pointer, 3u, 1u, 32));
  SHOW(cuCtxGetCurrent(&context));
  SHOW(cuDeviceGetCount(&count));
  SHOW(cuCtxSetCurrent(b.gpu->context));
  SHOW(cuInit(0));
}
FAULTING_CASE(fault_and_questions_about_the_context) {
  Broken b;
  b.store_to_null(*b.a);
  SHOW(cuCtxSynchronize());
  CUdevice device = 0;
  unsigned flags = 0;
  SHOW(cuCtxGetDevice(&device));
  SHOW(cuCtxGetFlags(&flags));
}
FAULTING_CASE(fault_and_the_end_of_the_context) {
  Broken b;
  b.store_to_null(*b.a);
  SHOW(cuCtxSynchronize());
  SHOW(cuDevicePrimaryCtxReset(0));
  CUcontext context = nullptr;
  SHOW(cuDevicePrimaryCtxRetain(&context, 0));
  SHOW(cuCtxSetCurrent(context));
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 16));
}
FAULTING_CASE(fault_reaches_host_functions_and_callbacks) {
  Broken b;
  static std::atomic<int> functions, callbacks;
  static std::atomic<int> code;
  auto* gate = left_behind<Gate>();
  gate->hold(*b.a);
  b.store_to_null(*b.a);
  SHOW(cuLaunchHostFunc(*b.a, [](void*) { ++functions; }, nullptr));
  SHOW(cuStreamAddCallback(*b.a, [](CUstream, CUresult status, void*) { code = status; ++callbacks; }, nullptr, 0));
  gate->open();
  SHOW(cuStreamSynchronize(*b.a));
  printf("host functions run: %d\n", functions.load());
  // The callback may come a moment after the error.
  for (int i = 0; i < 10'000'000 && callbacks.load() == 0; ++i) std::this_thread::yield();
  printf("code of callbacks that ran: %s\n", callbacks.load() == 0 ? "none ran yet" : code_name(static_cast<CUresult>(code.load())));
}

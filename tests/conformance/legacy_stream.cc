// The legacy default stream: waits for every blocking stream, and every blocking stream waits for
// it.
#include "tests/conformance/gate.h"

CASES_HOLD_STREAMS;

namespace {
struct Streams {
  Gpu gpu;
  Gate gate;
  CUstream blocking = nullptr, free_running = nullptr;
  CUdeviceptr a = 0, b = 0;
  Streams() {
    CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&a, 64));
    CU(cuMemAlloc(&b, 64));
    CU(cuMemsetD32(a, 0, 16));
    CU(cuMemsetD32(b, 0, 16));
    CU(cuCtxSynchronize());
  }
  uint32_t value(CUdeviceptr where) {
    uint32_t number = 0;
    CU(cuMemcpyDtoHAsync(&number, where, 4, free_running));
    CU(cuStreamSynchronize(free_running));
    return number;
  }
};
}  // namespace

CASE(legacy_waits_for_a_blocking_stream) {
  Streams s;
  s.gate.stop(s.blocking);
  CU(cuMemsetD32Async(s.a, 1, 1, nullptr));
  SHOW(cuStreamQuery(nullptr));
  printf("%u\n", s.value(s.a));
  s.gate.open();
  SHOW(cuStreamSynchronize(nullptr));
  printf("%u\n", s.value(s.a));
}

CASE(blocking_stream_waits_for_legacy) {
  Streams s;
  s.gate.stop(nullptr);
  CU(cuMemsetD32Async(s.a, 1, 1, s.blocking));
  SHOW(cuStreamQuery(s.blocking));
  printf("%u\n", s.value(s.a));
  s.gate.open();
  SHOW(cuStreamSynchronize(s.blocking));
  printf("%u\n", s.value(s.a));
}

CASE(non_blocking_stream_does_not_wait) {
  Streams s;
  s.gate.stop(nullptr);
  CU(cuMemsetD32Async(s.a, 1, 1, s.free_running));
  SHOW(cuStreamSynchronize(s.free_running));
  printf("%u\n", s.value(s.a));
  SHOW(cuStreamQuery(nullptr));
  s.gate.open();
  SHOW(cuStreamSynchronize(nullptr));
}

CASE(legacy_does_not_wait_for_a_non_blocking_stream) {
  Streams s;
  s.gate.stop(s.free_running);
  CU(cuMemsetD32Async(s.a, 1, 1, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(s.free_running));
  s.gate.open();
  SHOW(cuStreamSynchronize(s.free_running));
}

CASE(blocking_streams_do_not_wait_for_each_other) {
  Streams s;
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_DEFAULT));
  s.gate.stop(s.blocking);
  CU(cuMemsetD32Async(s.a, 1, 1, other));
  SHOW(cuStreamSynchronize(other));
  SHOW(cuStreamQuery(s.blocking));
  s.gate.open();
  SHOW(cuStreamSynchronize(s.blocking));
}

CASE(through_the_legacy_stream_blocking_streams_are_ordered) {
  Streams s;
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_DEFAULT));
  s.gate.stop(s.blocking);
  CU(cuMemsetD32Async(s.a, 1, 1, nullptr));
  CU(cuMemsetD32Async(s.b, 2, 1, other));
  SHOW(cuStreamQuery(other));
  printf("%u %u\n", s.value(s.a), s.value(s.b));
  s.gate.open();
  SHOW(cuStreamSynchronize(other));
  printf("%u %u\n", s.value(s.a), s.value(s.b));
}

CASE(the_name_is_the_null_stream) {
  Streams s;
  s.gate.stop(CU_STREAM_LEGACY);
  SHOW(cuStreamQuery(nullptr));
  SHOW(cuStreamQuery(CU_STREAM_LEGACY));
  s.gate.open();
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(CU_STREAM_LEGACY));
}

CASE(per_thread_stream_waits_for_legacy) {
  Streams s;
  s.gate.stop(nullptr);
  CU(cuMemsetD32Async(s.a, 1, 1, CU_STREAM_PER_THREAD));
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  s.gate.open();
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  printf("%u\n", s.value(s.a));
}

CASE(an_event_recorded_in_legacy_waits_for_blocking_streams) {
  Streams s;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  s.gate.stop(s.blocking);
  CU(cuEventRecord(event, nullptr));
  SHOW(cuEventQuery(event));
  s.gate.open();
  SHOW(cuEventSynchronize(event));
}

CASE(legacy_query_sees_blocking_streams) {
  Streams s;
  s.gate.stop(s.blocking);
  SHOW(cuStreamQuery(nullptr));
  s.gate.open();
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuStreamQuery(s.blocking));
}

CASE(a_stream_of_another_context_does_not_wait) {
  Streams s;
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 64));
  CU(cuCtxSetCurrent(s.gpu.context));
  s.gate.stop(nullptr);
  CU(cuCtxSetCurrent(own));
  CU(cuMemsetD32Async(memory, 1, 1, stream));
  SHOW(cuStreamSynchronize(stream));
  CU(cuCtxSetCurrent(s.gpu.context));
  SHOW(cuStreamQuery(nullptr));
  s.gate.open();
  SHOW(cuStreamSynchronize(nullptr));
  CU(cuCtxDestroy(own));
}

// Events: recording, asking, waiting, time between two.
#include "tests/conformance/gate.h"

CASES_HOLD_STREAMS;

CASE(create_flags) {
  Gpu gpu;
  for (unsigned flags : {0u, 1u, 2u, 3u, 6u, 7u, 4u, 8u, 16u, 0xffffffffu}) {
    CUevent event = nullptr;
    const CUresult result = cuEventCreate(&event, flags);
    printf("%#x: %s\n", flags, code_name(result));
    if (result == CUDA_SUCCESS) CU(cuEventDestroy(event));
  }
  SHOW(cuEventCreate(nullptr, 0));
}

CASE(never_recorded) {
  Gpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuEventQuery(event));
  SHOW(cuEventSynchronize(event));
  SHOW(cuStreamWaitEvent(nullptr, event, 0));
  SHOW(cuEventDestroy(event));
}

CASE(null_event) {
  Gpu gpu;
  SHOW(cuEventQuery(nullptr));
  SHOW(cuEventSynchronize(nullptr));
  SHOW(cuEventRecord(nullptr, nullptr));
  SHOW(cuEventDestroy(nullptr));
  float ms = 0;
  SHOW(cuEventElapsedTime(&ms, nullptr, nullptr));
}

CASE(record_query_synchronise) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  gate.stop(stream);
  SHOW(cuEventRecord(event, stream));
  SHOW(cuEventQuery(event));
  gate.open();
  SHOW(cuEventSynchronize(event));
  SHOW(cuEventQuery(event));
}

CASE(recorded_again_is_pending_again) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CU(cuEventRecord(event, stream));
  SHOW(cuEventSynchronize(event));
  gate.stop(stream);
  CU(cuEventRecord(event, stream));
  SHOW(cuEventQuery(event));
  gate.open();
  SHOW(cuEventSynchronize(event));
}

CASE(wait_keeps_the_record_it_saw) {
  Gpu gpu;
  Gate gate;
  CUstream one = nullptr, two = nullptr;
  CU(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CU(cuEventRecord(event, one));
  CU(cuStreamWaitEvent(two, event, 0));
  gate.stop(one);
  CU(cuEventRecord(event, one));
  SHOW(cuStreamSynchronize(two));
  SHOW(cuEventQuery(event));
  gate.open();
  SHOW(cuEventSynchronize(event));
}

CASE(elapsed_time) {
  Gpu gpu;
  CUevent start = nullptr, end = nullptr;
  CU(cuEventCreate(&start, 0));
  CU(cuEventCreate(&end, 0));
  CU(cuEventRecord(start, nullptr));
  DeviceArray<uint32_t> data(1 << 16);
  CU(cuMemsetD32(data.pointer, 1, 1 << 16));
  CU(cuEventRecord(end, nullptr));
  CU(cuEventSynchronize(end));
  float ms = -1;
  SHOW(cuEventElapsedTime(&ms, start, end));
  printf("not negative: %s\n", ms >= 0 ? "yes" : "no");
  SHOW(cuEventElapsedTime(&ms, end, start));
  printf("not positive: %s\n", ms <= 0 ? "yes" : "no");
  SHOW(cuEventElapsedTime(&ms, start, start));
  printf("%g\n", ms);
  SHOW(cuEventElapsedTime(nullptr, start, end));
}

CASE(elapsed_time_first_version) {
  Gpu gpu;
  CUevent start = nullptr, end = nullptr;
  CU(cuEventCreate(&start, 0));
  CU(cuEventCreate(&end, 0));
  CU(cuEventRecord(start, nullptr));
  CU(cuEventRecord(end, nullptr));
  CU(cuEventSynchronize(end));
  float ms = -1;
  SHOW(cuEventElapsedTime_v1(&ms, start, end));
  printf("not negative: %s\n", ms >= 0 ? "yes" : "no");
}

CASE(elapsed_time_without_timing) {
  Gpu gpu;
  CUevent start = nullptr, end = nullptr;
  CU(cuEventCreate(&start, CU_EVENT_DISABLE_TIMING));
  CU(cuEventCreate(&end, 0));
  CU(cuEventRecord(start, nullptr));
  CU(cuEventRecord(end, nullptr));
  CU(cuCtxSynchronize());
  float ms = -1;
  SHOW(cuEventElapsedTime(&ms, start, end));
  SHOW(cuEventElapsedTime(&ms, end, start));
  SHOW(cuEventElapsedTime(&ms, start, start));
}

CASE(elapsed_time_of_events_never_recorded) {
  Gpu gpu;
  CUevent start = nullptr, end = nullptr;
  CU(cuEventCreate(&start, 0));
  CU(cuEventCreate(&end, 0));
  float ms = -1;
  SHOW(cuEventElapsedTime(&ms, start, end));
  CU(cuEventRecord(start, nullptr));
  CU(cuCtxSynchronize());
  SHOW(cuEventElapsedTime(&ms, start, end));
}

CASE(elapsed_time_not_ready) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent start = nullptr, end = nullptr;
  CU(cuEventCreate(&start, 0));
  CU(cuEventCreate(&end, 0));
  CU(cuEventRecord(start, stream));
  gate.stop(stream);
  CU(cuEventRecord(end, stream));
  float ms = -1;
  SHOW(cuEventElapsedTime(&ms, start, end));
  gate.open();
  CU(cuStreamSynchronize(stream));
  SHOW(cuEventElapsedTime(&ms, start, end));
}

CASE(record_with_flags) {
  Gpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuEventRecordWithFlags(event, nullptr, 0));
  SHOW(cuEventRecordWithFlags(event, nullptr, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuEventRecordWithFlags(event, nullptr, 2));
  SHOW(cuEventRecordWithFlags(nullptr, nullptr, 0));
  SHOW(cuEventSynchronize(event));
}

CASE(record_in_every_default_stream) {
  Gpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuEventRecord(event, nullptr));
  SHOW(cuEventRecord(event, CU_STREAM_LEGACY));
  SHOW(cuEventRecord(event, CU_STREAM_PER_THREAD));
  SHOW(cuEventSynchronize(event));
}

CASE(destroy_while_pending) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  gate.stop(stream);
  CU(cuEventRecord(event, stream));
  CU(cuStreamWaitEvent(nullptr, event, 0));
  SHOW(cuEventDestroy(event));
  gate.open();
  SHOW(cuStreamSynchronize(nullptr));
}

CASE(destroy_first_version) {
  Gpu gpu;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, 0));
  SHOW(cuEventDestroy_v1(event));
}

CASE(blocking_sync_event) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
  gate.stop(stream);
  CU(cuEventRecord(event, stream));
  gate.open();
  SHOW(cuEventSynchronize(event));
}

CASE(many_events) {
  Gpu gpu;
  std::vector<CUevent> events(2000);
  for (auto& event : events) CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (auto& event : events) CU(cuEventRecord(event, nullptr));
  SHOW(cuEventSynchronize(events.back()));
  int done = 0;
  for (auto& event : events) done += cuEventQuery(event) == CUDA_SUCCESS;
  printf("%d\n", done);
  for (auto& event : events) CU(cuEventDestroy(event));
}

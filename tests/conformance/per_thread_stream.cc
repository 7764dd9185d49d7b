// CU_STREAM_PER_THREAD: one stream for each thread, blocking towards the legacy stream.
#include "tests/conformance/gate.h"

#include <thread>

CASES_HOLD_STREAMS;

CASE(work_in_it) {
  Gpu gpu;
  DeviceArray<uint32_t> data(16);
  SHOW(cuMemsetD32Async(data.pointer, 9, 16, CU_STREAM_PER_THREAD));
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  printf("%u\n", data.read()[15]);
}

CASE(each_thread_has_its_own) {
  Gpu gpu;
  Gate gate;
  gate.stop(CU_STREAM_PER_THREAD);
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  std::thread other([&] {
    CU(cuCtxSetCurrent(gpu.context));
    SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
    SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
  other.join();
  gate.open();
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

CASE(ids_differ_by_thread) {
  Gpu gpu;
  unsigned long long mine = 0, others = 0, again = 0;
  SHOW(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
  std::thread other([&] {
    CU(cuCtxSetCurrent(gpu.context));
    SHOW(cuStreamGetId(CU_STREAM_PER_THREAD, &others));
  });
  other.join();
  CU(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
  printf("differ %s, stays %s\n", mine != others ? "yes" : "no", mine == again ? "yes" : "no");
}

CASE(legacy_waits_for_it) {
  Gpu gpu;
  Gate gate;
  DeviceArray<uint32_t> data(1);
  gate.stop(CU_STREAM_PER_THREAD);
  CU(cuMemsetD32Async(data.pointer, 1, 1, nullptr));
  SHOW(cuStreamQuery(nullptr));
  gate.open();
  SHOW(cuStreamSynchronize(nullptr));
}

CASE(non_blocking_streams_do_not_wait_for_it) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.stop(CU_STREAM_PER_THREAD);
  SHOW(cuStreamSynchronize(stream));
  gate.open();
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

CASE(work_of_a_thread_that_ended) {
  Gpu gpu;
  DeviceArray<uint32_t> data(16);
  std::thread other([&] {
    CU(cuCtxSetCurrent(gpu.context));
    CU(cuMemsetD32Async(data.pointer, 5, 16, CU_STREAM_PER_THREAD));
  });
  other.join();
  SHOW(cuCtxSynchronize());
  printf("%u\n", data.read()[15]);
}

CASE(many_threads_one_after_the_other) {
  Gpu gpu;
  DeviceArray<uint32_t> data(100);
  for (uint32_t i = 0; i < 100; ++i) {
    std::thread([&] {
      CU(cuCtxSetCurrent(gpu.context));
      CU(cuMemsetD32Async(data.pointer + 4 * i, i, 1, CU_STREAM_PER_THREAD));
      CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }).join();
  }
  const auto values = data.read();
  printf("%u %u\n", values[0], values[99]);
}

CASE(an_event_in_it) {
  Gpu gpu;
  Gate gate;
  CUevent event = nullptr;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  gate.stop(CU_STREAM_PER_THREAD);
  SHOW(cuEventRecord(event, CU_STREAM_PER_THREAD));
  SHOW(cuEventQuery(event));
  gate.open();
  SHOW(cuEventSynchronize(event));
}

CASE(host_function_in_it) {
  Gpu gpu;
  int count = 0;
  SHOW(cuLaunchHostFunc(CU_STREAM_PER_THREAD, [](void* n) { *static_cast<int*>(n) = 3; }, &count));
  SHOW(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  printf("%d\n", count);
}

CASE(capture_in_it) {
  Gpu gpu;
  DeviceArray<uint32_t> data(16);
  SHOW(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuMemsetD32Async(data.pointer, 5, 16, CU_STREAM_PER_THREAD));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
  size_t count = 0;
  SHOW(cuGraphGetNodes(graph, nullptr, &count));
  printf("%zu\n", count);
  SHOW(cuGraphDestroy(graph));
}

CASE(in_two_contexts) {
  Gpu gpu;
  Gate gate;
  CUcontext own = nullptr;
  CU(cuCtxCreate(&own, nullptr, 0, 0));
  gate.stop(CU_STREAM_PER_THREAD);
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  CU(cuCtxSetCurrent(gpu.context));
  SHOW(cuStreamQuery(CU_STREAM_PER_THREAD));
  gate.open();
  CU(cuCtxDestroy(own));
}

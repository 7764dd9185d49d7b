// Streams and events: work ordered across streams by events, queries that end in success, flags and
// priorities.
#include "tests/programs/common.h"

int main() {
  Gpu gpu;
  Module module("kernels.fatbin");
  CUfunction step = module.function("step");
  CUfunction slow = module.function("slow_step");
  const int count = 2000;
  DeviceArray<uint32_t> data(std::vector<uint32_t>(count, 1));

  int least = 0, greatest = 0;
  CU(cuCtxGetStreamPriorityRange(&least, &greatest));
  printf("priorities %s\n", least >= greatest ? "ordered" : "wrong");
  CUstream streams[4];
  for (int i = 0; i < 4; ++i) {
    if (i < 3) CU(cuStreamCreate(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    else CU(cuStreamCreateWithPriority(&streams[i], CU_STREAM_NON_BLOCKING, greatest));
    unsigned flags = 99;
    int priority = 99;
    CUcontext context = nullptr;
    CU(cuStreamGetFlags(streams[i], &flags));
    CU(cuStreamGetPriority(streams[i], &priority));
    CU(cuStreamGetCtx(streams[i], &context));
    printf("stream %d: flags %u, priority %s, context %s\n", i, flags,
           priority == (i < 3 ? 0 : greatest) ? "as asked" : "other",
           context == gpu.context ? "ours" : "other");
  }

  // A relay over all four streams: each step may only run after the one before.
  CUevent done[64];
  for (int i = 0; i < 64; ++i) {
    CU(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
    CUstream stream = streams[i % 4];
    if (i > 0) CU(cuStreamWaitEvent(stream, done[i - 1], 0));
    LAUNCH(slow, {8}, {256}, 0, stream, data.pointer, 3u, static_cast<uint32_t>(i), count,
           i % 4 == 0 ? 200 : 1);
    CU(cuEventRecord(done[i], stream));
  }
  CU(cuEventSynchronize(done[63]));
  for (CUevent event : done) SHOW(cuEventQuery(event)), CU(cuEventDestroy(event));
  for (CUstream stream : streams) SHOW(cuStreamQuery(stream));
  print_hash("relay", data.read());

  CUevent start, stop, untimed;
  CU(cuEventCreate(&start, CU_EVENT_DEFAULT));
  CU(cuEventCreate(&stop, CU_EVENT_BLOCKING_SYNC));
  CU(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  SHOW(cuEventQuery(start));
  float milliseconds = -1;
  SHOW(cuEventElapsedTime(&milliseconds, start, stop));
  CU(cuEventRecord(start, streams[1]));
  LAUNCH(step, {8}, {256}, 0, streams[1], data.pointer, 5u, 7u, count);
  CU(cuEventRecordWithFlags(stop, streams[1], CU_EVENT_RECORD_DEFAULT));
  CU(cuEventRecord(untimed, streams[1]));
  CU(cuStreamSynchronize(streams[1]));
  CU(cuEventElapsedTime(&milliseconds, start, stop));
  printf("elapsed %s\n", milliseconds >= 0 ? "not negative" : "negative");
  SHOW(cuEventElapsedTime(&milliseconds, start, untimed));
  print_hash("timed", data.read());
  SHOW(cuEventDestroy(start));
  SHOW(cuEventDestroy(stop));
  SHOW(cuEventDestroy(untimed));

  // Destroying a stream with work in it: the work still completes.
  LAUNCH(slow, {8}, {256}, 0, streams[3], data.pointer, 7u, 1u, count, 500);
  CU(cuStreamDestroy(streams[3]));
  CU(cuCtxSynchronize());
  print_hash("after destroy", data.read());
  for (int i = 0; i < 3; ++i) CU(cuStreamDestroy(streams[i]));
  return 0;
}

// One program on two devices: whose streams, events and modules may be used where.
#include "tests/conformance/two_gpus.h"

TWO_DEVICES_CASE(stream_knows_its_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  CUcontext context = nullptr;
  SHOW(cuStreamGetCtx(theirs, &context));
  printf("%d\n", context == gpus.context[1]);
  SHOW(cuStreamQuery(theirs));
  SHOW(cuStreamSynchronize(theirs));
  SHOW(cuStreamDestroy(theirs));
}

TWO_DEVICES_CASE(launch_into_a_stream_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  Module module("kernels.fatbin");
  DeviceArray<float> a(std::vector<float>(256, 1.0f)), b(std::vector<float>(256, 2.0f)), sum(256);
  SHOW(try_launch(module.function("vector_add"), Dim{1}, Dim{256}, 0u, theirs, a.pointer, b.pointer, sum.pointer, 256));
  SHOW(cuCtxSynchronize());
}

TWO_DEVICES_CASE(launch_with_the_other_context_current) {
  TwoGpus gpus;
  Module module("kernels.fatbin");
  DeviceArray<float> a(std::vector<float>(256, 1.0f)), b(std::vector<float>(256, 2.0f)), sum(256);
  CUstream ours = stream_here();
  gpus.use(1);
  SHOW(try_launch(module.function("vector_add"), Dim{1}, Dim{256}, 0u, static_cast<CUstream>(nullptr), a.pointer, b.pointer, sum.pointer, 256));
  SHOW(try_launch(module.function("vector_add"), Dim{1}, Dim{256}, 0u, ours, a.pointer, b.pointer, sum.pointer, 256));
  SHOW(cuCtxSynchronize());
  gpus.use(0);
  SHOW(cuCtxSynchronize());
}

TWO_DEVICES_CASE(record_an_event_of_the_other_device) {
  TwoGpus gpus;
  gpus.use(1);
  CUstream theirs = stream_here();
  CUevent their_event = event_here();
  gpus.use(0);
  CUstream ours = stream_here();
  CUevent our_event = event_here();
  SHOW(cuEventRecord(their_event, ours));
  SHOW(cuEventRecord(our_event, theirs));
  SHOW(cuEventRecord(their_event, theirs));
  SHOW(cuEventRecord(their_event, nullptr));
  SHOW(cuEventSynchronize(their_event));
  SHOW(cuEventQuery(their_event));
}

TWO_DEVICES_CASE(elapsed_time_across_devices) {
  TwoGpus gpus;
  gpus.use(1);
  CUevent theirs = event_here();
  CU(cuEventRecord(theirs, nullptr));
  CU(cuCtxSynchronize());
  gpus.use(0);
  CUevent ours = event_here();
  CU(cuEventRecord(ours, nullptr));
  CU(cuCtxSynchronize());
  float ms = 0;
  SHOW(cuEventElapsedTime(&ms, ours, theirs));
}

TWO_DEVICES_CASE(stream_waits_for_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(1, 4096, 0), there = gpus.allocate(1, 4096, 1), here = gpus.allocate(0, 4096, 0);
  gpus.use(1);
  CUstream theirs = stream_here(), writer = stream_here();
  CUevent event = event_here(CU_EVENT_DISABLE_TIMING);
  CU(cuStreamWaitValue32(theirs, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuMemsetD32Async(there, 8, 1024, theirs));
  CU(cuEventRecord(event, theirs));
  gpus.use(0);
  CUstream ours = stream_here();
  SHOW(cuStreamWaitEvent(ours, event, 0));
  SHOW(cuMemcpyPeerAsync(here, gpus.context[0], there, gpus.context[1], 4096, ours));
  SHOW(cuStreamQuery(ours));
  gpus.use(1);
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  gpus.use(0);
  SHOW(cuStreamSynchronize(ours));
  printf("%u\n", word_at(here));
}

TWO_DEVICES_CASE(default_streams_are_per_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(1, 4096, 0), here = gpus.allocate(0, 4096, 0);
  gpus.use(1);
  CUstream writer = stream_here();
  CU(cuStreamWaitValue32(nullptr, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  gpus.use(0);
  CU(cuMemsetD32Async(here, 3, 16, nullptr));
  SHOW(cuStreamSynchronize(nullptr));
  SHOW(cuCtxSynchronize());
  gpus.use(1);
  SHOW(cuStreamQuery(nullptr));
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  SHOW(cuStreamSynchronize(nullptr));
}

TWO_DEVICES_CASE(memset_into_a_stream_of_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr here = gpus.allocate(0, 4096, 0);
  gpus.use(1);
  CUstream theirs = stream_here();
  gpus.use(0);
  SHOW(cuMemcpyDtoDAsync(here, here + 2048, 1024, theirs));
  SHOW(cuStreamSynchronize(theirs));
}

TWO_DEVICES_CASE(contexts_and_devices) {
  TwoGpus gpus;
  CUdevice device = -1;
  gpus.use(1);
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CU(cuCtxPushCurrent(gpus.context[0]));
  SHOW(cuCtxGetDevice(&device));
  printf("%d\n", device);
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent(&popped));
  printf("%d\n", popped == gpus.context[0]);
  unsigned flags = 0;
  int active = 0;
  SHOW(cuDevicePrimaryCtxGetState(1, &flags, &active));
  printf("active %d\n", active);
}

TWO_DEVICES_CASE(modules_are_per_context) {
  TwoGpus gpus;
  CUdeviceptr here = 0, there = 0;
  size_t bytes = 0;
  Module ours("globals.fatbin");
  gpus.use(1);
  Module theirs("globals.fatbin");
  SHOW(cuModuleGetGlobal(&there, &bytes, theirs.handle, "counter"));
  SHOW(cuModuleGetGlobal(&here, &bytes, ours.handle, "counter"));
  printf("apart %d\n", here != there);
}

TWO_DEVICES_CASE(library_on_both_devices) {
  TwoGpus gpus;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CU(cuLibraryLoadData(&library, read_beside("kernels.fatbin").data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU(cuLibraryGetKernel(&kernel, library, "vector_add"));
  for (int gpu = 0; gpu < 2; ++gpu) {
    gpus.use(gpu);
    DeviceArray<float> a(std::vector<float>(256, 1.0f)), b(std::vector<float>(256, 2.0f)), sum(256);
    LAUNCH(reinterpret_cast<CUfunction>(kernel), Dim{1}, Dim{256}, 0u, static_cast<CUstream>(nullptr), a.pointer, b.pointer, sum.pointer, 256);
    printf("%g\n", static_cast<double>(sum.read()[255]));
  }
  SHOW(cuLibraryUnload(library));
}

// A thread that feeds one GPU may wait for another GPU's thread: freeing waits for its own device only.
TWO_DEVICES_CASE(free_does_not_wait_for_the_other_device) {
  TwoGpus gpus;
  const CUdeviceptr flag = gpus.allocate(0, 4096, 0);
  CUstream held = stream_here(), writer = stream_here();
  CU(cuStreamWaitValue32(held, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  const CUdeviceptr small = gpus.allocate(1, 4096, 1), large = gpus.allocate(1, 64 << 20, 1);
  SHOW(cuMemFree(small));
  SHOW(cuMemFree(large));
  gpus.use(0);
  SHOW(cuStreamQuery(held));
  CU(cuStreamWriteValue32(writer, flag, 1, 0));
  SHOW(cuStreamSynchronize(held));
  SHOW(cuMemFree(flag));
}

// Threads: what is each thread's own, and many at once.
#include "tests/conformance/gate.h"

#include <atomic>
#include <mutex>
#include <thread>

CASES_HOLD_STREAMS;

CASE(current_context_is_the_threads_own) {
  Gpu gpu;
  CUcontext seen = gpu.context;
  std::thread([&] { SHOW(cuCtxGetCurrent(&seen)); }).join();
  printf("%s\n", seen == nullptr ? "null" : "set");
}

CASE(a_new_thread_has_no_context) {
  Gpu gpu;
  std::thread([] {
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 64));
    SHOW(cuCtxSynchronize());
    SHOW(cuStreamSynchronize(nullptr));
    CUdevice device = -1;
    SHOW(cuCtxGetDevice(&device));
    CUcontext popped = nullptr;
    SHOW(cuCtxPopCurrent(&popped));
  }).join();
}

CASE(thread_started_before_init) {
  std::mutex mutex;
  mutex.lock();
  std::thread early([&] {
    mutex.lock();
    int count = 0;
    SHOW(cuDeviceGetCount(&count));
    CUcontext context = nullptr;
    SHOW(cuDevicePrimaryCtxRetain(&context, 0));
    SHOW(cuCtxSetCurrent(context));
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 64));
    SHOW(cuMemFree(memory));
  });
  CU(cuInit(0));
  mutex.unlock();
  early.join();
}

CASE(init_in_another_thread) {
  std::thread([] { SHOW(cuInit(0)); }).join();
  int count = 0;
  SHOW(cuDeviceGetCount(&count));
}

CASE(init_in_many_threads_at_once) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i) threads.emplace_back([&] { good += cuInit(0) == CUDA_SUCCESS; });
  for (auto& thread : threads) thread.join();
  printf("%d\n", good.load());
}

CASE(retain_in_many_threads_at_once) {
  CU(cuInit(0));
  std::vector<std::thread> threads;
  std::vector<CUcontext> contexts(16);
  for (int i = 0; i < 16; ++i) threads.emplace_back([&, i] { CU(cuDevicePrimaryCtxRetain(&contexts[i], 0)); });
  for (auto& thread : threads) thread.join();
  int same = 0;
  for (CUcontext context : contexts) same += context == contexts[0];
  printf("%d\n", same);
}

CASE(context_pushed_in_two_threads) {
  Gpu gpu;
  std::thread([&] {
    SHOW(cuCtxPushCurrent(gpu.context));
    CUdeviceptr memory = 0;
    SHOW(cuMemAlloc(&memory, 64));
    SHOW(cuMemFree(memory));
  }).join();
  SHOW(cuCtxSynchronize());
}

CASE(memory_of_another_thread) {
  Gpu gpu;
  CUdeviceptr memory = 0;
  std::thread([&] {
    CU(cuCtxSetCurrent(gpu.context));
    CU(cuMemAlloc(&memory, 64));
    CU(cuMemsetD32(memory, 6, 16));
  }).join();
  uint32_t value = 0;
  SHOW(cuMemcpyDtoH(&value, memory, 4));
  printf("%u\n", value);
  SHOW(cuMemFree(memory));
}

CASE(context_destroyed_by_another_thread) {
  CU(cuInit(0));
  CUcontext context = nullptr;
  CU(cuCtxCreate(&context, nullptr, 0, 0));
  std::thread([&] { SHOW(cuCtxDestroy(context)); }).join();
  CUcontext current = nullptr;
  SHOW(cuCtxGetCurrent(&current));
  printf("%s\n", current == context ? "still current" : current == nullptr ? "null" : "another");
  CUdeviceptr memory = 0;
  SHOW(cuMemAlloc(&memory, 64));
  SHOW(cuCtxSynchronize());
  CUdevice device = -1;
  SHOW(cuCtxGetDevice(&device));
  CUcontext popped = nullptr;
  SHOW(cuCtxPopCurrent(&popped));
}

CASE(one_stream_used_by_many_threads) {
  Gpu gpu;
  Module module("kernels.fatbin");
  DeviceArray<uint32_t> data(std::vector<uint32_t>(32, 0));
  CUfunction step = module.function("step");
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      CU(cuCtxSetCurrent(gpu.context));
      for (int k = 0; k < 50; ++k) LAUNCH(step, {1}, {32}, 0, stream, data.pointer, 1u, 1u, 32);
    });
  }
  for (auto& thread : threads) thread.join();
  SHOW(cuStreamSynchronize(stream));
  printf("%u\n", data.read()[31]);
}

CASE(allocations_in_many_threads) {
  Gpu gpu;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      CU(cuCtxSetCurrent(gpu.context));
      for (uint32_t k = 0; k < 20; ++k) {
        CUdeviceptr memory = 0;
        CU(cuMemAlloc(&memory, 4096));
        CU(cuMemsetD32(memory, i * 100 + k, 1024));
        uint32_t value = 0;
        CU(cuMemcpyDtoH(&value, memory + 4092, 4));
        right += value == i * 100 + k;
        CU(cuMemFree(memory));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  printf("%d\n", right.load());
}

CASE(one_waits_while_another_works) {
  Gpu gpu;
  Gate gate;
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.stop(stream);
  std::thread waiting([&] {
    CU(cuCtxSetCurrent(gpu.context));
    SHOW(cuStreamSynchronize(stream));
  });
  DeviceArray<uint32_t> data(16);
  CUstream other = nullptr;
  CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CU(cuMemsetD32Async(data.pointer, 4, 16, other));
  SHOW(cuStreamSynchronize(other));
  gate.open();
  waiting.join();
}

CASE(capture_mode_is_the_threads_own) {
  Gpu gpu;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  printf("%d\n", static_cast<int>(mode));
  std::thread([] {
    CUstreamCaptureMode other = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    SHOW(cuThreadExchangeStreamCaptureMode(&other));
    printf("%d\n", static_cast<int>(other));
  }).join();
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  printf("%d\n", static_cast<int>(mode));
  // NULL crashes natively.
}

CASE(threads_that_end_without_a_word) {
  Gpu gpu;
  for (int i = 0; i < 50; ++i) {
    std::thread([&] {
      CU(cuCtxPushCurrent(gpu.context));
      CU(cuCtxPushCurrent(gpu.context));
      CUdeviceptr memory = 0;
      CU(cuMemAlloc(&memory, 64));
    }).join();
  }
  SHOW(cuCtxSynchronize());
}

CASE(detached_thread_at_exit) {
  Gpu* gpu = left_behind<Gpu>();
  std::thread([gpu] {
    cuCtxSetCurrent(gpu->context);
    while (true) cuStreamQuery(nullptr);
  }).detach();
  SHOW(cuCtxSynchronize());
}

// What single driver calls cost, as one unmodified driver-API program: run it natively and through Tube (bench/compare).
//
// Prints one JSON object: for each operation the number of samples and p50, p99 and the largest in nanoseconds. Each sample
// times one operation as the program sees it: the call returning, and where the name says so, its completion.
#include <cuda.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const char* name = "unknown";
  cuGetErrorName(code, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}
#define CU(call) check((call), #call)

static const char* kPtx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }
)";

static int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static bool first_line = true;

template <typename Operation>
static void measure(const char* name, int samples, Operation operation) {
  for (int i = 0; i < samples / 10 + 1; ++i) operation();
  CU(cuCtxSynchronize());
  std::vector<int64_t> times(static_cast<size_t>(samples));
  for (int64_t& time : times) {
    int64_t begin = now_ns();
    operation();
    time = now_ns() - begin;
  }
  CU(cuCtxSynchronize());
  std::sort(times.begin(), times.end());
  printf("%s\n  \"%s\": {\"samples\": %d, \"p50_ns\": %lld, \"p99_ns\": %lld, \"max_ns\": %lld}", first_line ? "{" : ",", name, samples,
         static_cast<long long>(times[times.size() / 2]), static_cast<long long>(times[times.size() * 99 / 100]),
         static_cast<long long>(times.back()));
  first_line = false;
}

int main(int argc, char** argv) {
  int scale = argc > 1 ? atoi(argv[1]) : 1000;
  CU(cuInit(0));
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CUmodule module;
  CU(cuModuleLoadData(&module, kPtx));
  CUfunction kernel;
  CU(cuModuleGetFunction(&kernel, module, "nothing"));
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUdeviceptr data;
  CU(cuMemAlloc(&data, 1 << 20));
  std::vector<char> pageable(1 << 20);
  void* pinned;
  CU(cuMemAllocHost(&pinned, 1 << 20));
  CUdeviceptr a = data, b = data;
  uint32_t n = 1;
  void* args[] = {&a, &b, &n};
  auto launch = [&] { CU(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, args, nullptr)); };

  measure("launch", scale, launch);
  measure("launch_sync", scale, [&] { launch(); CU(cuStreamSynchronize(stream)); });
  measure("launch_1000_sync", std::max(3, scale / 100), [&] {
    for (int i = 0; i < 1000; ++i) launch();
    CU(cuStreamSynchronize(stream));
  });
  measure("event_record", scale, [&] { CU(cuEventRecord(event, stream)); });
  measure("event_query", scale, [&] { cuEventQuery(event); });
  measure("event_record_synchronize", scale, [&] { CU(cuEventRecord(event, stream)); CU(cuEventSynchronize(event)); });
  measure("stream_synchronize_idle", scale, [&] { CU(cuStreamSynchronize(stream)); });
  measure("h2d_4k_pageable", scale, [&] { CU(cuMemcpyHtoD(data, pageable.data(), 4096)); });
  measure("d2h_4k_pageable", scale, [&] { CU(cuMemcpyDtoH(pageable.data(), data, 4096)); });
  measure("h2d_1m_pageable", scale / 10 + 1, [&] { CU(cuMemcpyHtoD(data, pageable.data(), 1 << 20)); });
  measure("d2h_1m_pageable", scale / 10 + 1, [&] { CU(cuMemcpyDtoH(pageable.data(), data, 1 << 20)); });
  measure("h2d_1m_pinned_sync", scale / 10 + 1, [&] { CU(cuMemcpyHtoDAsync(data, pinned, 1 << 20, stream)); CU(cuStreamSynchronize(stream)); });
  measure("memset_async", scale, [&] { CU(cuMemsetD8Async(data, 0, 4096, stream)); });
  measure("alloc_free_2m", scale / 5 + 1, [&] { CUdeviceptr p; CU(cuMemAlloc(&p, 2 << 20)); CU(cuMemFree(p)); });
  measure("stream_create_destroy", scale / 5 + 1, [&] { CUstream s; CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING)); CU(cuStreamDestroy(s)); });
  measure("event_create_destroy", scale, [&] { CUevent e; CU(cuEventCreate(&e, 0)); CU(cuEventDestroy(e)); });
  measure("context_get_current", scale, [&] { CUcontext c; CU(cuCtxGetCurrent(&c)); });
  printf("\n}\n");
  CU(cuMemFreeHost(pinned));
  CU(cuMemFree(data));
  return 0;
}

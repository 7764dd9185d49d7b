// A thread copies pageable memory on a stream that waits. Another one copies on a stream that waits
// for nothing, up, down and in two dimensions, and only then lets the first stream go on.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kLarge = 96u << 20;  // more than there is staging for
constexpr size_t kSmall = 256u << 10;

void wait_for_another_thread() {
  constexpr int kCalls = 300;  // until it stands in its call
  for (int i = 0; i < kCalls; ++i) {
    size_t free_bytes = 0, total_bytes = 0;
    CU(cuMemGetInfo(&free_bytes, &total_bytes));
  }
}

void copies(CUstream stream, CUdeviceptr memory) {
  std::vector<unsigned char> up(kSmall, 3), down(kSmall, 0), box(kSmall, 0);
  SHOW(cuMemcpyHtoDAsync(memory, up.data(), kSmall, stream));
  SHOW(cuMemcpyDtoHAsync(down.data(), memory, kSmall, stream));
  SHOW(cuMemcpyDtoHAsync(down.data(), memory, 16, stream));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.srcPitch = 4096;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = box.data();
  copy.dstPitch = 4096;
  copy.WidthInBytes = 4000;
  copy.Height = kSmall / 4096;
  SHOW(cuMemcpy2DAsync(&copy, stream));
  SHOW(cuStreamSynchronize(stream));
  print_hash("down", down);
  print_hash("box", box);
}

void beside(CUcontext context, bool loads) {
  printf("%s\n", loads ? "beside an upload" : "beside a download");
  uint32_t* word = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&word), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  *word = 0;
  CUdeviceptr large = 0, small = 0;
  CU(cuMemAlloc(&large, kLarge));
  CU(cuMemAlloc(&small, kSmall));
  CU(cuMemsetD8(large, 4, kLarge));
  CU(cuCtxSynchronize());
  CUstream held = nullptr, idle = nullptr, blocking = nullptr;
  CU(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&blocking, 0));
  CU(cuStreamWaitValue32(held, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ));
  std::vector<unsigned char> host(kLarge, 5);
  std::atomic<bool> begun{false};
  std::thread other([&] {
    CU(cuCtxSetCurrent(context));
    begun = true;
    if (loads) CU(cuMemcpyHtoDAsync(large, host.data(), kLarge, held));
    else CU(cuMemcpyDtoHAsync(host.data(), large, kLarge, held));
  });
  while (!begun) std::this_thread::yield();
  wait_for_another_thread();
  copies(idle, small);
  copies(blocking, small);
  copies(nullptr, small);
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  other.join();
  SHOW(cuStreamSynchronize(held));
  if (loads) CU(cuMemcpyDtoH(host.data(), large, kLarge));
  print_hash("large", host);
  for (CUstream stream : {held, idle, blocking}) CU(cuStreamDestroy(stream));
  CU(cuMemFree(large));
  CU(cuMemFree(small));
  CU(cuMemFreeHost(word));
}

}  // namespace

int main() {
  Gpu gpu;
  beside(gpu.context, false);
  beside(gpu.context, true);
  return 0;
}

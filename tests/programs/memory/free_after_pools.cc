// What cuMemGetInfo says once stream-ordered memory was freed and its stream synchronised: with the
// pool's threshold at 0, natively all of it is free again.
#include "tests/programs/common.h"

namespace {

constexpr size_t kBlockBytes = 4 << 20;
constexpr int kBlocks = 8;
constexpr size_t kOthersBytes = 8 << 20;  // by so much less, others may have changed it

size_t free_now() {
  size_t free_bytes = 0, total_bytes = 0;
  CU(cuMemGetInfo(&free_bytes, &total_bytes));
  EXPECT(free_bytes <= total_bytes);
  return free_bytes;
}

void show(const char* when, size_t before) {
  printf("%s: %s\n", when, free_now() + kOthersBytes > before ? "free again" : "in use");
}

void use(CUstream stream) {
  CUdeviceptr blocks[kBlocks];
  for (CUdeviceptr& block : blocks) CU(cuMemAllocAsync(&block, kBlockBytes, stream));
  for (CUdeviceptr block : blocks) CU(cuMemsetD8Async(block, 1, kBlockBytes, stream));
  for (CUdeviceptr block : blocks) CU(cuMemFreeAsync(block, stream));
}

}  // namespace

int main() {
  Gpu gpu;
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const size_t before = free_now();
  use(stream);
  CU(cuStreamSynchronize(stream));
  show("after one step", before);
  for (int step = 0; step < 5; ++step) {
    use(stream);
    CU(cuCtxSynchronize());
  }
  show("after more steps", before);
  CUdeviceptr held = 0;
  CU(cuMemAllocAsync(&held, kBlockBytes * kBlocks, stream));
  CU(cuStreamSynchronize(stream));
  show("with memory held", before);
  CU(cuMemFreeAsync(held, stream));
  CU(cuStreamSynchronize(stream));
  show("at the end", before);
  CU(cuStreamDestroy(stream));
  return 0;
}

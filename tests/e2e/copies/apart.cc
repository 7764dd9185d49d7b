// Copies with the memory of two GPUs, from streams and contexts of either: natively the
// driver finds a way whether they reach each other or not (apart_test.py).
#include "tests/programs/common.h"

namespace {

CUcontext contexts[2];
void use(int gpu) { CU(cuCtxSetCurrent(contexts[gpu])); }

unsigned word_at(CUdeviceptr pointer) {
  unsigned word = 0;
  CU(cuMemcpyDtoH(&word, pointer, sizeof word));
  return word;
}

CUdeviceptr allocate(int gpu, size_t bytes, unsigned word) {
  use(gpu);
  CUdeviceptr pointer = 0;
  CU(cuMemAlloc(&pointer, bytes));
  CU(cuMemsetD32(pointer, word, bytes / 4));
  CU(cuCtxSynchronize());
  return pointer;
}

void between(CUdeviceptr here, CUdeviceptr there, size_t bytes, CUstream stream) {
  const size_t half = bytes / 2;
  SHOW(cuMemcpyPeerAsync(there, contexts[1], here, contexts[0], half, stream));
  SHOW(cuStreamSynchronize(stream));
  printf("%u %u\n", word_at(there), word_at(there + bytes - 4));
  SHOW(cuMemcpyPeer(there, contexts[1], here, contexts[0], bytes));
  printf("%u\n", word_at(there + bytes - 4));
  use(1);
  CU(cuMemsetD32(there, 9, bytes / 4));
  CU(cuCtxSynchronize());
  use(0);
  SHOW(cuMemcpyAsync(here, there, bytes, stream));
  SHOW(cuStreamSynchronize(stream));
  printf("%u\n", word_at(here));
  SHOW(cuMemcpyDtoD(here + half, there, half));
  SHOW(cuMemcpyDtoDAsync(there, there + half, half, stream));
  SHOW(cuCtxSynchronize());
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = here;
  rows.dstDevice = there;
  rows.srcPitch = 64;
  rows.dstPitch = 128;
  rows.WidthInBytes = 32;
  rows.Height = 8;
  CU(cuMemsetD32(here, 11, bytes / 4));
  SHOW(cuMemcpy2D(&rows));
  SHOW(cuCtxSynchronize());
  printf("%u %u\n", word_at(there + 7 * 128), word_at(there + 7 * 128 + 32));
}

// With GPU 0 current, and on its stream.
void with_the_host(CUdeviceptr there, size_t bytes, CUstream stream) {
  std::vector<unsigned> pageable(bytes / 4, 21);
  SHOW(cuMemcpyHtoD(there, pageable.data(), bytes));
  printf("%u\n", word_at(there + bytes - 4));
  unsigned* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), bytes, 0));
  std::fill_n(pinned, bytes / 4, 22u);
  SHOW(cuMemcpyHtoDAsync(there, pinned, bytes, stream));
  SHOW(cuMemcpyDtoHAsync(pinned, there, bytes, stream));
  SHOW(cuStreamSynchronize(stream));
  printf("%u %u\n", pinned[3], pinned[4]);
  SHOW(cuMemcpyDtoH(pageable.data(), there, bytes));
  printf("%u %u\n", pageable[3], pageable[4]);
  CU(cuMemFreeHost(pinned));
}

// What the stream has before a copy, and behind it, is before and behind it.
void in_order(CUdeviceptr here, CUdeviceptr there, CUstream stream) {
  for (unsigned i = 0; i < 50; ++i) {
    CU(cuMemsetD32Async(here, i, 512, stream));
    CU(cuMemcpyAsync(there, here, 2048, stream));
    CU(cuMemcpyHtoDAsync(there + 4, &i, sizeof i, stream));
    CU(cuMemcpyAsync(there + 2048, there, 1024, stream));
    CU(cuMemcpyAsync(here + 2048, there + 2048, 1024, stream));
  }
  SHOW(cuStreamSynchronize(stream));
  printf("%u %u %u\n", word_at(here + 2048), word_at(here + 2052), word_at(there + 2044));
}

}  // namespace

int main() {
  CU(cuInit(0));
  for (int i = 0; i < 2; ++i) CU(cuDevicePrimaryCtxRetain(&contexts[i], i));
  int reach = 0;
  CU(cuDeviceCanAccessPeer(&reach, 0, 1));
  printf("they reach each other: %d\n", reach);
  for (const size_t bytes : {size_t{4096}, size_t{2} << 20}) {
    const CUdeviceptr here = allocate(0, bytes, 5), there = allocate(1, bytes, 6);
    use(0);
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    between(here, there, bytes, stream);
    with_the_host(there, bytes, stream);
    in_order(here, there, stream);
    CU(cuStreamDestroy(stream));
    CU(cuMemFree(here));
    CU(cuMemFree(there));
  }
  return 0;
}

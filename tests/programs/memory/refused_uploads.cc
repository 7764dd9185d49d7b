// One thread's uploads are refused while others' go on: theirs must arrive whole.
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 3;
constexpr int kRounds = 60;
constexpr size_t kBytes = 256 << 10;

void upload_and_check(int t) {
  CUdeviceptr memory;
  CUstream stream;
  CU(cuMemAlloc(&memory, kBytes));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<unsigned char> back(kBytes);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<unsigned char> sent(kBytes, static_cast<unsigned char>(t * kRounds + round));
    CU(cuMemcpyHtoDAsync(memory, sent.data(), kBytes, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemcpyDtoHAsync(back.data(), memory, kBytes, stream));
    CU(cuStreamSynchronize(stream));
    EXPECT(back == sent);
  }
  CU(cuStreamDestroy(stream));
  CU(cuMemFree(memory));
}

}  // namespace

int main() {
  Gpu gpu;
  CUdeviceptr nowhere;  // reserved, and nothing is mapped there
  constexpr size_t kReserved = 2 << 20;
  CU(cuMemAddressReserve(&nowhere, kReserved, 0, 0, 0));
  std::atomic<int> at_work{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      upload_and_check(t);
      --at_work;
    });
  }
  const std::vector<unsigned char> bytes(kBytes, 0xee);
  CUresult refused = CUDA_SUCCESS;
  do {
    refused = cuMemcpyHtoD(nowhere, bytes.data(), kBytes);
    EXPECT(refused == CUDA_ERROR_INVALID_VALUE);
  } while (at_work != 0);
  for (std::thread& thread : threads) thread.join();
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.srcHost = bytes.data();
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE, rows.dstDevice = nowhere;
  rows.WidthInBytes = 1024, rows.Height = 128;
  SHOW(cuMemcpy2D(&rows));
  CU(cuMemAddressFree(nowhere, kReserved));
  printf("refused: %s\n", code_name(refused));
  return 0;
}

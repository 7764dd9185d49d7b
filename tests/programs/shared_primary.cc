// Threads that each retain the primary context, work in it and release it, so that it ends and
// begins again and again: who has it has it whole, and what others end before or begin after is
// theirs.
//
//   shared_primary [ROUNDS]   40 without it: a real context takes a tenth of a second and more to
//   begin
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 2;
constexpr size_t kWords = 1024;

uint32_t work(CUdevice device, uint32_t value) {
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CUdeviceptr memory;
  CUstream stream;
  CUevent event;
  CU(cuMemAlloc(&memory, kWords * 4));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CU(cuMemsetD32Async(memory, value, kWords, stream));
  CU(cuEventRecord(event, stream));
  CU(cuEventSynchronize(event));
  uint32_t last = 0;
  CU(cuMemcpyDtoH(&last, memory + (kWords - 1) * 4, 4));
  CU(cuEventDestroy(event));
  CU(cuStreamDestroy(stream));
  CU(cuMemFree(memory));
  CU(cuCtxSetCurrent(nullptr));
  CU(cuDevicePrimaryCtxRelease(device));
  return last;
}

}  // namespace

int main(int argc, char** argv) {
  const auto rounds = static_cast<uint32_t>(argc > 1 ? atoi(argv[1]) : 40);
  CUdevice device;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  std::vector<std::thread> threads;
  uint64_t results[kThreads] = {};
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&results, device, t, rounds] {
      const std::vector<unsigned char> bytes = Random(t).bytes(200'000);
      for (uint32_t round = 0; round < rounds; ++round) {
        EXPECT(work(device, t * rounds + round) == t * rounds + round);
        results[t] ^=
            hash_bytes(bytes.data(), bytes.size() - round);  // meanwhile it has no context
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t result : results)
    printf("meanwhile: %016llx\n", static_cast<unsigned long long>(result));
  unsigned flags;
  int active;
  CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  printf("in the end %s\n", active != 0 ? "active" : "not active");
  return 0;
}

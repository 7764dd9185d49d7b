// A blocking stream comes to a gate while another thread's small upload is under way, which then
// waits for it: the gate comes in front of the upload while its bytes are read. Streams that
// nothing orders behind the legacy stream go on. Natively the upload can keep the thread out that
// opens the gate, and the program stands for good.
#include <sys/mman.h>

#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr uint32_t kRounds = 40;
constexpr size_t kSlowBytes = 48 << 10;

void beside_a_gate(CUcontext context) {
  CUstream blocking = nullptr, free_running = nullptr;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  CU(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
  uint32_t* gate = nullptr;
  CUdeviceptr gate_address = 0, to = 0, other = 0;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuMemHostGetDevicePointer(&gate_address, gate, 0));
  CU(cuMemAlloc(&to, kSlowBytes));
  CU(cuMemAlloc(&other, 1));
  *gate = 0;
  CU(cuCtxSynchronize());
  std::atomic<uint32_t> may_begin{0}, begun{0}, done{0};
  std::thread uploader([&] {
    CU(cuCtxSetCurrent(context));
    void* bytes = mmap(nullptr, kSlowBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint32_t round = 1; round <= kRounds; ++round) {
      while (may_begin < round) std::this_thread::yield();
      madvise(bytes, kSlowBytes, MADV_DONTNEED);  // reading them takes longer then
      begun = round;
      CU(cuMemcpyHtoD(to, bytes, kSlowBytes));
      done = round;
    }
    munmap(bytes, kSlowBytes);
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    CU(cuCtxSynchronize());
    may_begin = round;
    // Sooner and later, for the upload to be in the middle of it some time.
    while (begun < round) {
    }
    for (uint32_t i = 0; i < round * 200; ++i) (void)begun.load();
    CU(cuStreamWaitValue32(blocking, gate_address, round, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuMemsetD8Async(other, 3, 1, free_running));
    CU(cuStreamSynchronize(free_running));
    __atomic_store_n(gate, round, __ATOMIC_RELEASE);
    while (done < round) std::this_thread::yield();
  }
  uploader.join();
  unsigned char found = 9;
  CU(cuMemcpyDtoH(&found, to + kSlowBytes - 1, 1));
  printf("beside a gate: %d\n", found);
  CU(cuMemFree(to));
  CU(cuMemFree(other));
  CU(cuMemFreeHost(gate));
  CU(cuStreamDestroy(blocking));
  CU(cuStreamDestroy(free_running));
}

}  // namespace

int main() {
  Gpu gpu;
  beside_a_gate(gpu.context);
  return 0;
}

// Freeing memory waits for the context that it belongs to, and for no other: not for the work of
// another context, which may be waiting for what the freeing thread does next, and for its own also
// when another context is current.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr size_t kBytes = 1 << 20;

CUcontext primary, created;

void use(CUcontext context) { CU(cuCtxSetCurrent(context)); }

CUstream stream_here() {
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

class Gate {
 public:
  Gate() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 4096,
                      CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    CU(cuMemHostGetDevicePointer(&address_, word_, 0));
  }
  void close(CUstream stream) {
    CU(cuStreamWaitValue32(stream, address_, ++value_, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { __atomic_store_n(word_, value_, __ATOMIC_RELEASE); }
  // While `work` runs.
  void open_beside(const std::function<void()>& work) {
    constexpr int kCalls = 300;  // for a call that does not wait to return meanwhile
    std::thread opener([this] {
      use(created);
      for (int i = 0; i < kCalls; ++i) {
        size_t free_bytes = 0, total_bytes = 0;
        CU(cuMemGetInfo(&free_bytes, &total_bytes));
      }
      open();
    });
    work();
    opener.join();
  }

 private:
  uint32_t* word_ = nullptr;
  CUdeviceptr address_ = 0;
  uint32_t value_ = 0;
};

// `owner`'s memory goes while a stream of `other` waits.
void free_beside(Gate& gate, CUcontext owner, CUcontext other) {
  use(owner);
  void* pinned = nullptr;
  CUdeviceptr memory = 0, pooled = 0, managed = 0;
  CU(cuMemHostAlloc(&pinned, kBytes, 0));
  CU(cuMemAlloc(&memory, kBytes));
  CU(cuMemAllocAsync(&pooled, kBytes, nullptr));
  CU(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  CU(cuCtxSynchronize());
  use(other);
  CUstream held = stream_here();
  gate.close(held);
  use(owner);
  SHOW(cuMemFreeHost(pinned));
  SHOW(cuMemFree(memory));
  SHOW(cuMemFree(pooled));
  SHOW(cuMemFree(managed));
  gate.open();
  use(other);
  SHOW(cuStreamSynchronize(held));
  CU(cuStreamDestroy(held));
}

// Pinned memory of `created` goes while its stream waits to read it, and another context is
// current.
void free_elsewhere(Gate& gate, CUcontext current) {
  use(created);
  CUstream stream = stream_here();
  unsigned char *pinned = nullptr, *again = nullptr;
  CUdeviceptr memory = 0;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0));
  CU(cuMemAlloc(&memory, kBytes));
  memset(pinned, 7, kBytes);
  gate.close(stream);
  CU(cuMemcpyHtoDAsync(memory, pinned, kBytes, stream));
  use(current);
  gate.open_beside([&] { SHOW(cuMemFreeHost(pinned)); });
  use(created);
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&again), kBytes, 0));
  memset(again, 9, kBytes);
  CU(cuStreamSynchronize(stream));
  unsigned char got = 0;
  CU(cuMemcpyDtoH(&got, memory + kBytes - 1, 1));
  printf("copied %d\n", got);
  CU(cuMemFreeHost(again));
  CU(cuMemFree(memory));
  CU(cuStreamDestroy(stream));
}

CUgreenCtx green_context() {
  CUdevResource all{}, part{};
  CUdevResourceDesc description{};
  CUgreenCtx green = nullptr;
  unsigned groups = 1;
  CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  CU(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
  CU(cuDevResourceGenerateDesc(&description, &part, 1));
  CU(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

// Memory of the primary context goes while a stream of a green one waits to write it, and another
// thread gives back pinned memory of `created` all the time.
void free_beside_frees(Gate& gate) {
  constexpr int kRounds = 30, kFrees = 300, kStreams = 128;
  use(primary);
  CUgreenCtx green = green_context();
  CUstream streams[kStreams];
  for (CUstream& stream : streams)
    CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  int early = 0;
  for (int round = 0; round < kRounds; ++round) {
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, kBytes));
    gate.close(streams[kStreams - 1]);
    CU(cuMemsetD8Async(memory, 1, kBytes, streams[kStreams - 1]));
    std::atomic<bool> freed{false};
    std::thread beside([&] {
      use(created);
      for (int i = 0; i < kFrees; ++i) {
        void* pinned = nullptr;
        CU(cuMemHostAlloc(&pinned, 4096, 0));
        CU(cuMemFreeHost(pinned));
      }
      early += freed ? 1 : 0;
      gate.open();
    });
    CU(cuMemFree(memory));
    freed = true;
    beside.join();
  }
  printf("frees before the work had ended: %d\n", early);
  CU(cuGreenCtxDestroy(green));
}

}  // namespace

int main() {
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&primary, 0));
  CU(cuCtxCreate(&created, nullptr, 0, 0));
  CUcontext third = nullptr;
  CU(cuCtxCreate(&third, nullptr, 0, 0));
  Gate gate;
  free_beside(gate, created, primary);
  free_beside(gate, primary, created);
  free_beside(gate, created, third);
  free_elsewhere(gate, third);
  free_elsewhere(gate, primary);
  free_beside_frees(gate);
  return 0;
}

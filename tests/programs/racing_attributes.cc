// Two threads set one kernel's limit of dynamic shared memory at once, to different values; then,
// with both at rest, the program sets what it needs, and launches with it.
#include <atomic>
#include <thread>

#include "tests/programs/common.h"

namespace {

// Without leaving its core for as long as the other thread takes that has one, too.
void wait_until(const std::atomic<int>& count, int least) {
  for (int i = 0; count < least; ++i)
    if (i > 20'000) std::this_thread::yield();
}

}  // namespace

int main() {
  constexpr int kRounds = 3000, kNeeded = 40'000;
  Gpu gpu;
  const Module module("kernels.fatbin");
  const CUfunction kernel = module.function("dynamic_shared");
  DeviceArray<int> out(1024);
  const auto set = [&](int bytes) {
    CU(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
  };
  std::atomic<int> round{0}, done{0};
  std::thread beside([&] {
    CU(cuCtxSetCurrent(gpu.context));
    for (int i = 1; i <= kRounds; ++i) {
      wait_until(round, i);
      set(kNeeded);
      done = i;
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    set(kNeeded - 1024);
    round = i;
    for (std::atomic<int> at{i % 40}; at > 0; --at) {
    }
    set(1024);
    wait_until(done, i);
    set(kNeeded);
    LAUNCH(kernel, {1}, {1}, kNeeded, nullptr, out.pointer, 1);
  }
  beside.join();
  SHOW(cuCtxSynchronize());
  return 0;
}

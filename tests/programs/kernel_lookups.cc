// Threads that look the kernels of one module up at the same time: each gets all of them, and each
// works.
#include <barrier>
#include <thread>

#include "tests/programs/common.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 40;
constexpr uint32_t kCount = 32;
const char* const kNames[] = {"vector_add", "saxpy",     "fill",   "step",
                              "block_sum",  "histogram", "matmul", "fill_bytes",
                              "exact_math", "warp_ops",  "poke"};

// One after the other, and with each a look-up that finds nothing.
CUfunction look_all_up(CUmodule module) {
  CUfunction step = nullptr, found = nullptr;
  for (const char* name : kNames) {
    CU(cuModuleGetFunction(&found, module, name));
    EXPECT(cuModuleGetFunction(&step, module, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
    const char* its_name = nullptr;
    CU(cuFuncGetName(&its_name, found));
    EXPECT(std::string(its_name) == name);
  }
  CU(cuModuleGetFunction(&step, module, "step"));
  return step;
}

}  // namespace

int main() {
  Gpu gpu;
  const std::vector<char> image = read_beside("kernels.fatbin");
  CUmodule module = nullptr;
  std::barrier together(kThreads + 1);
  std::vector<std::thread> threads;
  uint64_t results[kThreads] = {};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CU(cuCtxSetCurrent(gpu.context));
      DeviceArray<uint32_t> data(std::vector<uint32_t>(kCount, static_cast<uint32_t>(t)));
      CUstream stream;
      CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      for (int round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();  // the module is there
        LAUNCH(look_all_up(module), {1}, {kCount}, 0, stream, data.pointer, 3u, 1u, kCount);
        CU(cuStreamSynchronize(stream));
        together.arrive_and_wait();  // nobody uses it any more
      }
      CU(cuStreamDestroy(stream));
      results[t] = hash_of(data.read());
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    CU(cuModuleLoadData(&module, image.data()));
    together.arrive_and_wait();
    together.arrive_and_wait();
    CU(cuModuleUnload(module));
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t)
    printf("thread %d: %016llx\n", t, static_cast<unsigned long long>(results[t]));
  return 0;
}

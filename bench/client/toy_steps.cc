// A launch-bound program, step by step: 200 tiny kernels and a synchronise. What a step costs is
// what its launches cost.
//
// Speaks the protocol of tests/gpu/items/worker.py: `run N` answers the latencies of N steps,
// `finish` the counter's value. Argument: how the kernels' parameters change from launch to launch,
// `same` or `different` (each adds another amount).
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>

#include "bench/client/common.h"

namespace {

constexpr uint32_t kKernels = 200;
constexpr uint32_t kWarmUp = 20;

class Toy {
 public:
  explicit Toy(bool different) : different_(different) {
    CUdevice device;
    bench::enter_first_gpu(&device);
    CU(cuModuleLoadData(&module_, bench::kPtx));
    CU(cuModuleGetFunction(&kernel_, module_, "count_up"));
    CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&counter_, 4));
    CU(cuMemsetD32Async(counter_, 0, 1, stream_));  // the stream would not wait for the legacy one
  }

  int64_t step() {
    const int64_t begin = bench::now_ns();
    for (uint32_t i = 0; i < kKernels; ++i) {
      uint32_t amount = different_ ? (i * 7 + steps_ * 13) % 1000 : 1;
      void* args[] = {&counter_, &amount};
      CU(cuLaunchKernel(kernel_, 1, 1, 1, 32, 1, 1, 0, stream_, args, nullptr));
      expected_ += amount;
    }
    CU(cuStreamSynchronize(stream_));
    ++steps_;
    return bench::now_ns() - begin;
  }

  // The counter's value, as text; ends the program when the kernels did not add up.
  std::string finish() {
    uint32_t value = 0;
    CU(cuMemcpyDtoH(&value, counter_, 4));
    if (value != expected_) {
      fprintf(stderr, "the kernels added up to %u, should be %u\n", value, expected_);
      exit(1);
    }
    CU(cuMemFree(counter_));
    CU(cuStreamDestroy(stream_));
    CU(cuModuleUnload(module_));
    return std::to_string(value) + " after " + std::to_string(steps_);
  }

 private:
  bool different_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr counter_ = 0;
  uint32_t expected_ = 0, steps_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Toy toy(argc > 1 && strcmp(argv[1], "different") == 0);
  for (uint32_t i = 0; i < kWarmUp; ++i) toy.step();
  printf("@ready {\"pid\": %d}\n", getpid());
  fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    int steps = 0;
    words >> command >> steps;
    if (command == "finish") {
      printf("@done {\"hashes\": {\"counter\": [\"%s\", 4]}}\n", toy.finish().c_str());
      return fflush(stdout);
    }
    std::string times;
    for (int i = 0; i < steps; ++i) times += (i == 0 ? "" : ", ") + std::to_string(toy.step());
    printf("@block {\"latency_ns\": [%s]}\n", times.c_str());
    fflush(stdout);
  }
  return 0;
}

// What GPU memory costs: to get it, to free it, and to get it and use it for the first time.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

constexpr size_t kUsedBytes = 64u << 10;  // at the beginning and the end of each allocation

class TakeMemory : public Task {
 public:
  TakeMemory(const std::string& what, size_t bytes, int samples)
      : what_(what), bytes_(bytes), samples_(samples) {
    if (what != "allocate" && what != "free" && what != "use") {
      fprintf(stderr, "no part of an allocation: %s\n", what.c_str());
      exit(2);
    }
  }
  ~TakeMemory() override { CU(cuStreamDestroy(stream_)); }

  void prepare() override {
    Block unused;
    for (int i = 0; i < 3; ++i) sample(unused);
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    for (int i = 0; i < samples_; ++i) sample(block);
    block.end_ns = now_ns();
  }

  std::string verify() override { return wrong_; }

 private:
  void sample(Block& block) {
    CUdeviceptr memory = 0;
    const int64_t begin = now_ns();
    CU(cuMemAlloc(&memory, bytes_));
    const int64_t got = now_ns();
    const uint32_t value = 0x5a5a0000u + ++number_;
    CU(cuMemsetD32Async(memory, value, used() / 4, stream_));
    CU(cuStreamSynchronize(stream_));
    const int64_t used_it = now_ns();
    CU(cuMemsetD32Async(memory + bytes_ - used(), value, used() / 4, stream_));
    check(memory, value);
    check(memory + bytes_ - used(), value);
    const int64_t freeing = now_ns();
    CU(cuMemFree(memory));
    const int64_t freed = now_ns();
    if (what_ == "allocate") block.latency_ns.push_back(got - begin);
    else if (what_ == "use") block.latency_ns.push_back(used_it - begin);
    else block.latency_ns.push_back(freed - freeing);
  }

  size_t used() const { return bytes_ < kUsedBytes ? bytes_ : kUsedBytes; }

  void check(CUdeviceptr memory, uint32_t value) {
    std::vector<uint32_t> words(used() / 4);
    CU(cuMemcpyDtoHAsync(words.data(), memory, words.size() * 4, stream_));
    CU(cuStreamSynchronize(stream_));
    for (const uint32_t word : words) {
      if (word != value && wrong_.empty()) wrong_ = "memory does not hold what was written to it";
    }
  }

  const std::string what_;
  const size_t bytes_;
  const int samples_;
  uint32_t number_ = 0;
  CUstream stream_ = new_stream();
  std::string wrong_;
};

}  // namespace

std::unique_ptr<Task> make_take_memory(Client&, std::istream& words) {
  std::string what;
  size_t bytes = 0;
  int samples = 0;
  words >> what >> bytes >> samples;
  return std::make_unique<TakeMemory>(what, bytes, samples);
}

}  // namespace bench

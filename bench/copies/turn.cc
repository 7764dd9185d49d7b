// A function that holds GPU memory and has a turn now and then: kernels' worth of work on all of
// it, timed from the first call to the last one's end.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/client/common.h"
#include "bench/copies/task.h"

namespace bench {
namespace {

constexpr size_t kUsedBytes = 4096;  // at the beginning and the end of each block

// Kept from one turn to the next.
struct Memory {
  std::vector<CUdeviceptr> blocks;
  size_t block_bytes = 0;
  uint32_t value = 0;
};

Memory& memory_of_program() {
  static auto* const memory = new Memory;
  return *memory;
}

class Turn : public Task {
 public:
  Turn(size_t bytes, size_t blocks) : bytes_(bytes), count_(blocks) {}
  ~Turn() override { CU(cuStreamDestroy(stream_)); }

  void prepare() override {
    if (!memory_.blocks.empty()) return;
    memory_.block_bytes = bytes_ / count_;
    for (size_t i = 0; i < count_; ++i) {
      CUdeviceptr block = 0;
      CU(cuMemAlloc(&block, memory_.block_bytes));
      memory_.blocks.push_back(block);
    }
    write();
    CU(cuStreamSynchronize(stream_));
  }

  void measure(Block& block) override {
    block.bytes = bytes_;
    block.begin_ns = now_ns();
    CU(cuMemsetD32Async(memory_.blocks.front() + memory_.block_bytes / 2, 1, 1, stream_));
    CU(cuStreamSynchronize(stream_));
    block.end_ns = now_ns();
    block.latency_ns.push_back(block.end_ns - block.begin_ns);
    check();
    write();
    CU(cuStreamSynchronize(stream_));
  }

  std::string verify() override { return wrong_; }

 private:
  CUdeviceptr last(CUdeviceptr block) const { return block + memory_.block_bytes - kUsedBytes; }

  void write() {
    ++memory_.value;
    for (const CUdeviceptr block : memory_.blocks) {
      CU(cuMemsetD32Async(block, memory_.value, kUsedBytes / 4, stream_));
      CU(cuMemsetD32Async(last(block), memory_.value, kUsedBytes / 4, stream_));
    }
  }

  void check() {
    std::vector<uint32_t> words(kUsedBytes / 4);
    for (const CUdeviceptr block : memory_.blocks) {
      for (const CUdeviceptr place : {block, last(block)}) {
        CU(cuMemcpyDtoH(words.data(), place, kUsedBytes));
        for (const uint32_t word : words)
          if (word != memory_.value) wrong_ = "memory is not what was written before the turn";
      }
    }
  }

  const size_t bytes_, count_;
  Memory& memory_ = memory_of_program();
  CUstream stream_ = new_stream();
  std::string wrong_;
};

}  // namespace

std::unique_ptr<Task> make_turn(Client&, std::istream& words) {
  size_t bytes = 0, blocks = 1;
  words >> bytes >> blocks;
  return std::make_unique<Turn>(bytes, blocks);
}

}  // namespace bench

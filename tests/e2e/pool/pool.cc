// A function that allocates GPU memory and frees it again, as it is told on its command line;
// pool_test.py says what must come of it. It knows nothing of Tube.
//
//   churn SEED STEPS     two threads; every allocation is written and read back. Prints "equal".
//   fill MIB             allocates that much at a time until it fails: how often, and the error;
//                        frees every second one and says the same again, five times
//   order STEPS          frees and allocates one size, each use in a stream of its own
//   endless SEED         churns until it is killed; a line for each hundred steps
//   small SEED STEPS, endless_small SEED    the same with allocations of 1 MiB at most, many of
//   them
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/common.h"

namespace {

constexpr size_t kMiB = 1u << 20;

CUcontext context = nullptr;

struct Memory {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  unsigned value = 0;
};

// Beginning, middle and end.
std::vector<CUdeviceptr> places(const Memory& memory) {
  return {memory.address, memory.address + memory.bytes / 2 / 4 * 4,
          memory.address + memory.bytes - 256};
}

void write(const Memory& memory, CUstream stream) {
  for (const CUdeviceptr place : places(memory))
    CU(cuMemsetD32Async(place, memory.value, 64, stream));
}

void compare(const Memory& memory, CUstream stream) {
  for (const CUdeviceptr place : places(memory)) {
    unsigned words[64];
    CU(cuMemcpyDtoHAsync(words, place, sizeof words, stream));
    CU(cuStreamSynchronize(stream));
    for (const unsigned word : words) {
      if (word == memory.value) continue;
      fprintf(stderr, "memory holds %x where %x was written\n", word, memory.value);
      exit(1);
    }
  }
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CU(cuMemGetAddressRange(&base, &bytes, memory.address + memory.bytes - 1));
  if (base != memory.address || bytes != memory.bytes) {
    fprintf(stderr, "an allocation is not where it was\n");
    exit(1);
  }
}

constexpr size_t kSizes[] = {4096,     65536,        kMiB,     kMiB + 512, 2 * kMiB,
                             2 * kMiB, 3 * kMiB + 4, 4 * kMiB, 8 * kMiB};

class Churn {
 public:
  explicit Churn(unsigned seed, bool small) : small_(small), random_(seed), number_(seed << 16) {
    CU(cuCtxSetCurrent(context));
    CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void step() {
    if (random_() % 2 == 0 && all_.size() < (small_ ? 100 : 12)) {
      Memory memory{0, size(), ++number_};
      const CUresult error = cuMemAlloc(&memory.address, memory.bytes);
      if (error == CUDA_ERROR_OUT_OF_MEMORY) return;
      CU(error);
      write(memory, stream_);
      all_.push_back(memory);
    } else if (!all_.empty()) {
      const size_t which = random_() % all_.size();
      compare(all_[which], stream_);
      if (random_() % (small_ ? 64 : 4) == 0) CU(cuMemFreeAsync(all_[which].address, stream_));
      else CU(cuMemFree(all_[which].address));
      all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  void end() {
    for (const Memory& memory : all_) {
      compare(memory, stream_);
      CU(cuMemFree(memory.address));
    }
    CU(cuStreamDestroy(stream_));
  }

 private:
  size_t size() {
    if (!small_) return kSizes[random_() % std::size(kSizes)];
    return 512 + 4 * (random_() % (random_() % 8 == 0 ? (kMiB - 512) / 4 + 1 : 4096));
  }

  const bool small_;
  std::mt19937 random_;
  unsigned number_;
  CUstream stream_ = nullptr;
  std::vector<Memory> all_;
};

void churn(unsigned seed, int steps, bool small) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i) {
    threads.emplace_back([=] {
      Churn churn(2 * seed + i + 1, small);
      for (int step = 0; step < steps; ++step) churn.step();
      churn.end();
    });
  }
  for (std::thread& thread : threads) thread.join();
  printf("equal\n");
}

[[noreturn]] void endless(unsigned seed, bool small) {
  Churn churn(seed, small);
  for (;;) {
    for (int step = 0; step < 100; ++step) churn.step();
    printf("here\n");
    fflush(stdout);
  }
}

void fill(size_t bytes) {
  std::vector<CUdeviceptr> all;
  for (int round = 0; round < 5; ++round) {
    CUresult error = CUDA_SUCCESS;
    int count = 0;
    for (;; ++count) {
      CUdeviceptr address = 0;
      error = cuMemAlloc(&address, bytes);
      if (error != CUDA_SUCCESS) break;
      all.push_back(address);
    }
    size_t free_bytes = 0, total = 0;
    CU(cuMemGetInfo(&free_bytes, &total));
    printf("%d more, then %s; %zu of %zu MiB free\n", count, code_name(error), free_bytes / kMiB,
           total / kMiB);
    std::vector<CUdeviceptr> kept;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % 2 == 0) CU(cuMemFree(all[i]));
      else kept.push_back(all[i]);
    }
    all = kept;
    CU(cuMemGetInfo(&free_bytes, &total));
    printf("%zu of %zu MiB free\n", free_bytes / kMiB, total / kMiB);
    CUdeviceptr large = 0;  // what was freed serves another size, too
    const CUresult other = cuMemAlloc(&large, 3 * bytes);
    printf("another size: %s\n", code_name(other));
    if (other == CUDA_SUCCESS) CU(cuMemFree(large));
  }
}

// Stream-ordered memory of many sizes, one at a time, from a pool that may keep all it had.
[[noreturn]] void varied(unsigned steps) {
  CUstream stream;
  CUmemoryPool pool;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuDeviceGetDefaultMemPool(&pool, 0));
  uint64_t threshold = UINT64_MAX;
  CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  std::mt19937 random(3);
  for (unsigned i = 0; i < steps; ++i) {
    CUdeviceptr address = 0;
    CU(cuMemAllocAsync(&address, kMiB + random() % (16 * kMiB), stream));
    CU(cuMemsetD8Async(address, 1, 4096, stream));
    CU(cuMemFreeAsync(address, stream));
    if (i % 4 == 3) CU(cuStreamSynchronize(stream));
  }
  CU(cuStreamSynchronize(stream));
  printf("here\n");
  fflush(stdout);
  for (;;) pause();
}

void order(size_t steps) {
  for (unsigned i = 0; i < steps; ++i) {
    Memory memory{0, 2 * kMiB, i + 1};
    CUstream streams[2];
    for (CUstream& stream : streams) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&memory.address, memory.bytes));
    write(memory, streams[i % 2]);
    CU(cuStreamSynchronize(streams[i % 2]));
    compare(memory, streams[1 - i % 2]);
    std::vector<char> host(memory.bytes, static_cast<char>(i));
    CU(cuMemcpyHtoD(memory.address, host.data(), host.size()));
    std::vector<char> back(memory.bytes);
    CU(cuMemcpyDtoH(back.data(), memory.address, back.size()));
    if (back != host) {
      fprintf(stderr, "other bytes came back\n");
      exit(1);
    }
    CU(cuMemFree(memory.address));
    for (CUstream stream : streams) CU(cuStreamDestroy(stream));
  }
  printf("equal\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  CUdevice device = 0;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  if (words.empty()) return 2;
  const auto number = [&](size_t i) { return static_cast<unsigned>(std::stoul(words.at(i))); };
  if (words[0] == "churn") churn(number(1), static_cast<int>(number(2)), false);
  else if (words[0] == "small") churn(number(1), static_cast<int>(number(2)), true);
  else if (words[0] == "fill") fill(number(1) * kMiB);
  else if (words[0] == "order") order(number(1));
  else if (words[0] == "varied") varied(number(1));
  else if (words[0] == "endless") endless(number(1), false);
  else if (words[0] == "endless_small") endless(number(1), true);
  else return 2;
  return 0;
}

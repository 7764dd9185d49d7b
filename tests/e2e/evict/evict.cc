// A function that holds GPU memory and does as it is told on stdin, a line an answer;
// evict_test.py says what must come of it. It knows nothing of Tube.
//
//   take BLOCKS KiB   so many blocks of that size, filled: the driver's code
//   far KiB           one on the second GPU, which no kernel reaches: the driver's code
//   bump              a kernel adds one to the first word of each block, whose addresses it reads
//                     in GPU memory: "done"
//   graph             the same by an instance of a graph, made anew when the blocks are others
//   async             the same, not waited for
//   check             whether all blocks hold what was written: "equal"
//   free N            the Nth block: "freed"
//   drop N            the same, and no kernel may be launched behind it: "freed"
//   again N           frees the Nth block and takes one of its size: the driver's code
//   share N           a handle of the Nth block for other processes: "shared"
//   array KiB         an array that stays: the driver's code
//   unarray           ends it in another thread: "begun"
//   info              free and total bytes
//   spin              kernels without a pause until there is a line: how many, as "spun"
//   churn SEED STEPS  allocates, writes, frees, checks at random: "equal"
//   endless SEED      the same without end, "here" now and then
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/common.h"
#include "tests/programs/told.h"

namespace {

const char* const kImage = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry bump(.param .u64 table, .param .u32 count) {
  .reg .u64 %a<5>;
  .reg .u32 %r<4>;
  .reg .pred %p<2>;
  ld.param.u64 %a0, [table];
  cvta.to.global.u64 %a1, %a0;
  ld.param.u32 %r0, [count];
next:
  setp.eq.u32 %p0, %r0, 0;
  @%p0 bra done;
  ld.global.u64 %a2, [%a1];
  cvta.to.global.u64 %a3, %a2;
  atom.global.add.u32 %r1, [%a3], 1;
  add.u64 %a1, %a1, 8;
  sub.u32 %r0, %r0, 1;
  bra next;
done:
  ret;
}
)";

struct Block {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  uint32_t seed = 0;
  uint32_t bumps = 0;
};

class Function {
 public:
  Function() {
    CUdevice device = 0;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&context_, nullptr, 0, device));
    CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&module_, kImage));
    CU(cuModuleGetFunction(&bump_, module_, "bump"));
    CU(cuMemAlloc(&table_, kMost * sizeof(CUdeviceptr)));
  }

  CUresult take(size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) {
      Block block{0, bytes, ++seed_};
      if (CUresult error = cuMemAlloc(&block.address, bytes); error != CUDA_SUCCESS) {
        write_table();
        return error;
      }
      fill(block);
      blocks_.push_back(block);
    }
    write_table();
    return CUDA_SUCCESS;
  }

  CUresult take_far(size_t bytes) {
    CUdevice device = 0;
    CU(cuDeviceGet(&device, 1));
    if (far_context_ == nullptr) CU(cuCtxCreate(&far_context_, nullptr, 0, device));
    else CU(cuCtxPushCurrent(far_context_));
    Block block{0, bytes, ++seed_};
    const CUresult error = cuMemAlloc(&block.address, bytes);
    CU(cuCtxPopCurrent(nullptr));
    if (error != CUDA_SUCCESS) return error;
    fill(block);
    far_.push_back(block);
    return CUDA_SUCCESS;
  }

  void bump() {
    uint32_t count = static_cast<uint32_t>(blocks_.size());
    void* parameters[] = {&table_, &count};
    CU(cuLaunchKernel(bump_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr));
    for (Block& block : blocks_) ++block.bumps;
  }

  void graph() {
    if (instance_ == nullptr) {
      CUgraph made = nullptr;
      CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      bump();
      CU(cuStreamEndCapture(stream_, &made));
      CU(cuGraphInstantiate(&instance_, made, 0));
      CU(cuGraphDestroy(made));
      for (Block& block : blocks_) --block.bumps;
    }
    CU(cuGraphLaunch(instance_, stream_));
    for (Block& block : blocks_) ++block.bumps;
  }

  void wait() { CU(cuStreamSynchronize(stream_)); }

  bool equal() {
    wait();
    for (const Block& block : blocks_)
      if (!equal(block)) return false;
    for (const Block& block : far_)
      if (!equal(block)) return false;
    return true;
  }

  void free(size_t which) {
    CU(cuMemFree(blocks_[which].address));
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(which));
    write_table();
  }

  void unarray() {
    std::thread([this] { CU(cuArrayDestroy(array_)); }).detach();
  }

  // Without its stream, which may have to wait.
  void drop(size_t which) {
    CU(cuMemFree(blocks_[which].address));
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(which));
  }

  // The next request of a size that was just freed needs no round trip through the proxy.
  CUresult again(size_t which) {
    Block& block = blocks_[which];
    CU(cuMemFree(block.address));
    if (CUresult error = cuMemAlloc(&block.address, block.bytes); error != CUDA_SUCCESS)
      return error;
    block.seed = ++seed_;
    block.bumps = 0;
    fill(block);
    write_table();
    return CUDA_SUCCESS;
  }

  void share(size_t which) {
    CUipcMemHandle handle;
    CU(cuIpcGetMemHandle(&handle, blocks_[which].address));
  }

  CUresult array(size_t kib) {
    CUDA_ARRAY_DESCRIPTOR what{};
    what.Width = 1024;
    what.Height = kib;
    what.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    what.NumChannels = 1;
    return cuArrayCreate(&array_, &what);
  }

  unsigned spin() {
    unsigned count = 0;
    pollfd line{STDIN_FILENO, POLLIN, 0};
    while (poll(&line, 1, 0) == 0) {
      bump();
      if (++count % 16 == 0) wait();
    }
    wait();
    return count;
  }

  // False: the memory held something else.
  bool churn(std::mt19937& random, unsigned steps) {
    static constexpr size_t kSizes[] = {4096, 300 << 10, 2 << 20, 3 << 20, 5 << 20, 8 << 20};
    for (unsigned i = 0; i < steps; ++i) {
      const unsigned what = random() % 8;
      if (what < 3 && blocks_.size() < 8) {
        const CUresult error = take(1, kSizes[random() % std::size(kSizes)]);
        if (error != CUDA_ERROR_OUT_OF_MEMORY) CU(error);
      } else if (what < 4 && !blocks_.empty()) {
        free(random() % blocks_.size());
      } else if (what < 5 && !blocks_.empty()) {
        const size_t which = random() % blocks_.size();
        const CUresult error = again(which);
        if (error != CUDA_SUCCESS) {
          if (error != CUDA_ERROR_OUT_OF_MEMORY) CU(error);
          blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(which));
          write_table();
        }
      } else if (what < 6) {
        bump();
      } else if (!blocks_.empty() && !(wait(), equal(blocks_[random() % blocks_.size()]))) {
        return false;
      }
    }
    return equal();
  }

 private:
  static constexpr size_t kMost = 4096;

  static uint32_t word(uint32_t seed, size_t index) {
    return (seed * 2654435761u) ^ static_cast<uint32_t>(index * 40503u);
  }

  void fill(const Block& block) {
    std::vector<uint32_t> words(block.bytes / 4);
    for (size_t i = 0; i < words.size(); ++i) words[i] = word(block.seed, i);
    CU(cuMemcpyHtoDAsync(block.address, words.data(), block.bytes, stream_));
    wait();
  }

  bool equal(const Block& block) {
    std::vector<uint32_t> words(block.bytes / 4);
    CU(cuMemcpyDtoHAsync(words.data(), block.address, block.bytes, stream_));
    wait();
    for (size_t i = 0; i < words.size(); ++i) {
      const uint32_t wanted = word(block.seed, i) + (i == 0 ? block.bumps : 0);
      if (words[i] == wanted) continue;
      fprintf(stderr, "word %zu is %x, not %x\n", i, words[i], wanted);
      return false;
    }
    return true;
  }

  void write_table() {
    std::vector<CUdeviceptr> addresses;
    for (const Block& block : blocks_) addresses.push_back(block.address);
    wait();
    if (instance_ != nullptr) CU(cuGraphExecDestroy(std::exchange(instance_, nullptr)));
    if (addresses.empty()) return;
    CU(cuMemcpyHtoDAsync(table_, addresses.data(), addresses.size() * sizeof(CUdeviceptr),
                         stream_));
    wait();
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction bump_ = nullptr;
  CUgraphExec instance_ = nullptr;
  CUarray array_ = nullptr;
  CUdeviceptr table_ = 0;
  uint32_t seed_ = static_cast<uint32_t>(getpid()) << 8;
  std::vector<Block> blocks_;
  CUcontext far_context_ = nullptr;
  std::vector<Block> far_;
};

void answer(Function& function, const char* verb, unsigned long a, unsigned long b) {
  const std::string what = verb;
  if (what == "take") printf("%d\n", static_cast<int>(function.take(a, b << 10)));
  if (what == "far") printf("%d\n", static_cast<int>(function.take_far(a << 10)));
  if (what == "bump") function.bump(), function.wait(), puts("done");
  if (what == "graph") function.graph(), function.wait(), puts("done");
  if (what == "async") function.bump(), puts("done");
  if (what == "check") puts(function.equal() ? "equal" : "differs");
  if (what == "free") function.free(a), puts("freed");
  if (what == "drop") function.drop(a), puts("freed");
  if (what == "unarray") function.unarray(), puts("begun");
  if (what == "again") printf("%d\n", static_cast<int>(function.again(a)));
  if (what == "share") function.share(a), puts("shared");
  if (what == "array") printf("%d\n", static_cast<int>(function.array(a)));
  if (what == "spin") puts("spinning"), fflush(stdout), function.spin(), puts("spun");
  if (what == "info") {
    size_t free_bytes = 0, total = 0;
    CU(cuMemGetInfo(&free_bytes, &total));
    printf("%zu %zu\n", free_bytes, total);
  }
  if (what == "churn" || what == "endless") {
    std::mt19937 random(static_cast<unsigned>(a));
    bool equal = function.churn(random, what == "churn" ? static_cast<unsigned>(b) : 20);
    while (equal && what == "endless") {
      puts("here"), fflush(stdout);
      equal = function.churn(random, 20);
    }
    puts(equal ? "equal" : "differs");
  }
}

}  // namespace

int main() {
  auto* const function = left_behind<Function>();
  do_as_told(
      [&](const char* verb, unsigned long a, unsigned long b) { answer(*function, verb, a, b); });
  return 0;
}

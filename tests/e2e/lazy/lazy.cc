// A function whose pointers travel to the GPU by every way there is. It does as it is told on
// stdin, a line an answer; lazy_test.py says what must come of it. It knows nothing of Tube.
//
//   take MiB   a block, which nothing uses yet: the driver's code
//   drop       frees it: "freed"
//   WAY        a kernel writes a number to the block, whose address gets there by that way, and the
//              number is read back: "right" or "wrong"
//   churn SEED STEPS   allocates, fills, checks, frees at random: "equal"
//   endless SEED       the same without end, "here" now and then
//   touch N GiB        allocates N blocks, fills 64 KiB of one: the driver's code
//   load               loads another image: the driver's code
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/programs/common.h"
#include "tests/programs/told.h"

namespace {

const char* const kImage = R"(
.version 7.0
.target sm_75
.address_size 64
.const .align 8 .u64 held;
.visible .global .align 8 .u64 slot;
.visible .entry direct(.param .u64 a, .param .u32 v) {
  .reg .u64 %a<2>;
  .reg .u32 %v;
  ld.param.u64 %a0, [a];
  ld.param.u32 %v, [v];
  st.u32 [%a0], %v;
  ret;
}
.visible .entry in_array(.param .u64 a, .param .u32 v) {
  .reg .u64 %a<2>;
  .reg .u32 %v;
  ld.param.u64 %a0, [a];
  ld.param.u32 %v, [v];
  ld.u64 %a1, [%a0];
  st.u32 [%a1], %v;
  ret;
}
.visible .entry in_struct(.param .align 4 .b8 s[16]) {
  .reg .u64 %a<3>;
  .reg .u32 %v<3>;
  ld.param.u32 %v0, [s+4];
  ld.param.u32 %v1, [s+8];
  ld.param.u32 %v2, [s+12];
  cvt.u64.u32 %a0, %v0;
  cvt.u64.u32 %a1, %v1;
  shl.b64 %a1, %a1, 32;
  or.b64 %a2, %a0, %a1;
  st.u32 [%a2], %v2;
  ret;
}
.visible .entry encoded(.param .u64 a, .param .u64 key, .param .u32 v) {
  .reg .u64 %a<3>;
  .reg .u32 %v;
  ld.param.u64 %a0, [a];
  ld.param.u64 %a1, [key];
  ld.param.u32 %v, [v];
  xor.b64 %a2, %a0, %a1;
  st.u32 [%a2], %v;
  ret;
}
.visible .entry computed(.param .u64 base, .param .u64 offset, .param .u32 v) {
  .reg .u64 %a<3>;
  .reg .u32 %v;
  ld.param.u64 %a0, [base];
  ld.param.u64 %a1, [offset];
  ld.param.u32 %v, [v];
  add.u64 %a2, %a0, %a1;
  st.u32 [%a2], %v;
  ret;
}
.visible .entry constant(.param .u32 v) {
  .reg .u64 %a;
  .reg .u32 %v;
  ld.param.u32 %v, [v];
  ld.const.u64 %a, [held];
  st.u32 [%a], %v;
  ret;
}
.visible .entry polls(.param .u64 pinned, .param .u32 v) {
  .reg .u64 %a<2>;
  .reg .u32 %v;
  .reg .pred %p;
  ld.param.u64 %a0, [pinned];
  ld.param.u32 %v, [v];
again:
  ld.volatile.u64 %a1, [%a0];
  setp.eq.u64 %p, %a1, 0;
  @%p bra again;
  st.u32 [%a1], %v;
  ret;
}
)";

const char* const kOther = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() {
  ret;
}
)";

class Function {
 public:
  Function() {
    CUdevice device = 0;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuCtxCreate(&context_, nullptr, 0, device));
    CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&module_, kImage));
    CU(cuMemAlloc(&large_, kLargeBytes));
    CU(cuMemAlloc(&table_, 4096));
    CU(cuMemsetD8(table_, 0, 4096));
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned_), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    *pinned_ = 0;
    CU(cuMemHostGetDevicePointer(&pinned_address_, pinned_, 0));
    ways_ = {{"direct", [this] { launch("direct", block_, value_); }},
             {"in_struct", [this] { in_struct(); }},
             {"in_array", [this] { in_array(); }},
             {"in_table", [this] { in_table(); }},
             {"in_pinned_table", [this] { in_pinned_table(); }},
             {"encoded", [this] { launch("encoded", block_ ^ kKey, kKey, value_); }},
             {"computed", [this] { launch("computed", table_, block_ - table_, value_); }},
             {"constant", [this] { constant(); }},
             {"in_pinned", [this] { in_pinned(); }},
             {"copied", [this] { CU(cuMemcpyHtoDAsync(block_, &value_, 4, stream_)); }},
             {"filled", [this] { CU(cuMemsetD32Async(block_, value_, 16, stream_)); }},
             {"graph", [this] { graph(); }},
             {"texture", [this] { texture(); }},
             {"written", [this] { CU(cuStreamWriteValue32(stream_, block_, value_, 0)); }}};
  }

  CUresult take(size_t mebibytes) { return cuMemAlloc(&block_, mebibytes << 20); }
  void drop() { CU(cuMemFree(block_)); }
  bool go(const std::string& way) {
    const auto found = ways_.find(way);
    EXPECT(found != ways_.end());
    ++value_;
    found->second();
    return right();
  }
  // A kernel runs already, and waits for the address of a block that is still to come. Nothing else
  // is asked of the GPU before it has ended.
  bool polls() {
    ++value_;
    *pinned_ = 0;
    launch("polls", pinned_address_, value_);
    CU(take(4));
    *static_cast<volatile CUdeviceptr*>(pinned_) = block_;
    while (cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
    }
    const bool was_right = right();
    *pinned_ = 0;
    return was_right;
  }
  CUresult touch(size_t count, size_t gibibytes) {
    for (size_t i = 0; i < count; ++i)
      if (CUresult error = cuMemAlloc(&block_, gibibytes << 30); error != CUDA_SUCCESS)
        return error;
    CU(cuMemsetD8(block_, 1, 64 << 10));
    return cuCtxSynchronize();
  }
  CUresult load() {
    CUmodule other = nullptr;
    return cuModuleLoadData(&other, kOther);
  }
  bool churn(std::mt19937& random, unsigned steps) {
    for (unsigned i = 0; i < steps; ++i) {
      const unsigned what = random() % 8;
      if (what < 4 && held_.size() < 12) {
        Held held{0, (random() % 6 == 0 ? 4096u : (1u << 20) + random() % (9u << 20)), 0, false};
        const CUresult error = cuMemAlloc(&held.address, held.bytes);
        if (error == CUDA_ERROR_OUT_OF_MEMORY) continue;
        CU(error);
        held_.push_back(held);
      } else if (what < 6 && !held_.empty()) {
        const size_t which = random() % held_.size();
        if (!equal(held_[which])) return false;
        CU(cuMemFree(held_[which].address));
        held_[which] = held_.back();
        held_.pop_back();
      } else if (!held_.empty()) {
        Held& held = held_[random() % held_.size()];
        held.value = static_cast<uint32_t>(random());
        held.filled = true;
        CU(cuMemsetD32Async(held.address, held.value, held.bytes / 4, stream_));
      }
    }
    for (const Held& held : held_)
      if (!equal(held)) return false;
    return true;
  }

 private:
  static constexpr uint64_t kKey = 0x5a5a5a5a5a5a5a5aull;
  static constexpr size_t kLargeBytes = 1u << 20;
  struct Held {
    CUdeviceptr address;
    size_t bytes;
    uint32_t value;
    bool filled;
  };

  template <class... Arguments>
  void launch(const char* name, Arguments... arguments) {
    CUfunction function = nullptr;
    CU(cuModuleGetFunction(&function, module_, name));
    void* parameters[] = {&arguments...};
    CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr));
  }
  void in_struct() {
    struct {
      uint32_t before, low, high, value;
    } split{0, static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32), value_};
    static_assert(sizeof(split) == 16);
    launch("in_struct", split);
  }
  void in_array() {
    CU(cuMemcpyHtoDAsync(table_, &block_, sizeof(block_), stream_));
    launch("in_array", table_, value_);
  }
  // Large enough for a staging chunk.
  void in_table() {
    std::vector<CUdeviceptr> words(kLargeBytes / sizeof(CUdeviceptr));
    const size_t at = words.size() * 3 / 4;
    words[at] = block_;
    CU(cuMemcpyHtoDAsync(large_, words.data(), kLargeBytes, stream_));
    launch("in_array", large_ + at * sizeof(CUdeviceptr), value_);
  }
  void in_pinned_table() {
    pinned_[17] = block_;
    CU(cuMemcpyHtoDAsync(large_, pinned_, 4096, stream_));
    launch("in_array", large_ + 17 * sizeof(CUdeviceptr), value_);
  }
  void constant() {
    CUdeviceptr held = 0;
    size_t bytes = 0;
    CU(cuModuleGetGlobal(&held, &bytes, module_, "held"));
    CU(cuMemcpyHtoDAsync(held, &block_, sizeof(block_), stream_));
    launch("constant", value_);
  }
  void in_pinned() {
    *pinned_ = block_;
    launch("in_array", pinned_address_, value_);
    CU(cuStreamSynchronize(stream_));
    *pinned_ = 0;
  }
  // An instance that was made before the block; its kernel finds the address in pinned memory.
  void graph() {
    if (instance_ == nullptr) {
      CUgraph made = nullptr;
      CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      launch("in_array", pinned_address_, value_);
      CU(cuStreamEndCapture(stream_, &made));
      CU(cuGraphInstantiate(&instance_, made, 0));
      CU(cuGraphDestroy(made));
      graph_value_ = value_;
      CU(cuMemFree(block_));
      CU(take(4));
    }
    value_ = graph_value_;
    *pinned_ = block_;
    CU(cuGraphLaunch(instance_, stream_));
    CU(cuStreamSynchronize(stream_));
    *pinned_ = 0;
  }
  void texture() {
    CUDA_RESOURCE_DESC what{};
    what.resType = CU_RESOURCE_TYPE_LINEAR;
    what.res.linear.devPtr = block_;
    what.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    what.res.linear.numChannels = 1;
    what.res.linear.sizeInBytes = 4096;
    CUDA_TEXTURE_DESC how{};
    how.flags = CU_TRSF_READ_AS_INTEGER;
    CUtexObject object = 0;
    CU(cuTexObjectCreate(&object, &what, &how, nullptr));
    launch("direct", block_, value_);
    CU(cuStreamSynchronize(stream_));
    CU(cuTexObjectDestroy(object));
  }
  bool right() {
    uint32_t found = 0;
    CU(cuMemcpyDtoHAsync(&found, block_, sizeof(found), stream_));
    CU(cuStreamSynchronize(stream_));
    return found == value_;
  }
  bool equal(const Held& held) {
    if (!held.filled) return true;
    std::vector<uint32_t> words(held.bytes / 4);
    CU(cuMemcpyDtoHAsync(words.data(), held.address, words.size() * 4, stream_));
    CU(cuStreamSynchronize(stream_));
    for (const uint32_t word : words)
      if (word != held.value) return false;
    return true;
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUgraphExec instance_ = nullptr;
  CUdeviceptr table_ = 0, large_ = 0, block_ = 0, pinned_address_ = 0;
  CUdeviceptr* pinned_ = nullptr;
  uint32_t value_ = 41, graph_value_ = 0;
  std::map<std::string, std::function<void()>> ways_;
  std::vector<Held> held_;
};

void answer(Function& function, const std::string& what, unsigned long a, unsigned long b) {
  if (what == "take") printf("%d\n", static_cast<int>(function.take(a)));
  else if (what == "touch") printf("%d\n", static_cast<int>(function.touch(a, b)));
  else if (what == "load") printf("%d\n", static_cast<int>(function.load()));
  else if (what == "drop") function.drop(), puts("freed");
  else if (what == "polls") puts(function.polls() ? "right" : "wrong");
  else if (what == "churn" || what == "endless") {
    std::mt19937 random(static_cast<unsigned>(a));
    bool equal = function.churn(random, what == "churn" ? static_cast<unsigned>(b) : 20);
    while (equal && what == "endless") {
      puts("here");
      equal = function.churn(random, 20);
    }
    puts(equal ? "equal" : "differs");
  } else puts(function.go(what) ? "right" : "wrong");
}

}  // namespace

int main() {
  auto* const function = left_behind<Function>();
  do_as_told(
      [&](const char* verb, unsigned long a, unsigned long b) { answer(*function, verb, a, b); });
  return 0;
}

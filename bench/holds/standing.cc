// What streams that stand cost the others of their context, natively: steps of short kernels on 47
// streams in turn, beside more and more streams that wait for a value and have a kernel behind it.
//
//   CUDA_DEVICE_MAX_CONNECTIONS=32 bench/holds/standing [MOST]    some seconds on a GPU; a line for
//   each number of streams that stand, up to MOST (30)
//
// A step that does not end within three seconds shares its hardware queue with one that stands: it
// is counted, and the program ends with that line. docs/decisions/0029-waits-and-weights.md rests
// on its answers. The simulated GPU knows no such costs.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "bench/client/common.h"

namespace {

using bench::now_ns;

constexpr int kStreams = 47, kKernels = 20, kRounds = 6;
constexpr int64_t kPatienceNs = 3'000'000'000;

// Two words in pinned memory: the one that streams wait for, and that of the last step's end.
struct Words {
  uint32_t* host = nullptr;
  CUdeviceptr go = 0, done = 0;

  Words() {
    CU(cuMemHostAlloc(reinterpret_cast<void**>(&host), 128, 0));
    host[0] = host[16] = 0;
    CU(cuMemHostGetDevicePointer(&go, host, 0));
    done = go + 16 * sizeof *host;
  }
};

class Steps {
 public:
  Steps() {
    CUmodule module = nullptr;
    CU(cuModuleLoadData(&module, bench::kPtx));
    CU(cuModuleGetFunction(&count_up_, module, "count_up"));
    CU(cuMemAlloc(&counter_, sizeof(uint32_t)));
    CU(cuMemsetD32(counter_, 0, 1));
    for (CUstream& stream : streams_) stream = made();
    for (CUstream stream : streams_) (void)took_ns(stream);
  }

  // One stream more that stands.
  void stand() {
    const CUstream stream = made();
    CU(cuStreamWaitValue32(stream, words_.go, 1, CU_STREAM_WAIT_VALUE_GEQ));
    launch(stream);
  }
  void let_go() { __atomic_store_n(words_.host, 1, __ATOMIC_RELEASE); }

  // Sorted; a step that did not end is the last thing that was tried.
  std::vector<int64_t> times(bool* stuck) {
    std::vector<int64_t> times;
    for (int round = 0; round < kRounds && !*stuck; ++round) {
      for (CUstream stream : streams_) {
        const auto ns = took_ns(stream);
        *stuck = !ns;
        if (*stuck) break;
        times.push_back(*ns);
      }
    }
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  static CUstream made() {
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
  }
  void launch(CUstream stream) {
    uint32_t amount = 1;
    void* parameters[] = {&counter_, &amount};
    CU(cuLaunchKernel(count_up_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  std::optional<int64_t> took_ns(CUstream stream) {
    const int64_t begin = now_ns();
    for (int i = 0; i < kKernels; ++i) launch(stream);
    CU(cuStreamWriteValue32(stream, words_.done, ++step_, 0));
    while (__atomic_load_n(words_.host + 16, __ATOMIC_ACQUIRE) != step_)
      if (now_ns() - begin > kPatienceNs) return std::nullopt;
    return now_ns() - begin;
  }

  Words words_;
  CUfunction count_up_ = nullptr;
  CUdeviceptr counter_ = 0;
  CUstream streams_[kStreams] = {};
  uint32_t step_ = 0;
};

double us(const std::vector<int64_t>& times, size_t thousandths) {
  return times.empty() ? 0 : double(times[(times.size() - 1) * thousandths / 1000]) / 1e3;
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : 30;
  CUdevice device = 0;
  bench::enter_first_gpu(&device);
  Steps steps;
  bool stuck = false;
  for (int standing = 0; standing <= most && !stuck; ++standing) {
    if (standing != 0) steps.stand();
    const std::vector<int64_t> times = steps.times(&stuck);
    std::printf("standing %2d: p50 %.1f p90 %.1f p99 %.1f max %.1f us%s\n", standing,
                us(times, 500), us(times, 900), us(times, 990), us(times, 1000),
                stuck ? "; then a step stood" : "");
    std::fflush(stdout);
  }
  steps.let_go();
  CU(cuCtxSynchronize());
  return 0;
}

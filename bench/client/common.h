// What the bench programs share: driver calls that must succeed, the clock, a histogram of times,
// the PTX of their kernels.
//
// The programs are ordinary driver-API programs that know nothing of Tube: the same file runs
// natively, under MPS and through Tube.
#pragma once

#include <cuda.h>
#include <time.h>

#include <cstdint>
#include <string>

namespace bench {

// Ends the program with the call's text and the error's name: a bench that goes on after an error
// measures nothing.
void check(CUresult code, const char* call);
#define CU(call) ::bench::check((call), #call)
// The driver begins; the first GPU's primary context is retained, and current in this thread.
CUcontext enter_first_gpu(CUdevice* device);

// CLOCK_MONOTONIC: comparable between the processes of one machine.
inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
// CPU time of all threads of this process.
int64_t cpu_ns();
// Keeps the calling thread on one core; -1 lets it go again. Threads that exist already are left
// alone.
void pin(int core);

// count_up(counter, amount): one thread adds to a 32-bit counter.
extern const char* const kPtx;

// Times in nanoseconds, sorted into buckets that are 1.6% wide: samples of several rounds and
// processes can be added up.
class Histogram {
 public:
  void add(int64_t ns) {
    ++counts_[bucket(ns)];
    ++samples_;
    sum_ns_ += ns;
    if (ns > max_ns_) max_ns_ = ns;
  }
  void add(const Histogram& other);
  // "samples": ..., "sum_ns": ..., "max_ns": ..., "hist": [[bucket, count], ...]
  // (bench/lib/histogram.py reads it)
  std::string json() const;

 private:
  // Below 128 ns one nanosecond wide; above, the leading seven bits and where they stand.
  static uint32_t bucket(int64_t ns) {
    if (ns < 0) ns = 0;
    uint32_t shift = 0;
    while ((ns >> shift) >= 128) ++shift;
    return 64 * shift + static_cast<uint32_t>(ns >> shift);
  }
  static constexpr uint32_t kBuckets = 64 * 40;  // 39 binary digits of nanoseconds are nine minutes
  uint64_t counts_[kBuckets] = {};
  int64_t samples_ = 0, sum_ns_ = 0, max_ns_ = 0;
};

}  // namespace bench

// Times of single operations, and a driver call that must succeed: for the programs of this folder.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace bench {

inline void must(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(code, &name);
  std::fprintf(stderr, "%s: %s\n", call, name != nullptr ? name : "an unknown error");
  std::exit(1);
}
#define CU(call) ::bench::must((call), #call)

inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Keeps every sample. Microseconds out, nanoseconds in.
class Samples {
 public:
  void add(int64_t ns) { ns_.push_back(ns); }
  size_t count() const { return ns_.size(); }
  // The value that this share of the samples does not exceed; 0 without any.
  double at(double share) {
    if (ns_.empty()) return 0;
    std::sort(ns_.begin(), ns_.end());
    const auto last = static_cast<double>(ns_.size() - 1);
    return static_cast<double>(ns_[static_cast<size_t>(last * share)]) / 1e3;
  }

 private:
  std::vector<int64_t> ns_;
};

}  // namespace bench

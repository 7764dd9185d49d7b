// How programs find entry points: cuGetProcAddress's table, per-thread-stream scopes, and the
// unsupported rest.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/cuda_api.h"
#include "sim/machine/state.h"

// Behind cuda_api.h, which says what names cuda.h gives.
#include <cudaProfiler.h>

namespace tube::sim {

// `base` asked at `version` or later gives `symbol`. Generated; sorted by base, then per_thread,
// then version.
struct ProcEntry {
  const char* base;
  int version;
  bool per_thread;
  void* symbol;
};
extern const ProcEntry kProcTable[];
extern const size_t kProcTableSize;

// While one lives, stream 0 of this thread's calls means CU_STREAM_PER_THREAD.
class PerThreadDefault {
 public:
  PerThreadDefault() : before_(thread().per_thread_default) { thread().per_thread_default = true; }
  ~PerThreadDefault() { thread().per_thread_default = before_; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

}  // namespace tube::sim

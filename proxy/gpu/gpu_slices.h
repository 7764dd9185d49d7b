// Parts of GPUs that functions hold (policies/sm_slices.h), as green contexts of the shared primary
// contexts.
//
// A split is made in one call of the driver, so that its two sides are disjoint; the large side has
// all other groups and what remains of the multiprocessors. Both sides have a green context, made
// at the start or when a function first asks for that split, and kept until the proxy ends: making
// one waits for the whole context (docs/decisions/0009-context-gate.md). Streams are what is bound
// to a side; modules, memory, events and everything else stay the primary context's. A stream that
// is made in a green context runs its kernels, memsets and graphs captured from it there.
//
// Who has which side changes seldom: when a function that asked for a slice comes to a GPU, ends,
// or exchanges memory with others. Each change counts the GPU's version up; sessions compare that
// number with their streams' before each operation, which is all that slices cost who has none.
//
// Any thread. The lock is a leaf; no driver call is made under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/cuda_api.h"
#include "policies/sm_slices.h"

namespace tube::proxy {

struct Driver;
class Gpus;

// Where streams are made.
struct GpuPlace {
  CUgreenCtx green = nullptr;  // nullptr: the GPU's shared context, all multiprocessors
  uint64_t version = 0;        // of the GPU's slices that this was said for
  bool slice = false;          // held by the function; else everybody's part
};

class GpuSlices {
 public:
  // Both outlive it.
  GpuSlices(const Driver& driver, Gpus& gpus);
  // After the last session ended and the last stream was destroyed.
  ~GpuSlices();
  GpuSlices(const GpuSlices&) = delete;
  GpuSlices& operator=(const GpuSlices&) = delete;

  // Makes all splits of all GPUs: some milliseconds each. Before the first session.
  void make_all();

  // ---- sessions
  // The function's client asked for so many percent of a GPU; 0: for none.
  void join(uint64_t session, uint32_t percent);
  // Its first stream on the GPU is about to be made: from here on it may hold a slice. Again after
  // each change: it may be its turn. May make a split, and wait for the whole context then. On the
  // session's thread, the GPU's context is current.
  void comes_to(uint32_t gpu, uint64_t session);
  // The function did not ask, but wants the small part of this split now; none: no part any more
  // (policies/auto_slice.h). As comes_to().
  void want(uint32_t gpu, uint64_t session, std::optional<uint32_t> split);
  // Into how many ways the GPU can be split.
  uint32_t ways(uint32_t gpu) const { return static_cast<uint32_t>(gpus_of_[gpu]->splits.size()); }
  // It opened memory or an event of another process, or gave it some: holds no slice any more.
  void exchanges(uint64_t session, const char* what);
  // The session holds and asks for nothing any more; its streams may still run.
  void leave(uint64_t session);
  // Counts the changes of who has what on the GPU; 0: nobody ever held a slice.
  uint64_t version(uint32_t gpu) const {
    return gpus_of_[gpu]->version.load(std::memory_order_acquire);
  }
  GpuPlace place(uint32_t gpu, uint64_t session) const;

  // ---- status
  uint32_t gpus() const { return static_cast<uint32_t>(gpus_of_.size()); }
  struct Held {
    uint64_t session;
    uint32_t multiprocessors;
    uint32_t others;  // what everybody else has
  };
  std::optional<Held> held(uint32_t gpu) const;
  // Sizes of the smaller sides of the splits that were made.
  std::vector<uint32_t> made(uint32_t gpu) const;

 private:
  struct Split {
    CUdevResourceDesc sides[2] = {};  // the small one, the large one
    CUgreenCtx greens[2] = {};
    enum class State : uint32_t { kNotMade, kInTheMaking, kMade, kRefused } state = State::kNotMade;
  };
  struct OneGpu {
    std::atomic<uint64_t> version{0};
    mutable std::mutex mutex;  // what follows
    policies::SmSlices policy;
    std::vector<Split> splits;
  };
  struct Asker {
    uint64_t session;
    uint32_t percent;
  };

  template <class Change>
  void change(uint32_t gpu, Change change);
  void describe(uint32_t gpu, OneGpu& one);
  bool make(uint32_t gpu, Split& split);
  std::optional<policies::SmSlices::Held> in_use(const OneGpu& one) const;

  const Driver& driver_;
  Gpus& gpus_;
  std::vector<std::unique_ptr<OneGpu>> gpus_of_;
  mutable std::mutex askers_mutex_;  // leaf: the next one
  std::vector<Asker> askers_;
};

}  // namespace tube::proxy

// How much GPU memory may be taken: by a function, by a workflow, on each GPU, and what a function
// is told about it.
//
// Three bounds hold at once. A function's limit, its workflow's limit (all functions of one proxy
// together), and the GPU itself, of which the driver alone knows what other processes took. The
// first two are decided here before the driver is asked, the third is the driver's own answer.
// Limits are per GPU: one of 4 GiB allows 4 GiB on each GPU that the program uses.
//
// A limit that is lowered below what is held takes nothing away: what is asked for is refused until
// enough has been given back.
//
// Plain values in, decisions out; who holds what is counted by proxy/memory/memory_budgets.h.
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint64_t kNoMemoryLimit = UINT64_MAX;

// Of one GPU.
struct MemoryBudget {
  uint64_t held_bytes = 0;
  uint64_t limit_bytes = kNoMemoryLimit;

  constexpr bool limited() const { return limit_bytes != kNoMemoryLimit; }
  // What may be taken beyond what is held; 0 also where more is held than the limit allows.
  constexpr uint64_t room() const {
    return held_bytes < limit_bytes ? limit_bytes - held_bytes : 0;
  }
  // Whether so much more may be asked of the driver. No sum can overflow.
  constexpr bool fits(uint64_t asked_bytes) const { return asked_bytes <= room(); }
};

// The limit that a function starts with. What its program wishes can only lower what the proxy
// allows each function.
constexpr uint64_t starting_memory_limit(uint64_t wished_bytes, uint64_t allowed_bytes) {
  return wished_bytes < allowed_bytes ? wished_bytes : allowed_bytes;
}

// The memory of a GPU as cuMemGetInfo tells it.
struct GpuMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;

  constexpr bool operator==(const GpuMemory&) const = default;
};

// The total that a function sees: the limit it started with, when it had one, else the GPU's. It
// never changes while the program runs, because programs compute with it once.
constexpr uint64_t visible_total(uint64_t starting_limit_bytes, uint64_t gpu_total_bytes) {
  return starting_limit_bytes < gpu_total_bytes ? starting_limit_bytes : gpu_total_bytes;
}

// What a function sees of `gpu`, which is the driver's answer: the total above, and as free what
// its own limit, that total, its workflow's limit and the GPU leave. `kept_bytes` of what it holds
// it gives back as soon as it needs them: they count as free. Without any limit the driver's answer
// and these.
GpuMemory visible_memory(MemoryBudget function, MemoryBudget workflow,
                         uint64_t starting_limit_bytes, uint64_t kept_bytes, const GpuMemory& gpu);

}  // namespace tube::policies

#include "policies/memory/memory_budget.h"

#include <algorithm>

namespace tube::policies {

GpuMemory visible_memory(MemoryBudget function, MemoryBudget workflow,
                         uint64_t starting_limit_bytes, uint64_t kept_bytes, const GpuMemory& gpu) {
  GpuMemory seen{gpu.free_bytes, visible_total(starting_limit_bytes, gpu.total_bytes)};
  const bool limited =
      function.limited() || workflow.limited() || seen.total_bytes != gpu.total_bytes;
  kept_bytes = std::min({kept_bytes, function.held_bytes, workflow.held_bytes});
  function.held_bytes -= kept_bytes;
  workflow.held_bytes -= kept_bytes;
  seen.free_bytes +=
      std::min(kept_bytes, gpu.total_bytes - std::min(gpu.total_bytes, gpu.free_bytes));
  if (!limited) return seen;
  seen.free_bytes = std::min({seen.free_bytes, function.room(), workflow.room()});
  // A limit that was raised or taken away while the program runs: it may take more than the total
  // that it knows, but is not told so, for free falls by what is allocated and stays below total.
  const MemoryBudget started{function.held_bytes, seen.total_bytes};
  seen.free_bytes = std::min(seen.free_bytes, started.room());
  return seen;
}

}  // namespace tube::policies

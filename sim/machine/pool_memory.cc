#include "sim/machine/pool_memory.h"

#include <algorithm>
#include <unordered_map>

#include "sim/machine/heap.h"
#include "sim/machine/work.h"

namespace tube::sim {

// The driver's pools grow by this much. Nothing is kept back here, the figures behave as if.
constexpr uint64_t kReservedUnit = 32u << 20;

static uint64_t whole_units(uint64_t bytes) {
  return (bytes + kReservedUnit - 1) / kReservedUnit * kReservedUnit;
}
void shrink_pool(Pool* pool, uint64_t keep) {
  pool->reserved = std::max(whole_units(pool->used), std::min(pool->reserved, keep));
}

CUresult pool_allocate(State& s, Pool* pool, uint64_t bytes, CUdeviceptr* dptr) {
  if (pool->props.maxSize != 0 && pool->used + bytes > pool->props.maxSize)
    return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.requested = bytes;
  range.kind = RangeKind::kPool;
  range.device = pool->device->ordinal;
  range.pool = pool;
  range.readable = pool->readable;
  range.writable = pool->writable;
  uint64_t base = 0;
  if (CUresult r = allocate_range(s, range, kAllocAlign, &base)) return r;
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  pool->reserved = std::max(pool->reserved, whole_units(pool->used));
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  *dptr = base;
  return CUDA_SUCCESS;
}

static void free_pool_range(State& s, uint64_t address) {
  auto gone = s.map.remove(address);
  if (!gone) return;
  if (gone->pool != nullptr) {
    gone->pool->used -= std::min(gone->pool->used, gone->requested);
    shrink_pool(gone->pool, gone->pool->release_threshold);
    const bool destroyed = !gone->pool->is_default && s.live.count(gone->pool) == 0;
    if (destroyed && gone->pool->used == 0) delete gone->pool;
  }
  release_range(s, *gone);
}

CUresult finish_pool_free(CUdeviceptr address) {
  State& s = state();
  Lock lock(s.mutex);
  free_pool_range(s, address);
  return CUDA_SUCCESS;
}

static std::unordered_map<CUdeviceptr, GraphAllocation*>& graph_allocations() {
  static auto* allocations = new std::unordered_map<CUdeviceptr, GraphAllocation*>;
  return *allocations;
}

GraphAllocation* graph_allocation(CUdeviceptr address) {
  auto found = graph_allocations().find(address);
  return found == graph_allocations().end() ? nullptr : found->second;
}

std::shared_ptr<GraphAllocation> graph_memory(CUdeviceptr address) {
  auto* made = new GraphAllocation{address};
  graph_allocations()[address] = made;
  // Graphs are destroyed with the lock held, so this must not take it.
  return std::shared_ptr<GraphAllocation>(made, [](GraphAllocation* a) {
    graph_allocations().erase(a->address);
    if (!a->allocated || a->graph_frees) free_pool_range(state(), a->address);
    delete a;
  });
}

}  // namespace tube::sim

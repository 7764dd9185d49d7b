#include "proxy/copy/relay_buffers.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kAgainNs = 5'000'000'000;
constexpr uint64_t kNobody = 0;  // no session: the memory map's name for the proxy itself

}  // namespace

RelayBuffers::RelayBuffers(MemoryMap& memory, uint32_t gpus)
    : memory_(memory),
      account_(memory.budgets().open("relay buffers", policies::kNoMemoryLimit)),
      pools_(gpus) {}

// At an address of the first window that there is.
bool RelayBuffers::make(uint32_t gpu) {
  Pool& pool = pools_[gpu];
  if (refused(gpu)) return false;
  uint32_t window = 0;
  while (window < windows::kCandidates && !memory_.take_window(window)) ++window;
  Placed placed;
  const CUresult error = window == windows::kCandidates
                             ? CUDA_ERROR_OUT_OF_MEMORY
                             : memory_.allocate(window, kNobody, static_cast<int>(gpu),
                                                kMost * kBytes, *account_, &placed);
  if (error != CUDA_SUCCESS) {
    pool.refused_ns = now_ns();
    log_debug("GPU %u has no memory to relay copies through (%d)", gpu, static_cast<int>(error));
    return false;
  }
  given_back_ = memory_.budgets().times_given_back();
  pool.block = placed.block;
  pool.address = placed.address;
  held_.fetch_add(kMost * kBytes, std::memory_order_relaxed);
  return true;
}

bool RelayBuffers::refused(uint32_t gpu) const {
  const uint64_t refused_ns = pools_[gpu].refused_ns;
  return refused_ns != 0 && now_ns() - refused_ns < kAgainNs;
}

CUdeviceptr RelayBuffers::take(uint32_t gpu) {
  Pool& pool = pools_[gpu];
  if (pool.address == 0 && !make(gpu)) return 0;
  bool* const free = std::find(pool.used, pool.used + kMost, false);
  if (free == pool.used + kMost) return 0;
  *free = true;
  return pool.address + static_cast<uint64_t>(free - pool.used) * kBytes;
}

void RelayBuffers::give(uint32_t gpu, CUdeviceptr buffer) {
  Pool& pool = pools_[gpu];
  pool.used[(buffer - pool.address) / kBytes] = false;
}

bool RelayBuffers::wanted_back() const {
  return memory_.budgets().times_given_back() != given_back_;
}

void RelayBuffers::drop_idle() {
  for (Pool& pool : pools_) {
    if (pool.address == 0 || std::find(pool.used, pool.used + kMost, true) != pool.used + kMost)
      continue;
    memory_.release(pool.block);
    pool = Pool();
    held_.fetch_sub(kMost * kBytes, std::memory_order_relaxed);
  }
}

}  // namespace tube::proxy

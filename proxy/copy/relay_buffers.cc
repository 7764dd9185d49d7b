#include "proxy/copy/relay_buffers.h"

#include "base/log.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kNobody = 0;  // no session: the memory map's name for the proxy itself

}  // namespace

RelayBuffers::RelayBuffers(MemoryMap& memory, uint32_t gpus)
    : memory_(memory),
      account_(memory.budgets().open("relay buffers", policies::kNoMemoryLimit)),
      pools_(gpus) {}

// At an address of the first window that there is.
bool RelayBuffers::grow(uint32_t gpu) {
  Pool& pool = pools_[gpu];
  if (pool.refused || pool.buffers.size() >= kMost) return false;
  uint32_t window = 0;
  while (window < windows::kCandidates && !memory_.take_window(window)) ++window;
  Placed placed;
  const CUresult error =
      window == windows::kCandidates
          ? CUDA_ERROR_OUT_OF_MEMORY
          : memory_.allocate(window, kNobody, static_cast<int>(gpu), kBytes, *account_, &placed);
  if (error != CUDA_SUCCESS) {
    pool.refused = true;
    log_debug("GPU %u has no memory to relay copies through (%d)", gpu, static_cast<int>(error));
    return false;
  }
  pool.buffers.push_back({placed.block, placed.address, false});
  held_.fetch_add(kBytes, std::memory_order_relaxed);
  return true;
}

CUdeviceptr RelayBuffers::take(uint32_t gpu) {
  Pool& pool = pools_[gpu];
  do {
    for (Buffer& buffer : pool.buffers) {
      if (buffer.used) continue;
      buffer.used = true;
      return buffer.address;
    }
  } while (grow(gpu));
  return 0;
}

void RelayBuffers::give(uint32_t gpu, CUdeviceptr address) {
  for (Buffer& buffer : pools_[gpu].buffers)
    if (buffer.address == address) buffer.used = false;
}

void RelayBuffers::drop_idle() {
  for (Pool& pool : pools_) {
    pool.refused = false;
    std::erase_if(pool.buffers, [this](const Buffer& buffer) {
      if (buffer.used) return false;
      memory_.release(buffer.block);
      held_.fetch_sub(kBytes, std::memory_order_relaxed);
      return true;
    });
  }
}

}  // namespace tube::proxy

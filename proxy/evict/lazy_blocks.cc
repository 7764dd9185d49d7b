#include "proxy/evict/lazy_blocks.h"

#include <algorithm>

namespace tube::proxy {

CUresult LazyBlocks::make(uint32_t window, int device, uint64_t bytes, MemoryAccount& account,
                          Placed* placed) {
  // While some of its memory is promised, the function has begun no work that could use any.
  if (!on_ || !(waits_ || at_rest_()))
    return map_.allocate(window, session_, device, bytes, account, placed);
  if (blocks_.size() >= look_at_) forget_gone();
  blocks_.emplace_back();  // room for it, before there is a promise that must not be forgotten
  bool promised = false;
  const CUresult error = map_.promise(window, session_, device, bytes, account, placed, &promised);
  if (error != CUDA_SUCCESS || !promised) {
    blocks_.pop_back();
    return error;
  }
  waits_ = true;
  counts_.promised.fetch_add(1, std::memory_order_relaxed);
  blocks_.back() = {placed->block, static_cast<uint32_t>(device)};
  return CUDA_SUCCESS;
}

void LazyBlocks::ended(BlockId block) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const Promised& each) { return each.block == block; });
  if (found == blocks_.end()) return;
  *found = blocks_.back();
  blocks_.pop_back();
  counts_.ended.fetch_add(1, std::memory_order_relaxed);
}

// Idle ones that went back to the driver without this session's doing.
void LazyBlocks::forget_gone() {
  std::erase_if(blocks_, [&](const Promised& each) { return !map_.is_promised(each.block); });
  look_at_ = std::max(kLeastLook, 2 * blocks_.size());
}

std::vector<uint32_t> LazyBlocks::places(uint32_t gpus) const {
  std::vector<uint32_t> found;
  for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
    if (std::any_of(blocks_.begin(), blocks_.end(),
                    [&](const Promised& each) { return each.gpu == gpu; }))
      found.push_back(gpu);
  }
  return found;
}

CUresult LazyBlocks::back(uint32_t gpu) {
  CUresult error = CUDA_SUCCESS;
  std::erase_if(blocks_, [&](const Promised& each) {
    if (each.gpu != gpu || error != CUDA_SUCCESS) return false;
    switch (map_.back(each.block, &error)) {
      case MemoryMap::Backing::kDone:
        counts_.backed.fetch_add(1, std::memory_order_relaxed);
        return true;
      case MemoryMap::Backing::kGone: return true;
      case MemoryMap::Backing::kFailed: return false;
    }
    return false;
  });
  return error;
}

}  // namespace tube::proxy

#include "proxy/evict/lazy_blocks.h"

#include <algorithm>

namespace tube::proxy {

void LazyBlocks::set_by_address(bool on) {
  by_address_.store(on && on_, std::memory_order_relaxed);
  if (!by_address()) all_wanted_ = true;
}

LazyBlocks::~LazyBlocks() {
  for (const Addresses& each : kept_) map_.unreserve(each.window, each.address, each.bytes);
}

// Nobody gets them again.
void LazyBlocks::keep_freed() {
  for (const Addresses& each : freed_) {
    const uint64_t got = map_.reserve(each.window, session_, each.bytes, 0, each.address);
    if (got == each.address) kept_.push_back(each);
    else if (got != 0) map_.unreserve(each.window, got, each.bytes);
  }
  freed_.clear();
}

CUresult LazyBlocks::make(uint32_t window, int device, uint64_t bytes, MemoryAccount& account,
                          Placed* placed) {
  keep_freed();
  if (by_address() && bytes > kLeastBytes)
    return make_by_address(window, device, bytes, account, placed);
  // While some of its memory is promised, the function has begun no work that could use any.
  if (!on_ || !(at_once_ != 0 || at_rest_()))
    return map_.allocate(window, session_, device, bytes, account, placed);
  if (blocks_.size() >= look_at_) forget_gone();
  blocks_.emplace_back();  // room for it, before there is a promise that must not be forgotten
  bool promised = false;
  const CUresult error =
      map_.promise(window, session_, device, bytes, 0, account, placed, &promised);
  if (error != CUDA_SUCCESS || !promised) {
    blocks_.pop_back();
    return error;
  }
  waits_ = true;
  ++at_once_;
  counts_.promised.fetch_add(1, std::memory_order_relaxed);
  blocks_.back() = {placed->block, static_cast<uint32_t>(device), placed->address, bytes, false};
  return CUDA_SUCCESS;
}

CUresult LazyBlocks::make_by_address(uint32_t window, int device, uint64_t bytes,
                                     MemoryAccount& account, Placed* placed) {
  if (blocks_.size() >= look_at_) forget_gone();
  blocks_.emplace_back();
  bool promised = false;
  CUresult error = map_.promise(window, session_, device, bytes, policies::kBlockGap, account,
                                placed, &promised);
  if (error != CUDA_SUCCESS || !promised) {
    blocks_.pop_back();
    not_tried_ += error == CUDA_SUCCESS ? 1 : 0;
    return error;
  }
  waits_ = true;
  counts_.promised.fetch_add(1, std::memory_order_relaxed);
  const BlockId block = placed->block;
  blocks_.back() = {block, static_cast<uint32_t>(device), placed->address, bytes, true};
  if (!had_.overlaps(placed->address, bytes)) {
    spans_.add(placed->address, bytes);
    return CUDA_SUCCESS;
  }
  // Something on the GPU may name it already.
  ++not_tried_;
  const bool rests = at_once_ != 0 || at_rest_();  // which may end other blocks
  const auto made = place_of(block);
  made->by_address = false;
  ++at_once_;
  if (rests) return CUDA_SUCCESS;
  (void)map_.back(block, &error);
  if (error == CUDA_SUCCESS) counts_.backed.fetch_add(1, std::memory_order_relaxed);
  drop(made);
  if (error != CUDA_SUCCESS) map_.release(block);
  return error;
}

std::vector<LazyBlocks::Promised>::iterator LazyBlocks::place_of(BlockId block) {
  return std::find_if(blocks_.begin(), blocks_.end(),
                      [&](const Promised& each) { return each.block == block; });
}

void LazyBlocks::drop(std::vector<Promised>::iterator each) {
  gone(*each);
  *each = blocks_.back();
  blocks_.pop_back();
}

// It is about to leave blocks_.
void LazyBlocks::gone(const Promised& each) {
  if (each.by_address) spans_.remove(each.address);
  else --at_once_;
}

void LazyBlocks::ended(BlockId block) {
  if (const auto place = profiled_ ? map_.find(block) : std::nullopt)
    freed_.push_back(
        {place->address - place->gap_bytes, place->bytes + 2 * place->gap_bytes, place->window});
  const auto found = place_of(block);
  if (found == blocks_.end()) return;
  drop(found);
  counts_.ended.fetch_add(1, std::memory_order_relaxed);
}

// Idle ones that went back to the driver without this session's doing.
void LazyBlocks::forget_gone() {
  std::erase_if(blocks_, [&](const Promised& each) {
    if (map_.lacks_memory(each.block)) return false;
    gone(each);
    return true;
  });
  look_at_ = std::max(kLeastLook, 2 * blocks_.size());
}

bool LazyBlocks::waits_for_address(BlockId block) const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [&](const Promised& each) { return each.block == block && !wanted(each); });
}

std::vector<uint32_t> LazyBlocks::places(uint32_t gpus) const {
  std::vector<uint32_t> found;
  for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
    if (std::any_of(blocks_.begin(), blocks_.end(),
                    [&](const Promised& each) { return each.gpu == gpu && wanted(each); }))
      found.push_back(gpu);
  }
  return found;
}

uint64_t LazyBlocks::wanted_bytes(uint32_t gpu) const {
  uint64_t bytes = 0;
  for (const Promised& each : blocks_)
    if (each.gpu == gpu && wanted(each) && map_.is_promised(each.block)) bytes += each.bytes;
  return bytes;
}

CUresult LazyBlocks::back(uint32_t gpu) {
  CUresult error = CUDA_SUCCESS;
  std::erase_if(blocks_, [&](const Promised& each) {
    if (each.gpu != gpu || error != CUDA_SUCCESS || !wanted(each)) return false;
    switch (map_.back(each.block, &error)) {
      case MemoryMap::Backing::kDone:
        counts_.backed.fetch_add(1, std::memory_order_relaxed);
        if (each.by_address && !all_wanted_) counts_.named.fetch_add(1, std::memory_order_relaxed);
        break;
      case MemoryMap::Backing::kGone: break;
      case MemoryMap::Backing::kFailed: return false;
    }
    gone(each);
    return true;
  });
  return error;
}

void LazyBlocks::settled() {
  waits_ = !blocks_.empty();
  all_wanted_ = false;
}

bool LazyBlocks::find(uint64_t address, Found* found) const {
  for (const Promised& each : blocks_) {
    if (address < each.address - policies::kPointerSlack ||
        address >= each.address + each.bytes + policies::kPointerSlack)
      continue;
    *found = {each.address, each.bytes};
    return true;
  }
  return false;
}

std::vector<LazyBlocks::Found> LazyBlocks::waiting() const {
  std::vector<Found> found;
  for (const Promised& each : blocks_)
    if (each.by_address) found.push_back({each.address, each.bytes});
  return found;
}

}  // namespace tube::proxy

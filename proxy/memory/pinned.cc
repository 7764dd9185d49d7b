#include "proxy/memory/pinned.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/page.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/stats.h"
#include "proxy/memory/device_memory.h"
#include "proxy/memory/pinned_pools.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kSharedBytes = 2u << 20;
constexpr uint64_t kLargestShared = 64u << 10;
constexpr uint64_t kSharedAlignment = 512;

constexpr uint64_t whole_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
}  // namespace

PinnedSlot::PinnedSlot(const Driver& driver, Ranges& ranges, PinnedPools* pools, Stats& stats)
    : driver_(driver), ranges_(ranges), pools_(pools), stats_(stats) {}
PinnedSlot::~PinnedSlot() { close(); }

Status PinnedSlot::open(uint64_t owner, uint32_t window, uint32_t client_slot,
                        std::shared_ptr<PinnedPool> ready) {
  if (ready == nullptr) {
    Result<std::shared_ptr<PinnedPool>> made =
        PinnedPool::open(driver_, window, client_slot, pools_ != nullptr ? pools_->host() : nullptr,
                         pools_ != nullptr ? &pools_->registrations() : nullptr);
    if (!made.ok()) return made.error();
    ready = made.take();
  }
  pool_ = std::move(ready);
  if (pools_ != nullptr) pools_->add(pool_, owner);
  return {};
}

void PinnedSlot::look() {
  if (pool_ != nullptr) pool_->look();
}

CUresult PinnedSlot::take(uint64_t bytes, uint64_t* address) {
  *address = pool_->take(bytes);
  if (*address == 0) *address = pool_->take_registering(bytes);
  const bool found = *address != 0;
  CUresult error = CUDA_SUCCESS;
  if (!found) error = make(bytes, address);
  if (error != CUDA_SUCCESS) return error;
  Stats::add(found ? stats_.pinned_hits : stats_.pinned_misses);
  if (pools_ != nullptr) pools_->asked(*pool_, bytes, found);
  return CUDA_SUCCESS;
}

// Only where there is too much or none is left to be had this waits for the janitor.
CUresult PinnedSlot::make(uint64_t bytes, uint64_t* address) {
  if (pools_ == nullptr) return pool_->make(bytes, address);
  if (pools_->overdue(*pool_) && !pools_->make_room()) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult error = pool_->make(bytes, address);
  if (error != CUDA_ERROR_OUT_OF_MEMORY || !pools_->make_room()) return error;
  return pool_->make(bytes, address);
}

void PinnedSlot::give(uint64_t address, uint64_t bytes) {
  pool_->give(address, bytes);
  if (pools_ != nullptr) pools_->freed(*pool_);
}

CUresult PinnedSlot::take_shared(uint64_t bytes, Range* range) {
  for (auto& [base, space] : shared_blocks_) {
    range->base = space.allocate(bytes);
    range->owner = base;
    if (range->base != 0) return CUDA_SUCCESS;
  }
  uint64_t block = 0;
  if (CUresult error = take(kSharedBytes, &block); error != CUDA_SUCCESS) return error;
  AddressSpace& space = shared_blocks_[block] = AddressSpace(block, kSharedBytes, kSharedAlignment);
  range->base = space.allocate(bytes);
  range->owner = block;
  return CUDA_SUCCESS;
}

CUresult PinnedSlot::allocate(uint32_t context, uint64_t untrusted_bytes, uint64_t* address) {
  if (untrusted_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (ranges_.size() >= limits::kPinnedRanges + limits::kAllocations ||
      untrusted_bytes > limits::kPinnedBytes - bytes()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Range range;
  range.kind = RangeKind::kPinned;
  range.bytes = untrusted_bytes;
  range.context = context;
  const CUresult error = untrusted_bytes <= kLargestShared
                             ? take_shared(untrusted_bytes, &range)
                             : take(whole_pages(untrusted_bytes), &range.base);
  if (error != CUDA_SUCCESS) return error;
  ranges_.insert(range);
  bytes_.fetch_add(untrusted_bytes, std::memory_order_relaxed);
  *address = range.base;
  return CUDA_SUCCESS;
}

CUresult PinnedSlot::free(uint64_t untrusted_address) {
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != RangeKind::kPinned) return CUDA_ERROR_INVALID_VALUE;
  const Range range = *found;
  ranges_.erase(range.base);
  bytes_.fetch_sub(range.bytes, std::memory_order_relaxed);
  if (range.owner == 0) {
    give(range.base, whole_pages(range.bytes));
    return CUDA_SUCCESS;
  }
  auto block = shared_blocks_.find(range.owner);
  block->second.free(range.base, range.bytes);
  if (block->second.empty() && shared_blocks_.size() > 1) {
    const uint64_t base = block->first;
    shared_blocks_.erase(block);
    give(base, kSharedBytes);
  }
  return CUDA_SUCCESS;
}

void PinnedSlot::free_all(uint32_t context) {
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    if (range.kind == RangeKind::kPinned &&
        (context == DeviceMemory::kAllContexts || range.context == context))
      bases.push_back(base);
  }
  for (uint64_t base : bases) (void)free(base);
}

void PinnedSlot::forget_ranges() {
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    if (range.kind == RangeKind::kPinned) bases.push_back(base);
  }
  for (uint64_t base : bases) ranges_.erase(base);
  bytes_.store(0, std::memory_order_relaxed);
  shared_blocks_.clear();
}

std::shared_ptr<PinnedPool> PinnedSlot::retire(bool reusable) {
  if (pool_ == nullptr) return nullptr;
  if (pool_->empty()) {
    close();
    return nullptr;
  }
  forget_ranges();
  reusable = reusable && pools_ != nullptr && pools_->budget().total_bytes != 0;
  pool_->leave(reusable, now_ns());
  if (reusable) pools_->left(*pool_);
  else if (pools_ != nullptr) pools_->remove(*pool_);
  return std::move(pool_);
}

void PinnedSlot::abandon() {
  if (pool_ == nullptr) return;
  if (pools_ != nullptr) pools_->remove(*pool_);
  pool_->abandon();
  pool_.reset();
}

void PinnedSlot::close() {
  if (pool_ == nullptr) return;
  forget_ranges();
  if (pools_ != nullptr) pools_->remove(*pool_);
  pool_->close();
  pool_.reset();
}

}  // namespace tube::proxy

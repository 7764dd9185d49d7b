#include "proxy/memory/device_memory.h"

#include "proxy/common/client_limits.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kSlabBytes = 2u << 20;
constexpr uint64_t kLargestInSlab = 1u << 20;
constexpr uint64_t kAlignment = 512;
}  // namespace

uint64_t DeviceMemory::place_in_slab(int device, uint64_t bytes, uint64_t* slab_base,
                                     CUresult* error) {
  for (auto& [base, slab] : slabs_) {
    if (slab.device != device) continue;
    if (uint64_t address = slab.space.allocate(bytes); address != 0) {
      *slab_base = base;
      return address;
    }
  }
  Placed placed;
  *error = map_.allocate(window_, session_, device, kSlabBytes, account_, &placed);
  if (*error != CUDA_SUCCESS) return 0;
  Slab& slab = slabs_[placed.address];
  slab = Slab{placed.block, device, AddressSpace(placed.address, kSlabBytes, kAlignment)};
  *slab_base = placed.address;
  return slab.space.allocate(bytes);
}

DeviceMemory::DeviceMemory(MemoryMap& map, Ranges& ranges, uint64_t session, MemoryAccount& account)
    : map_(map), ranges_(ranges), session_(session), account_(account) {}
DeviceMemory::~DeviceMemory() = default;

CUresult DeviceMemory::allocate(int device, uint32_t context, uint64_t untrusted_bytes,
                                CUdeviceptr* address) {
  if (untrusted_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  collect_lingering();
  if (count() >= limits::kAllocations || untrusted_bytes > limits::kDeviceBytes - bytes())
    return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.bytes = untrusted_bytes;
  range.device = device;
  range.context = context;
  CUresult error = CUDA_SUCCESS;
  if (untrusted_bytes <= kLargestInSlab) {
    range.base = place_in_slab(device, untrusted_bytes, &range.owner, &error);
  } else {
    Placed placed;
    error = map_.allocate(window_, session_, device, untrusted_bytes, account_, &placed);
    range.base = placed.address;
    if (error == CUDA_SUCCESS) blocks_[placed.address] = placed.block;
  }
  if (error != CUDA_SUCCESS) return error;
  ranges_.insert(range);
  bytes_.fetch_add(untrusted_bytes, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  *address = range.base;
  return CUDA_SUCCESS;
}

void DeviceMemory::leave_slab(const Range& range) {
  auto it = slabs_.find(range.owner);
  if (it == slabs_.end()) return;
  it->second.space.free(range.base, range.bytes);
  if (!it->second.space.empty()) return;
  for (const auto& [base, other] : slabs_) {
    if (base == it->first || other.device != it->second.device || !other.space.empty()) continue;
    map_.release(it->second.block);
    slabs_.erase(it);
    return;
  }
}

bool DeviceMemory::free_empty_slabs() {
  return std::erase_if(slabs_, [this](const auto& entry) {
           if (!entry.second.space.empty()) return false;
           map_.release(entry.second.block);
           return true;
         }) != 0;
}

CUresult DeviceMemory::retire(CUdeviceptr untrusted_address) {
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  found->kind = RangeKind::kRetired;
  return CUDA_SUCCESS;
}

void DeviceMemory::forget(const Range& range) {
  bytes_.fetch_sub(range.bytes, std::memory_order_relaxed);
  count_.fetch_sub(1, std::memory_order_relaxed);
  ranges_.erase(range.base);
}

// A piece of a slab that somebody has open stays where it is. Anything else is freed: openers hold
// the block.
bool DeviceMemory::keep_for_openers(Range& range) {
  if (range.owner == 0) {
    map_.shares().let_go(range.base);
    return false;
  }
  if (map_.shares().withdraw(range.base)) return false;
  range.kind = RangeKind::kRetired;
  lingering_.push_back(range.base);
  return true;
}

void DeviceMemory::collect_lingering() {
  if (lingering_.empty()) return;
  std::vector<uint64_t> waiting;
  waiting.swap(lingering_);
  for (uint64_t base : waiting) {
    if (map_.shares().withdraw(base)) {
      (void)free(base, RangeKind::kRetired);
    } else {
      lingering_.push_back(base);
    }
  }
}

BlockId DeviceMemory::block_of(CUdeviceptr address) {
  const Range* range = ranges_.at(address);
  if (range == nullptr || range->kind != RangeKind::kDevice) return BlockId::kNone;
  if (auto slab = slabs_.find(range->owner); range->owner != 0 && slab != slabs_.end())
    return slab->second.block;
  auto block = blocks_.find(address);
  return block == blocks_.end() ? BlockId::kNone : block->second;
}

CUresult DeviceMemory::free(CUdeviceptr untrusted_address, RangeKind kind) {
  collect_lingering();
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  if (map_.shares().shared(found->base) && keep_for_openers(*found)) return CUDA_SUCCESS;
  const Range range = *found;
  forget(range);
  if (range.owner != 0) {
    leave_slab(range);
    return CUDA_SUCCESS;
  }
  if (auto block = blocks_.find(range.base); block != blocks_.end()) {
    map_.release(block->second);
    blocks_.erase(block);
  }
  return CUDA_SUCCESS;
}

void DeviceMemory::free_all(uint32_t context) {
  if (context == kAllContexts) lingering_.clear();  // as ranges they are still there
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    const bool device = range.kind == RangeKind::kDevice ||
                        (range.kind == RangeKind::kRetired && context == kAllContexts);
    if (device && (context == kAllContexts || range.context == context)) bases.push_back(base);
  }
  for (uint64_t base : bases) {
    // Slabs end with their owner: a session that has a piece of one open holds its block.
    if (context == kAllContexts && map_.shares().shared(base)) map_.shares().let_go(base);
    (void)free(base, ranges_.at(base)->kind);
  }
  if (context != kAllContexts) return;
  for (const auto& [base, slab] : slabs_) map_.release(slab.block);
  slabs_.clear();
}

}  // namespace tube::proxy

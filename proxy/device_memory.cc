#include "proxy/device_memory.h"

#include "proxy/client_limits.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kSlabBytes = 2u << 20;
constexpr uint64_t kLargestInSlab = 1u << 20;
constexpr uint64_t kAlignment = 512;
}  // namespace

uint64_t DeviceMemory::place_in_slab(int device, uint64_t bytes, uint64_t* slab_base, CUresult* error) {
  for (auto& [base, slab] : slabs_) {
    if (slab.block.device != device) continue;
    if (uint64_t address = slab.space.allocate(bytes); address != 0) {
      *slab_base = base;
      return address;
    }
  }
  Block block;
  *error = map_.allocate(window_, session_, device, kSlabBytes, &block);
  if (*error != CUDA_SUCCESS) return 0;
  Slab& slab = slabs_[block.address];
  slab.block = block;
  slab.space = AddressSpace(block.address, block.bytes, kAlignment);
  *slab_base = block.address;
  return slab.space.allocate(bytes);
}

CUresult DeviceMemory::allocate(int device, uint32_t context, uint64_t untrusted_bytes, CUdeviceptr* address) {
  if (untrusted_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (count() >= limits::kAllocations || untrusted_bytes > limits::kDeviceBytes - bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.bytes = untrusted_bytes;
  range.device = device;
  range.context = context;
  CUresult error = CUDA_SUCCESS;
  if (untrusted_bytes <= kLargestInSlab) {
    range.base = place_in_slab(device, untrusted_bytes, &range.owner, &error);
  } else {
    Block block;
    error = map_.allocate(window_, session_, device, untrusted_bytes, &block);
    range.base = block.address;
    if (error == CUDA_SUCCESS) blocks_[block.address] = block;
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
    if (base == it->first || other.block.device != it->second.block.device || !other.space.empty()) continue;
    map_.release(it->second.block);
    slabs_.erase(it);
    return;
  }
}

CUresult DeviceMemory::retire(CUdeviceptr untrusted_address) {
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  found->kind = RangeKind::kRetired;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::free(CUdeviceptr untrusted_address, RangeKind kind) {
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  const Range range = *found;
  ranges_.erase(range.base);
  bytes_.fetch_sub(range.bytes, std::memory_order_relaxed);
  count_.fetch_sub(1, std::memory_order_relaxed);
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
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    const bool device = range.kind == RangeKind::kDevice || (range.kind == RangeKind::kRetired && context == kAllContexts);
    if (device && (context == kAllContexts || range.context == context)) bases.push_back(base);
  }
  for (uint64_t base : bases) (void)free(base, ranges_.at(base)->kind);
  if (context != kAllContexts) return;
  for (const auto& [base, slab] : slabs_) map_.release(slab.block);
  slabs_.clear();
}

}  // namespace tube::proxy

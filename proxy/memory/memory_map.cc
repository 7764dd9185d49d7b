#include "proxy/memory/memory_map.h"

#include <string>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "sharedmem/window_reservation.h"

namespace tube::proxy {

MemoryMap::~MemoryMap() {
  for (uint32_t candidate = 0; candidate < windows::kCandidates; ++candidate) {
    if (windows_[candidate].ours)
      driver_.cuMemAddressFree(windows::device_base(candidate), windows::kDeviceBytes);
  }
}

bool MemoryMap::take_window(uint32_t candidate) {
  std::lock_guard lock(mutex_);
  Window& window = windows_[candidate];
  if (window.ours || window.refused) return window.ours;
  const uint64_t base = windows::device_base(candidate);
  CUdeviceptr got = 0;
  CUresult error = driver_.cuMemAddressReserve(&got, windows::kDeviceBytes, kBlockBytes, base, 0);
  if (error == CUDA_SUCCESS && got != base) {
    driver_.cuMemAddressFree(got, windows::kDeviceBytes);
    error = CUDA_ERROR_INVALID_VALUE;
  }
  if (error != CUDA_SUCCESS) {
    window.refused = true;
    const std::string in_the_way = shared::mapping_in_the_way(base, windows::kDeviceBytes);
    log_warn("address window %u (0x%lx) is not free here (%s): %s", candidate, base,
             result_text(driver_, error).c_str(),
             in_the_way.empty() ? "the driver put it elsewhere" : in_the_way.c_str());
    return false;
  }
  Result<Mapping> pinned = Mapping::reserve_at(base + windows::kDeviceBytes,
                                               windows::kWindowBytes - windows::kDeviceBytes);
  if (!pinned.ok()) {
    driver_.cuMemAddressFree(base, windows::kDeviceBytes);
    window.refused = true;
    log_warn("address window %u: no room for pinned memory: %s", candidate,
             pinned.error().message.c_str());
    return false;
  }
  window.pinned_half = pinned.take();
  window.ours = true;
  window.device = AddressSpace(base, windows::kDeviceBytes, kBlockBytes);
  return true;
}

CUresult MemoryMap::map_block(const Block& block) {
  CUresult error = driver_.cuMemMap(block.address, block.bytes, 0, block.handle, 0);
  if (error != CUDA_SUCCESS) return error;
  const auto& access = gpus_[static_cast<uint32_t>(block.device)].access;
  error = driver_.cuMemSetAccess(block.address, block.bytes, access.data(), access.size());
  if (error != CUDA_SUCCESS) driver_.cuMemUnmap(block.address, block.bytes);
  return error;
}

CUresult MemoryMap::allocate(uint32_t window, uint64_t session, int device, uint64_t bytes,
                             Block* block) {
  if (bytes == 0 || bytes > windows::kDeviceBytes)
    return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t granularity = gpus_[static_cast<uint32_t>(device)].granularity;
  bytes = (bytes + granularity - 1) / granularity * granularity;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = gpus_[static_cast<uint32_t>(device)].device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = driver_.cuMemCreate(&handle, bytes, &prop, 0); error != CUDA_SUCCESS)
    return error;
  CUresult error = place(window, session, device, handle, bytes, block);
  if (error != CUDA_SUCCESS) driver_.cuMemRelease(handle);
  return error;
}

CUresult MemoryMap::place(uint32_t window, uint64_t session, int device,
                          CUmemGenericAllocationHandle handle, uint64_t bytes, Block* block) {
  *block = Block{0, bytes, handle, device, window};
  {
    std::lock_guard lock(mutex_);
    block->address = windows_[window].device.allocate(bytes);
  }
  CUresult error = block->address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : map_block(*block);
  std::lock_guard lock(mutex_);
  if (error == CUDA_SUCCESS) {
    owners_[block->address] = Owner{session, block->address, bytes, device};
  } else if (block->address != 0) {
    windows_[window].device.free(block->address, bytes);
  }
  return error;
}

void MemoryMap::retain(const Block& block) {
  std::lock_guard lock(mutex_);
  if (auto owner = owners_.find(block.address); owner != owners_.end()) ++owner->second.holders;
}

void MemoryMap::release(const Block& block) {
  {
    std::lock_guard lock(mutex_);
    if (auto owner = owners_.find(block.address); owner != owners_.end()) {
      if (--owner->second.holders != 0) return;
      owners_.erase(owner);
    }
  }
  const CUresult unmapped = driver_.cuMemUnmap(block.address, block.bytes);
  driver_.cuMemRelease(block.handle);
  if (unmapped != CUDA_SUCCESS) {
    // A dead context may refuse; the address then stays taken, because memory may still be behind
    // it.
    log_warn("device memory at 0x%lx stays mapped: %s", block.address,
             result_text(driver_, unmapped).c_str());
    return;
  }
  std::lock_guard lock(mutex_);
  windows_[block.window].device.free(block.address, block.bytes);
}

uint64_t MemoryMap::reserve(uint32_t window, uint64_t session, uint64_t bytes, uint64_t alignment,
                            uint64_t hint) {
  std::lock_guard lock(mutex_);
  AddressSpace& space = windows_[window].device;
  uint64_t address = 0;
  if (hint != 0 && (alignment == 0 || hint % alignment == 0) && space.allocate_at(hint, bytes))
    address = hint;
  if (address == 0) address = space.allocate(bytes, alignment);
  if (address != 0) owners_[address] = Owner{session, address, bytes, -1};
  return address;
}

void MemoryMap::unreserve(uint32_t window, uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  owners_.erase(address);
  windows_[window].device.free(address, bytes);
}

std::optional<Owner> MemoryMap::owner(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto next = owners_.upper_bound(address);
  if (next == owners_.begin()) return std::nullopt;
  const Owner& owner = std::prev(next)->second;
  if (address - owner.base >= owner.bytes) return std::nullopt;
  return owner;
}

uint64_t MemoryMap::used_bytes(int device) const {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [base, owner] : owners_) {
    if (owner.device == device) sum += owner.bytes;
  }
  return sum;
}

uint32_t MemoryMap::blocks() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(owners_.size());
}

}  // namespace tube::proxy

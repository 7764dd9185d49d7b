// Blocks whose bytes are moved to the host and back: the memory map's part of it.
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {

// take(BlockId, Block): the session's own blocks on the GPU. mutex_ is held.
template <class Take>
void MemoryMap::each_of(uint64_t session, int device, Take take) const {
  for (uint32_t slot = 0; slot < blocks_.size(); ++slot) {
    const Block& block = blocks_[slot];
    if (block.references == 0 || block.place.device != device) continue;
    const auto region = regions_.find(block.place.address);
    const bool own = region != regions_.end() && region->second.session == session;
    if (own) take(BlockId{uint64_t{block.generation} << 32 | (slot + 1)}, block);
  }
}

std::vector<MemoryMap::Movable> MemoryMap::movable(uint64_t session, int device,
                                                   uint64_t* stay) const {
  std::vector<Movable> found;
  uint64_t staying = 0;
  std::lock_guard lock(mutex_);
  each_of(session, device, [&](BlockId id, const Block& block) {
    if (block.away || block.charge.idle()) return;
    if (block.references == 1 && block.charge.bytes() != 0)
      found.push_back({id, block.place.address, block.place.bytes});
    else staying += block.place.bytes;
  });
  if (stay != nullptr) *stay = staying;
  return found;
}

std::vector<MemoryMap::Movable> MemoryMap::away(uint64_t session, int device) const {
  std::vector<Movable> found;
  std::lock_guard lock(mutex_);
  each_of(session, device, [&](BlockId id, const Block& block) {
    if (block.away && !block.charge.idle())
      found.push_back({id, block.place.address, block.place.bytes});
  });
  return found;
}

bool MemoryMap::send_away(BlockId id, std::unique_ptr<HostCopy> copy) {
  CUmemGenericAllocationHandle handle = 0;
  BlockPlace place;
  {
    std::lock_guard lock(mutex_);
    Block* block = live(id);
    if (block == nullptr || block->away || block->references != 1) return false;
    if (block->promised) {
      block->promised = false;
      block->away = true;
      promised_.remove(block->place.device, block->place.bytes);
      block->charge.leave_gpu();
      return true;
    }
    handle = block->handle;
    place = block->place;
  }
  if (!unmap_own(place)) return false;
  (void)driver_.cuMemRelease(handle);
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  block->handle = 0;
  block->away = true;
  if (copy != nullptr) block->copy = std::move(copy);
  block->charge.leave_gpu();
  return true;
}

CUresult MemoryMap::bring_back(BlockId id, bool beyond_limit) {
  BlockPlace place;
  {
    std::lock_guard lock(mutex_);
    Block* block = live(id);
    if (block == nullptr || !block->away) return CUDA_ERROR_INVALID_VALUE;
    place = block->place;
  }
  const PromisedMemory::Making making(promised_, place.device, place.bytes);
  {
    std::lock_guard lock(mutex_);
    if (!live(id)->charge.return_to_gpu(beyond_limit)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmemGenericAllocationHandle handle = 0;
  const CUresult error = promised_.has_room(static_cast<uint32_t>(place.device), 0)
                             ? make_at(place, &handle)
                             : CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (error == CUDA_SUCCESS) {
    block->handle = handle;
    block->away = false;
  } else {
    block->charge.leave_gpu();
  }
  return error;
}

bool MemoryMap::has_memory(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block != nullptr && !block->away && !block->promised;
}

// ---- promised ----------------------------------------------------------------------------------

CUresult MemoryMap::promise(uint32_t window, uint64_t session, int device, uint64_t bytes,
                            uint64_t gap_bytes, MemoryAccount& account, Placed* placed,
                            bool* promised) {
  *promised = false;
  if (bytes == 0 || bytes > windows::kDeviceBytes)
    return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  BlockPlace place{0, in_blocks(device, bytes), device, window, gap_bytes};
  {
    const PromisedMemory::Making making(promised_, device, place.bytes);
    MemoryCharge charge;
    if (CUresult error = account.charge(device, place.bytes, &charge, true); error != CUDA_SUCCESS)
      return error;
    if (!promised_.may_promise(device))
      return allocate_charged(window, session, device, place.bytes, std::move(charge), placed);
    std::lock_guard lock(mutex_);
    place.address = windows_[window].device.allocate(place.bytes + 2 * gap_bytes);
    if (place.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    place.address += gap_bytes;
    regions_[place.address] = Owner{session, place.address, place.bytes, device};
    *placed = Placed{enter(0, place, std::move(charge)), place.address};
    live(placed->block)->promised = *promised = true;
    promised_.add(device, place.bytes);  // while it still counts as being made
  }
  return CUDA_SUCCESS;
}

MemoryMap::Backing MemoryMap::back(BlockId id, CUresult* error) {
  BlockPlace place;
  {
    std::lock_guard lock(mutex_);
    Block* block = live(id);
    if (block == nullptr || !block->promised) return Backing::kGone;
    place = block->place;
    ++block->references;
  }
  CUmemGenericAllocationHandle handle = 0;
  *error = make_at(place, &handle);
  if (*error == CUDA_SUCCESS) {
    std::lock_guard lock(mutex_);
    Block* block = live(id);
    block->handle = handle;
    block->promised = false;
    promised_.remove(place.device, place.bytes);
  }
  release(id);
  return *error == CUDA_SUCCESS ? Backing::kDone : Backing::kFailed;
}

bool MemoryMap::promise_again(BlockId id) {
  BlockPlace place;
  {
    std::lock_guard lock(mutex_);
    const Block* block = live(id);
    if (block == nullptr || !block->away || block->copy != nullptr) return false;
    place = block->place;
  }
  const PromisedMemory::Making making(promised_, place.device, place.bytes);
  {
    std::lock_guard lock(mutex_);
    if (!live(id)->charge.return_to_gpu(false)) return false;
  }
  const bool may = promised_.may_promise(place.device);
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (!may) {
    block->charge.leave_gpu();
    return false;
  }
  block->away = false;
  block->promised = true;
  promised_.add(place.device, place.bytes);
  return true;
}

bool MemoryMap::lacks_memory(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block != nullptr && (block->away || block->promised);
}

bool MemoryMap::is_promised(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block != nullptr && block->promised;
}

uint64_t MemoryMap::promised_bytes(uint64_t session, int device) const {
  uint64_t bytes = 0;
  std::lock_guard lock(mutex_);
  each_of(session, device, [&](BlockId, const Block& block) {
    if (block.promised && !block.charge.idle()) bytes += block.place.bytes;
  });
  return bytes;
}

// ---- the copies on the host --------------------------------------------------------------------

const HostCopy* MemoryMap::host_copy(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block == nullptr ? nullptr : block->copy.get();
}

void MemoryMap::drop_host_copy(BlockId id) {
  std::unique_ptr<HostCopy> gone;
  std::lock_guard lock(mutex_);
  if (Block* block = live(id)) gone = std::move(block->copy);
}

}  // namespace tube::proxy

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
    if (!block->charge.return_to_gpu(beyond_limit)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmemGenericAllocationHandle handle = 0;
  CUresult error = create_handle(place.device, place.bytes, &handle);
  if (error == CUDA_SUCCESS) {
    error = map_at(handle, place);
    if (error != CUDA_SUCCESS) (void)driver_.cuMemRelease(handle);
  }
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

bool MemoryMap::is_away(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block != nullptr && block->away;
}

}  // namespace tube::proxy

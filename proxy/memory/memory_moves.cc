// Blocks whose bytes are moved to the host and back: the memory map's part of it.
#include <algorithm>

#include "base/log.h"
#include "base/scope_guard.h"
#include "policies/memory/eviction.h"
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

BlockPlace MemoryMap::place_of(const Block& block, uint32_t part) {
  if (block.parts.empty()) return block.place;
  BlockPlace place = block.place;
  const uint64_t bytes = policies::part_bytes(place.bytes);
  place.address += part * bytes;
  place.bytes = std::min(bytes, block.place.bytes - part * bytes);
  return place;
}

uint64_t MemoryMap::Block::away_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t part = 0; part < all_parts().size(); ++part)
    if (all_parts()[part].away) bytes += place_of(*this, part).bytes;
  return bytes;
}

MemoryMap::Part* MemoryMap::live(const Movable& part) {
  Block* block = live(part.block);
  if (block == nullptr || part.part >= block->all_parts().size()) return nullptr;
  return &block->all_parts()[part.part];
}

std::vector<MemoryMap::Movable> MemoryMap::movable(uint64_t session, int device,
                                                   uint64_t* stay) const {
  std::vector<Movable> found;
  uint64_t staying = 0;
  std::lock_guard lock(mutex_);
  each_of(session, device, [&](BlockId id, const Block& block) {
    if (block.charge.idle()) return;
    const bool can_go = block.references == 1 && block.charge.bytes() != 0;
    if (!can_go) staying += block.place.bytes - block.away_bytes();
    for (uint32_t part = 0; part < block.all_parts().size() && can_go; ++part) {
      const BlockPlace place = place_of(block, part);
      if (!block.all_parts()[part].away)
        found.push_back({id, place.address, place.bytes, part, block.parts.empty()});
    }
  });
  if (stay != nullptr) *stay = staying;
  return found;
}

std::vector<MemoryMap::Movable> MemoryMap::away(uint64_t session, int device) const {
  std::vector<Movable> found;
  std::lock_guard lock(mutex_);
  each_of(session, device, [&](BlockId id, const Block& block) {
    for (uint32_t part = 0; part < block.all_parts().size(); ++part) {
      const BlockPlace place = place_of(block, part);
      if (block.all_parts()[part].away)
        found.push_back({id, place.address, place.bytes, part, block.parts.empty()});
    }
  });
  return found;
}

bool MemoryMap::send_away(const Movable& part, Copies copies) {
  CUmemGenericAllocationHandle handle = 0;
  BlockPlace place;
  // The places first: what is unmapped must be known as away.
  std::vector<Part> parts(copies.size() > 1 ? copies.size() : 0);
  {
    std::lock_guard lock(mutex_);
    Block* block = live(part.block);
    const Part* own = live(part);
    if (own == nullptr || own->away || block->references != 1) return false;
    if (block->promised) {
      block->promised = false;
      block->whole.away = true;
      promised_.remove(block->place.device, block->place.bytes);
      block->charge.leave_gpu(block->place.bytes);
      return true;
    }
    handle = own->handle;
    place = place_of(*block, part.part);
  }
  if (!unmap_own(place)) return false;
  (void)driver_.cuMemRelease(handle);
  std::lock_guard lock(mutex_);
  Block* block = live(part.block);
  if (!parts.empty()) block->parts = std::move(parts);
  for (size_t i = 0; i < std::max<size_t>(copies.size(), 1); ++i) {
    Part& own = block->all_parts()[part.part + i];
    own.handle = 0;
    own.away = true;
    if (i < copies.size()) own.copy = std::move(copies[i]);
  }
  block->charge.leave_gpu(place.bytes);
  return true;
}

// An idle block may go back to the driver at any moment: its reference keeps it until it is whole.
CUresult MemoryMap::bring_back(const Movable& part, bool beyond_limit) {
  BlockPlace place;
  {
    std::lock_guard lock(mutex_);
    Block* block = live(part.block);
    const Part* own = live(part);
    if (own == nullptr) return CUDA_SUCCESS;
    if (!own->away) return CUDA_ERROR_INVALID_VALUE;
    place = place_of(*block, part.part);
    ++block->references;
  }
  const ScopeGuard kept([&] { release(part.block); });
  const PromisedMemory::Making making(promised_, place.device, place.bytes);
  {
    std::lock_guard lock(mutex_);
    if (!live(part.block)->charge.return_to_gpu(place.bytes, beyond_limit))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUmemGenericAllocationHandle handle = 0;
  const CUresult error = promised_.has_room(static_cast<uint32_t>(place.device), 0)
                             ? make_at(place, &handle)
                             : CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(mutex_);
  if (error == CUDA_SUCCESS) {
    Part* own = live(part);
    own->handle = handle;
    own->away = false;
  } else {
    live(part.block)->charge.leave_gpu(place.bytes);
  }
  return error;
}

bool MemoryMap::divided(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block != nullptr && !block->parts.empty();
}

bool MemoryMap::unite(BlockId id) {
  std::vector<Part> gone;
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (block == nullptr || block->parts.empty()) return false;
  for (const Part& part : block->parts)
    if (!part.away || part.copy == nullptr) return false;
  std::unique_ptr<HostCopy>& first = block->parts.front().copy;
  for (size_t i = 1; i < block->parts.size(); ++i) first->join(*block->parts[i].copy);
  block->whole = {0, true, std::move(first)};
  gone.swap(block->parts);
  return true;
}

bool MemoryMap::has_memory(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  if (block == nullptr || block->promised) return false;
  const auto parts = block->all_parts();
  return std::none_of(parts.begin(), parts.end(), [](const Part& part) { return part.away; });
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
    block->whole.handle = handle;
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
    Block* block = live(id);
    if (block == nullptr || !block->parts.empty() || !block->whole.away ||
        block->whole.copy != nullptr)
      return false;
    place = block->place;
    ++block->references;
  }
  const ScopeGuard kept([&] { release(id); });
  const PromisedMemory::Making making(promised_, place.device, place.bytes);
  {
    std::lock_guard lock(mutex_);
    if (!live(id)->charge.return_to_gpu(place.bytes, false)) return false;
  }
  const bool may = promised_.may_promise(place.device);
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (!may) {
    block->charge.leave_gpu(place.bytes);
    return false;
  }
  block->whole.away = false;
  block->promised = true;
  promised_.add(place.device, place.bytes);
  return true;
}

bool MemoryMap::lacks_memory(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block != nullptr && (block->promised || block->away_bytes() != 0);
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

const HostCopy* MemoryMap::host_copy(const Movable& part) const {
  std::lock_guard lock(mutex_);
  const Part* own = const_cast<MemoryMap*>(this)->live(part);
  return own == nullptr ? nullptr : own->copy.get();
}

void MemoryMap::drop_host_copy(const Movable& part) {
  std::unique_ptr<HostCopy> gone;
  std::lock_guard lock(mutex_);
  if (Part* own = live(part)) gone = std::move(own->copy);
}

void MemoryMap::drop_host_copies(BlockId id) {
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (block == nullptr) return;
  for (Part& part : block->all_parts()) part.copy.reset();
}

}  // namespace tube::proxy

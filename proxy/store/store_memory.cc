#include "proxy/store/store_memory.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "protocol/device_info.h"
#include "protocol/driver_table.gen.h"
#include "proxy/memory/memory_map.h"
#include "sharedmem/abi.h"
#include "sharedmem/windows.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kPieceUnit = 512;          // as the driver aligns
constexpr uint64_t kHostUnit = 4096;          // of objects in pinned memory
constexpr uint64_t kHostBlock = 64ull << 20;  // registered at a time, at least

constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

StoreMemory::StoreMemory(const Driver& driver, MemoryMap& map,
                         std::function<uint64_t(uint32_t gpu)> idle_bytes)
    : driver_(driver),
      map_(map),
      idle_allowed_(std::move(idle_bytes)),
      account_(map.budgets().open("the store", policies::kNoMemoryLimit)) {
  for (uint32_t gpu = 0; gpu < info::kMaxDevices; ++gpu)
    account_->set_limit(gpu, policies::kNoMemoryLimit);
}

StoreMemory::~StoreMemory() {
  (void)give_idle_back(kAllGpus);
  for (const auto& [base, slab] : slabs_) map_.release(slab.block);
}

bool StoreMemory::take_piece(uint32_t window, int device, uint64_t bytes, StorePiece* piece) {
  std::lock_guard lock(mutex_);
  for (auto& [base, slab] : slabs_) {
    if (slab.device != device || slab.window != window) continue;
    const uint64_t address = slab.space.allocate(bytes);
    if (address == 0) continue;
    *piece = StorePiece{address, bytes, device, window, BlockId::kNone};
    return true;
  }
  return false;
}

CUresult StoreMemory::take_block(uint32_t window, int device, uint64_t bytes, StorePiece* piece) {
  const uint64_t whole = round_up(bytes, kBlockBytes);
  {
    std::lock_guard lock(mutex_);
    const auto found = idle_.find(Size{device, window, whole});
    if (found != idle_.end()) {
      *piece = StorePiece{found->second.address, whole, device, window, found->second.block};
      idle_bytes_[device] -= whole;
      idle_.erase(found);
      map_.set_idle(piece->block, false);
      return CUDA_SUCCESS;
    }
  }
  Placed placed;
  CUresult error = map_.allocate(window, 0, device, whole, *account_, &placed);
  if (error == CUDA_ERROR_OUT_OF_MEMORY && give_idle_back(device))
    error = map_.allocate(window, 0, device, whole, *account_, &placed);
  if (error != CUDA_SUCCESS) return error;
  *piece = StorePiece{placed.address, whole, device, window, placed.block};
  return CUDA_SUCCESS;
}

CUresult StoreMemory::take(uint32_t window, int device, uint64_t bytes, StorePiece* piece) {
  if (bytes > abi::kLargestInSlab) return take_block(window, device, bytes, piece);
  bytes = round_up(std::max<uint64_t>(bytes, 1), kPieceUnit);
  if (take_piece(window, device, bytes, piece)) return CUDA_SUCCESS;
  StorePiece block;
  if (CUresult error = take_block(window, device, kBlockBytes, &block); error != CUDA_SUCCESS)
    return error;
  std::lock_guard lock(mutex_);
  Slab& slab = slabs_[block.address];
  slab = Slab{block.block, device, window, AddressSpace(block.address, block.bytes, kPieceUnit)};
  *piece = StorePiece{slab.space.allocate(bytes), bytes, device, window, BlockId::kNone};
  return CUDA_SUCCESS;
}

Status StoreMemory::open_host(uint32_t window) {
  Result<std::shared_ptr<PinnedPool>> pool =
      PinnedPool::open(driver_, window, windows::kStoreSlot, host_budget_, &map_.registrations());
  if (!pool.ok()) return pool.error();
  host_ = pool.take();
  return {};
}

int StoreMemory::host_fd(uint32_t window) {
  std::lock_guard lock(mutex_);
  if (host_ == nullptr) {
    if (Status opened = open_host(window); !opened.ok()) {
      log_warn("the store has no host memory: %s", opened.error().message.c_str());
      return -1;
    }
  }
  return host_->window() == window ? host_->fd() : -1;
}

// A whole block is made, and all of it but the object's bytes is there for the next ones: who comes
// while it is made waits for it instead of making one more.
CUresult StoreMemory::make_host(uint64_t bytes, uint64_t* address) {
  std::lock_guard lock(making_);
  *address = host_->take(bytes);
  if (*address != 0) return CUDA_SUCCESS;
  const uint64_t block = std::max(round_up(bytes, kBlockBytes), kHostBlock);
  if (host_->make(block, address) != CUDA_SUCCESS) return host_->make(bytes, address);
  if (block > bytes) host_->give(*address + bytes, block - bytes);
  return CUDA_SUCCESS;
}

CUresult StoreMemory::take_host(uint32_t window, uint64_t bytes, StorePiece* piece) {
  if (host_fd(window) < 0) return CUDA_ERROR_NOT_SUPPORTED;
  bytes = round_up(std::max<uint64_t>(bytes, 1), kHostUnit);
  if (bytes > windows::kPinnedSlotBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = host_->take(bytes);
  if (address == 0) {
    if (CUresult error = make_host(bytes, &address); error != CUDA_SUCCESS) return error;
  }
  *piece = StorePiece{address, bytes, -1, window, BlockId::kNone};
  return CUDA_SUCCESS;
}

BlockId StoreMemory::block_of(const StorePiece& piece) const {
  if (piece.block != BlockId::kNone) return piece.block;
  std::lock_guard lock(mutex_);
  return std::prev(slabs_.upper_bound(piece.address))->second.block;
}

// The lock is held.
bool StoreMemory::has_other_empty(const Slab& slab) const {
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const auto& other) {
    return &other.second != &slab && other.second.space.empty() &&
           other.second.device == slab.device;
  });
}

void StoreMemory::give(const StorePiece& piece) {
  if (piece.address == 0) return;
  if (piece.device < 0) {
    host_->give(piece.address, piece.bytes);
    return;
  }
  if (piece.lease != 0) return map_.release(piece.block);
  BlockId gone = BlockId::kNone;
  {
    std::lock_guard lock(mutex_);
    if (piece.block == BlockId::kNone) {
      const auto found = std::prev(slabs_.upper_bound(piece.address));
      Slab& slab = found->second;
      slab.space.free(piece.address, piece.bytes);
      if (slab.space.empty() && has_other_empty(slab)) {
        gone = slab.block;
        slabs_.erase(found);
      }
    } else if (idle_bytes_[piece.device] + piece.bytes <=
               idle_allowed_(static_cast<uint32_t>(piece.device))) {
      idle_bytes_[piece.device] += piece.bytes;
      idle_.emplace(Size{piece.device, piece.window, piece.bytes},
                    Idle{piece.block, piece.address});
      map_.set_idle(piece.block, true);
    } else {
      gone = piece.block;
    }
  }
  if (gone != BlockId::kNone) map_.release(gone);
}

bool StoreMemory::give_idle_back(int gpu) {
  std::vector<BlockId> gone;
  {
    std::lock_guard lock(mutex_);
    for (auto it = idle_.begin(); it != idle_.end();) {
      const auto& [device, window, bytes] = it->first;
      if (gpu != kAllGpus && device != gpu) {
        ++it;
        continue;
      }
      idle_bytes_[device] -= bytes;
      gone.push_back(it->second.block);
      it = idle_.erase(it);
    }
    for (auto it = slabs_.begin(); it != slabs_.end();) {
      const bool goes = it->second.space.empty() && (gpu == kAllGpus || it->second.device == gpu);
      if (goes) gone.push_back(it->second.block);
      it = goes ? slabs_.erase(it) : std::next(it);
    }
  }
  for (const BlockId block : gone) map_.release(block);
  return !gone.empty();
}

uint64_t StoreMemory::idle_bytes() const {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [device, bytes] : idle_bytes_) sum += bytes;
  return sum;
}

uint64_t StoreMemory::host_held_bytes() const {
  std::lock_guard lock(mutex_);
  return host_ == nullptr ? 0 : host_->held_bytes();
}

}  // namespace tube::proxy

#include "proxy/memory/pinned.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/device_memory.h"
#include "sharedmem/segment.h"
#include "sharedmem/windows.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tube::proxy {

namespace {
constexpr uint64_t kPinnedBlockBytes = 2u << 20;
constexpr uint64_t kLargestShared = 64u << 10;
constexpr uint64_t kSharedAlignment = 512;
constexpr uint64_t kPage = 4096;

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Back to a plain reservation: the slot's addresses stay ours for the next client.
void reserve_slot(uint64_t base) {
  if (mmap(pointer(base), windows::kPinnedSlotBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
    log_warn("the pinned slot at 0x%lx stays mapped: %s", base, std::strerror(errno));
}
}  // namespace

PinnedSlot::PinnedSlot(const Driver& driver, Ranges& ranges) : driver_(driver), ranges_(ranges) {}
PinnedSlot::~PinnedSlot() { close(); }

Status PinnedSlot::open(uint32_t window, uint32_t client_slot) {
  Result<UniqueFd> file =
      shared::create_memory_file("tube-pinned", windows::kPinnedSlotBytes, shared::Fill::kSparse);
  if (!file.ok()) return file.error();
  base_ = windows::pinned_base(window, client_slot);
  // MAP_FIXED over our own reservation of the window's pinned half (MemoryMap::take_window).
  void* mapped = mmap(pointer(base_), windows::kPinnedSlotBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file->get(), 0);
  if (mapped == MAP_FAILED) {
    base_ = 0;
    return errno_error(errno, "pinned slot: mmap");
  }
  fd_ = file.take();
  space_ = AddressSpace(base_, windows::kPinnedSlotBytes, kPage);
  return {};
}

CUresult PinnedSlot::populate(uint64_t address, uint64_t bytes) {
  if (fallocate(fd_.get(), 0, static_cast<off_t>(address - base_), static_cast<off_t>(bytes)) !=
      0) {
    log_warn("pinned memory: %lu bytes: %s", bytes, std::strerror(errno));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // fallocate took the pages, so a failure here (old kernels) only means that they are mapped one
  // by one later.
  (void)madvise(pointer(address), bytes, MADV_POPULATE_WRITE);
  return CUDA_SUCCESS;
}

CUresult PinnedSlot::take_block(uint64_t bytes, uint64_t* address) {
  if (auto cached = reuse_.find(bytes); cached != reuse_.end()) {
    *address = cached->second;
    reuse_.erase(cached);
    reuse_bytes_ -= bytes;
    return CUDA_SUCCESS;
  }
  *address = space_.allocate(bytes, bytes >= kPinnedBlockBytes ? kPinnedBlockBytes : kPage);
  if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult error = populate(*address, bytes);
  if (error == CUDA_SUCCESS) {
    error = driver_.cuMemHostRegister_v2(
        pointer(*address), bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  }
  if (error != CUDA_SUCCESS) {
    fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(*address - base_), static_cast<off_t>(bytes));
    space_.free(*address, bytes);
    return error;
  }
  registered_[*address] = bytes;
  return CUDA_SUCCESS;
}

void PinnedSlot::drop_block(uint64_t address, uint64_t bytes) {
  if (CUresult error = driver_.cuMemHostUnregister(pointer(address)); error != CUDA_SUCCESS) {
    log_warn("pinned memory at 0x%lx stays registered: %s", address,
             result_text(driver_, error).c_str());
  }
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(address - base_), static_cast<off_t>(bytes));
  registered_.erase(address);
  space_.free(address, bytes);
}

void PinnedSlot::give_block(uint64_t address, uint64_t bytes) {
  if (reuse_bytes_ + bytes > limits::kPinnedReuseBytes) return drop_block(address, bytes);
  reuse_.emplace(bytes, address);
  reuse_bytes_ += bytes;
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
  if (untrusted_bytes <= kLargestShared) {
    for (auto& [base, space] : shared_blocks_) {
      range.base = space.allocate(untrusted_bytes);
      range.owner = base;
      if (range.base != 0) break;
    }
    if (range.base == 0) {
      uint64_t block = 0;
      if (CUresult error = take_block(kPinnedBlockBytes, &block); error != CUDA_SUCCESS)
        return error;
      AddressSpace& space = shared_blocks_[block] =
          AddressSpace(block, kPinnedBlockBytes, kSharedAlignment);
      range.base = space.allocate(untrusted_bytes);
      range.owner = block;
    }
  } else {
    const uint64_t rounded = (untrusted_bytes + kPage - 1) / kPage * kPage;
    if (CUresult error = take_block(rounded, &range.base); error != CUDA_SUCCESS) return error;
  }
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
    give_block(range.base, (range.bytes + kPage - 1) / kPage * kPage);
    return CUDA_SUCCESS;
  }
  auto block = shared_blocks_.find(range.owner);
  block->second.free(range.base, range.bytes);
  if (block->second.empty() && shared_blocks_.size() > 1) {
    const uint64_t base = block->first;
    shared_blocks_.erase(block);
    give_block(base, kPinnedBlockBytes);
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

std::unique_ptr<PinnedRemains> PinnedSlot::retire() {
  if (base_ == 0) return nullptr;
  if (registered_.empty()) {
    close();
    return nullptr;
  }
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : ranges_.all()) {
    if (range.kind == RangeKind::kPinned) bases.push_back(base);
  }
  for (uint64_t base : bases) ranges_.erase(base);
  bytes_.store(0, std::memory_order_relaxed);
  reuse_.clear();
  reuse_bytes_ = 0;
  shared_blocks_.clear();
  auto remains = std::make_unique<PinnedRemains>(driver_, base_, std::move(registered_));
  registered_.clear();
  base_ = 0;
  fd_.reset();  // the mapping keeps the memory
  return remains;
}

PinnedRemains::PinnedRemains(const Driver& driver, uint64_t base,
                             std::map<uint64_t, uint64_t> registered)
    : driver_(driver), base_(base), registered_(std::move(registered)) {
  for (const auto& [address, bytes] : registered_) bytes_ += bytes;
}

PinnedRemains::~PinnedRemains() {
  for (const auto& [address, bytes] : registered_) {
    if (CUresult error = driver_.cuMemHostUnregister(pointer(address)); error != CUDA_SUCCESS) {
      log_warn("pinned memory at 0x%lx stays registered: %s", address,
               result_text(driver_, error).c_str());
    }
  }
  reserve_slot(base_);
}

void PinnedSlot::close() {
  if (base_ == 0) return;
  free_all(DeviceMemory::kAllContexts);
  reuse_.clear();
  reuse_bytes_ = 0;
  shared_blocks_.clear();
  while (!registered_.empty()) drop_block(registered_.begin()->first, registered_.begin()->second);
  reserve_slot(base_);
  base_ = 0;
  fd_.reset();
}

}  // namespace tube::proxy

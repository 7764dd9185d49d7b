#include "proxy/memory/memory_map.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "policies/memory/address_windows.h"
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

// ---- blocks ------------------------------------------------------------------------------------

namespace {
constexpr uint32_t slot_of(BlockId id) { return static_cast<uint32_t>(id) - 1; }
constexpr uint32_t generation_of(BlockId id) {
  return static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
}
}  // namespace

const MemoryMap::Block* MemoryMap::live(BlockId id) const {
  const uint32_t slot = slot_of(id);
  if (id == BlockId::kNone || slot >= blocks_.size()) return nullptr;
  const Block& block = blocks_[slot];
  return block.references != 0 && block.generation == generation_of(id) ? &block : nullptr;
}

MemoryMap::Block* MemoryMap::live(BlockId id) {
  return const_cast<Block*>(std::as_const(*this).live(id));
}

BlockId MemoryMap::enter(CUmemGenericAllocationHandle handle, const BlockPlace& place,
                         MemoryCharge charge) {
  uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(blocks_.size());
    if (free_slots_.capacity() <= slot) free_slots_.reserve(2 * size_t{slot} + 16);  // for its end
    blocks_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Block& block = blocks_[slot];
  block = Block{{handle, false, nullptr}, place, 1,     block.generation + 1,
                std::move(charge),        false, false, {}};
  return BlockId{uint64_t{block.generation} << 32 | (slot + 1)};
}

bool MemoryMap::retain(BlockId id) {
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (block == nullptr) return false;
  ++block->references;
  return true;
}

void MemoryMap::set_idle(BlockId id, bool idle) {
  std::lock_guard lock(mutex_);
  if (Block* block = live(id)) block->charge.set_idle(idle);
}

void MemoryMap::release(BlockId id) {
  Block gone;
  {
    std::lock_guard lock(mutex_);
    Block* block = live(id);
    if (block == nullptr || --block->references != 0) return;
    gone = std::move(*block);
    free_slots_.push_back(slot_of(id));
    if (gone.place.address != 0) regions_.erase(gone.place.address);
  }
  bool unmapped = true;
  for (uint32_t part = 0; part < gone.all_parts().size() && !gone.promised; ++part) {
    const Part& each = gone.all_parts()[part];
    if (each.away) continue;
    unmapped = gone.place.address != 0 && unmap_own(place_of(gone, part)) && unmapped;
    driver_.cuMemRelease(each.handle);
  }
  if (gone.promised) promised_.remove(gone.place.device, gone.place.bytes);
  gone.charge = {};  // who asks next may have it
  if (!unmapped) return;
  std::lock_guard lock(mutex_);
  windows_[gone.place.window].device.free(gone.place.address - gone.place.gap_bytes,
                                          gone.place.bytes + 2 * gone.place.gap_bytes);
}

// False: a dead context may refuse. The address then stays taken, because memory may still be
// behind it.
bool MemoryMap::unmap_own(const BlockPlace& place) {
  const CUresult error = driver_.cuMemUnmap(place.address, place.bytes);
  if (error == CUDA_SUCCESS) return true;
  log_warn("device memory at 0x%lx stays mapped: %s", place.address,
           result_text(driver_, error).c_str());
  return false;
}

// On success with a reference, which is the caller's to give back.
CUresult MemoryMap::take_handle(BlockId id, CUmemGenericAllocationHandle* handle,
                                BlockPlace* place) {
  std::lock_guard lock(mutex_);
  Block* block = live(id);
  if (block == nullptr || block->whole.away || block->promised) return CUDA_ERROR_INVALID_VALUE;
  if (!block->parts.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  ++block->references;
  *handle = block->whole.handle;
  if (place != nullptr) *place = block->place;
  return CUDA_SUCCESS;
}

CUresult MemoryMap::map_at(CUmemGenericAllocationHandle handle, const BlockPlace& place) {
  CUresult error = driver_.cuMemMap(place.address, place.bytes, 0, handle, 0);
  if (error != CUDA_SUCCESS) return error;
  const auto& access = gpus_[static_cast<uint32_t>(place.device)].access;
  error = driver_.cuMemSetAccess(place.address, place.bytes, access.data(), access.size());
  if (error != CUDA_SUCCESS) driver_.cuMemUnmap(place.address, place.bytes);
  return error;
}

// New memory at an address that is taken.
CUresult MemoryMap::make_at(const BlockPlace& place, CUmemGenericAllocationHandle* handle) {
  CUresult error = create_handle(place.device, place.bytes, handle);
  if (error != CUDA_SUCCESS) return error;
  error = map_at(*handle, place);
  if (error != CUDA_SUCCESS) (void)driver_.cuMemRelease(*handle);
  return error;
}

// Takes an address of place->window, maps the memory there and makes the region `session`'s. What
// is there is the caller's to enter.
CUresult MemoryMap::place_handle(CUmemGenericAllocationHandle handle, uint64_t session,
                                 BlockPlace* place) {
  {
    std::lock_guard lock(mutex_);
    place->address = windows_[place->window].device.allocate(place->bytes);
  }
  if (place->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult error = map_at(handle, *place);
  std::lock_guard lock(mutex_);
  if (error != CUDA_SUCCESS) {
    windows_[place->window].device.free(place->address, place->bytes);
    return error;
  }
  regions_[place->address] = Owner{session, place->address, place->bytes, place->device};
  return CUDA_SUCCESS;
}

// The handle goes in any case: into a block, or back to the driver.
CUresult MemoryMap::adopt(CUmemGenericAllocationHandle handle, uint64_t session, BlockPlace place,
                          MemoryCharge charge, Placed* placed) {
  if (CUresult error = place_handle(handle, session, &place); error != CUDA_SUCCESS) {
    driver_.cuMemRelease(handle);
    return error;
  }
  std::lock_guard lock(mutex_);
  *placed = Placed{enter(handle, place, std::move(charge)), place.address};
  return CUDA_SUCCESS;
}

CUresult MemoryMap::allocate(uint32_t window, uint64_t session, int device, uint64_t bytes,
                             MemoryAccount& account, Placed* placed) {
  if (bytes == 0 || bytes > windows::kDeviceBytes)
    return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  bytes = in_blocks(device, bytes);
  const PromisedMemory::Making making(promised_, device, bytes);
  MemoryCharge charge;
  if (CUresult error = account.charge(device, bytes, &charge, true); error != CUDA_SUCCESS)
    return error;
  return allocate_charged(window, session, device, bytes, std::move(charge), placed);
}

void MemoryMap::enter_context(uint32_t device) { driver_.cuCtxSetCurrent(gpus_[device].context); }

CUcontext MemoryMap::context(uint32_t device) const { return gpus_[device].context; }

uint32_t MemoryMap::gpus() const { return gpus_.count(); }

Registrations& MemoryMap::registrations() const { return gpus_.registrations(); }

CUuuid MemoryMap::uuid(uint32_t gpu) const { return gpus_[gpu].uuid; }

bool MemoryMap::peers(uint32_t one, uint32_t other) const {
  int can = 0;
  return driver_.cuDeviceCanAccessPeer(&can, gpus_[one].device, gpus_[other].device) ==
             CUDA_SUCCESS &&
         can != 0;
}

CUresult MemoryMap::allocate_ahead(uint32_t window, uint64_t session, int device, uint64_t bytes,
                                   MemoryAccount& account, Placed* placed) {
  bytes = in_blocks(device, bytes);
  const PromisedMemory::Making making(promised_, device, bytes);
  MemoryCharge charge;
  if (!account.charge_ahead(device, bytes, &charge)) return CUDA_ERROR_OUT_OF_MEMORY;
  return allocate_charged(window, session, device, bytes, std::move(charge), placed);
}

uint64_t MemoryMap::in_blocks(int device, uint64_t bytes) const {
  const uint64_t granularity = gpus_[static_cast<uint32_t>(device)].granularity;
  return (bytes + granularity - 1) / granularity * granularity;
}

CUresult MemoryMap::create_handle(int device, uint64_t bytes,
                                  CUmemGenericAllocationHandle* handle) const {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = gpus_[static_cast<uint32_t>(device)].device;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return driver_.cuMemCreate(handle, bytes, &prop, 0);
}

CUresult MemoryMap::allocate_charged(uint32_t window, uint64_t session, int device, uint64_t bytes,
                                     MemoryCharge charge, Placed* placed) {
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = create_handle(device, bytes, &handle); error != CUDA_SUCCESS) return error;
  return adopt(handle, session, BlockPlace{0, bytes, device, window}, std::move(charge), placed);
}

CUresult MemoryMap::create(const CUmemAllocationProp& prop, uint64_t bytes, uint64_t flags,
                           MemoryAccount& account, BlockId* block) {
  const PromisedMemory::Making making(promised_, prop.location.id, bytes);
  MemoryCharge charge;
  if (CUresult error = account.charge(prop.location.id, bytes, &charge, true);
      error != CUDA_SUCCESS)
    return error;
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = driver_.cuMemCreate(&handle, bytes, &prop, flags); error != CUDA_SUCCESS)
    return error;
  std::lock_guard lock(mutex_);
  *block = enter(handle, BlockPlace{0, bytes, prop.location.id, 0}, std::move(charge));
  return CUDA_SUCCESS;
}

namespace {
CUresult import_handle(const Driver& driver, int fd, CUmemGenericAllocationHandle* handle) {
  return driver.cuMemImportFromShareableHandle(handle,
                                               reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
}  // namespace

CUresult MemoryMap::import_placed(uint32_t window, uint64_t session, int device, int fd,
                                  uint64_t bytes, Placed* placed) {
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = import_handle(driver_, fd, &handle); error != CUDA_SUCCESS) return error;
  return adopt(handle, session, BlockPlace{0, bytes, device, window}, {}, placed);
}

CUresult MemoryMap::import_fd(int fd, BlockId* block) {
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = import_handle(driver_, fd, &handle); error != CUDA_SUCCESS) return error;
  std::lock_guard lock(mutex_);
  *block = enter(handle, BlockPlace{}, {});
  if (Block* made = live(*block); made != nullptr) made->shared = true;
  return CUDA_SUCCESS;
}

// ---- mappings beside a block's own address -----------------------------------------------------

CUresult MemoryMap::place(BlockId block, uint32_t window, uint64_t session, uint64_t* address) {
  CUmemGenericAllocationHandle handle = 0;
  BlockPlace place;
  if (CUresult error = take_handle(block, &handle, &place); error != CUDA_SUCCESS) return error;
  place.window = window;
  const CUresult error = place.bytes == 0 || place.device < 0
                             ? CUDA_ERROR_INVALID_VALUE
                             : place_handle(handle, session, &place);
  if (error != CUDA_SUCCESS) {
    release(block);
    return error;
  }
  std::lock_guard lock(mutex_);
  mappings_[place.address] = Second{block, place.bytes, window};
  *address = place.address;
  return CUDA_SUCCESS;
}

CUresult MemoryMap::map(BlockId block, uint64_t address, uint64_t bytes, uint64_t offset,
                        uint64_t flags) {
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = take_handle(block, &handle, nullptr); error != CUDA_SUCCESS) return error;
  const CUresult error = driver_.cuMemMap(address, bytes, offset, handle, flags);
  if (error != CUDA_SUCCESS) {
    release(block);
    return error;
  }
  Second before;  // none: the driver refuses to map over a mapping
  {
    std::lock_guard lock(mutex_);
    before = std::exchange(mappings_[address], Second{block, bytes, std::nullopt});
  }
  release(before.block);
  return CUDA_SUCCESS;
}

CUresult MemoryMap::set_access(uint64_t address, uint64_t bytes,
                               std::span<const CUmemAccessDesc> access) {
  return driver_.cuMemSetAccess(address, bytes, access.data(), access.size());
}

bool MemoryMap::end_mapping(uint64_t address, bool address_is_free) {
  Second gone;
  {
    std::lock_guard lock(mutex_);
    const auto found = mappings_.find(address);
    if (found == mappings_.end()) return false;
    gone = found->second;
    mappings_.erase(found);
    if (gone.window.has_value()) {
      regions_.erase(address);
      if (address_is_free) windows_[*gone.window].device.free(address, gone.bytes);
    }
  }
  release(gone.block);
  return true;
}

CUresult MemoryMap::unmap(uint64_t address) {
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = mappings_.find(address);
    if (found == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
    bytes = found->second.bytes;
  }
  const CUresult error = driver_.cuMemUnmap(address, bytes);
  if (error == CUDA_SUCCESS) end_mapping(address, true);
  return error;
}

void MemoryMap::drop_mapping(uint64_t address) {
  const CUresult error = unmap(address);
  if (error == CUDA_SUCCESS || !end_mapping(address, false)) return;
  log_warn("device memory at 0x%lx stays mapped: %s", address, result_text(driver_, error).c_str());
}

CUresult MemoryMap::map_arrays(std::span<CUarrayMapInfo> list, std::span<const BlockId> blocks,
                               CUstream stream) {
  std::vector<BlockId> taken;
  CUresult error = CUDA_SUCCESS;
  for (size_t i = 0; i < list.size() && error == CUDA_SUCCESS; ++i) {
    list[i].memHandle.memHandle = 0;
    if (blocks[i] == BlockId::kNone) continue;
    error = take_handle(blocks[i], &list[i].memHandle.memHandle, nullptr);
    if (error == CUDA_SUCCESS) taken.push_back(blocks[i]);
  }
  if (error == CUDA_SUCCESS)
    error = driver_.cuMemMapArrayAsync(list.data(), static_cast<unsigned>(list.size()), stream);
  for (const BlockId block : taken) release(block);
  return error;
}

// ---- addresses and questions -------------------------------------------------------------------

uint64_t MemoryMap::used_addresses(uint32_t window) const {
  std::lock_guard lock(mutex_);
  return windows_[window].device.used_bytes();
}

uint64_t MemoryMap::reserve(uint32_t window, uint64_t session, uint64_t bytes, uint64_t alignment,
                            uint64_t hint) {
  std::lock_guard lock(mutex_);
  AddressSpace& space = windows_[window].device;
  const uint64_t below = space.base() + policies::reservable_bytes(windows::kDeviceBytes);
  const bool hinted = hint != 0 && (alignment == 0 || hint % alignment == 0) && hint < below &&
                      bytes <= below - hint;
  uint64_t address = 0;
  if (hinted && space.allocate_at(hint, bytes)) address = hint;
  if (address == 0) address = space.allocate(bytes, alignment, below);
  if (address != 0) regions_[address] = Owner{session, address, bytes, -1};
  return address;
}

void MemoryMap::unreserve(uint32_t window, uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  regions_.erase(address);
  windows_[window].device.free(address, bytes);
}

std::optional<BlockPlace> MemoryMap::find(BlockId id) const {
  std::lock_guard lock(mutex_);
  const Block* block = live(id);
  return block == nullptr ? std::nullopt : std::optional(block->place);
}

CUresult MemoryMap::properties(BlockId block, CUmemAllocationProp* prop) {
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = take_handle(block, &handle, nullptr); error != CUDA_SUCCESS) return error;
  const CUresult error = driver_.cuMemGetAllocationPropertiesFromHandle(prop, handle);
  release(block);
  return error;
}

CUresult MemoryMap::export_fd(BlockId block, UniqueFd* fd) {
  CUmemGenericAllocationHandle handle = 0;
  if (CUresult error = take_handle(block, &handle, nullptr); error != CUDA_SUCCESS) return error;
  int raw = -1;
  const CUresult error = driver_.cuMemExportToShareableHandle(
      &raw, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (error == CUDA_SUCCESS) fd->reset(raw);
  {
    std::lock_guard lock(mutex_);
    if (Block* exported = live(block); exported != nullptr) exported->shared = true;
  }
  release(block);
  return error;
}

bool MemoryMap::mapping_is_shared(uint64_t base) const {
  std::lock_guard lock(mutex_);
  const auto found = mappings_.find(base);
  const Block* block = found == mappings_.end() ? nullptr : live(found->second.block);
  return block != nullptr && block->shared;
}

std::optional<Owner> MemoryMap::owner(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto next = regions_.upper_bound(address);
  if (next == regions_.begin()) return std::nullopt;
  const Owner& owner = std::prev(next)->second;
  if (address - owner.base >= owner.bytes) return std::nullopt;
  return owner;
}

uint64_t MemoryMap::reserved_bytes(uint64_t session) const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [address, owner] : regions_)
    if (owner.session == session) bytes += owner.bytes;
  return bytes;
}

uint64_t MemoryMap::used_bytes(int device) const {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const Block& block : blocks_) {
    if (block.references != 0 && block.place.device == device && !block.charge.idle())
      sum += block.place.bytes - block.away_bytes();
  }
  return sum;
}

uint32_t MemoryMap::blocks() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(blocks_.size() - free_slots_.size());
}

uint32_t MemoryMap::regions() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(regions_.size());
}

}  // namespace tube::proxy

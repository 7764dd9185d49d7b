#include "proxy/memory/device_memory.h"

#include "proxy/common/client_limits.h"
#include "proxy/memory/block_offers.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kSlabBytes = abi::kBlockUnit;
constexpr uint64_t kAlignment = abi::kPieceUnit;
}  // namespace

CUresult DeviceMemory::make_block(int device, uint64_t bytes, Placed* placed) {
  return source_ != nullptr ? source_->make(window_, device, bytes, account_, placed)
                            : map_.allocate(window_, session_, device, bytes, account_, placed);
}

void DeviceMemory::release_block(BlockId block) {
  if (source_ != nullptr) source_->ended(block);
  map_.release(block);
}

uint64_t DeviceMemory::place_in_slab(int device, uint64_t bytes, uint64_t* slab_base,
                                     CUresult* error) {
  for (auto& [base, slab] : slabs_) {
    if (slab.device != device || slab.leased) continue;
    if (uint64_t address = slab.space.allocate(bytes); address != 0) {
      *slab_base = base;
      return address;
    }
  }
  Placed placed;
  *error = make_block(device, kSlabBytes, &placed);
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
                                CUdeviceptr* address, uint32_t* offer) {
  if (untrusted_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  collect_lingering();
  if (count() >= limits::kAllocations - abi::kOffers ||  // which may be taken at any time
      untrusted_bytes > limits::kDeviceBytes - bytes())
    return CUDA_ERROR_OUT_OF_MEMORY;
  Range range;
  range.bytes = untrusted_bytes;
  range.device = device;
  range.context = context;
  CUresult error = CUDA_SUCCESS;
  uint32_t number = 0;
  if (untrusted_bytes <= abi::kLargestInSlab)
    range.base = place_in_slab(device, untrusted_bytes, &range.owner, &error);
  else error = allocate_block(range, &number);
  if (error != CUDA_SUCCESS) return error;
  enter(range);
  *address = range.base;
  if (offer != nullptr) *offer = number;
  return CUDA_SUCCESS;
}

CUresult DeviceMemory::allocate_leasing(int device, uint32_t context, uint64_t untrusted_bytes,
                                        CUdeviceptr* address, uint32_t* offer, bool* leased) {
  const CUresult error = allocate(device, context, untrusted_bytes, address, offer);
  if (error != CUDA_SUCCESS || untrusted_bytes > abi::kLargestInSlab || !may_lease()) return error;
  // Only one that has nothing else in it: the client knows of no other piece.
  Slab& slab = slabs_.at(ranges_.at(*address)->owner);
  if (slab.space.used_bytes() != rounded(untrusted_bytes) || *address % abi::kBlockUnit != 0)
    return error;
  set_leased(slab, true);
  *leased = true;
  return error;
}

CUresult DeviceMemory::allocate_block(Range& range, uint32_t* offer) {
  const auto gpu = static_cast<uint32_t>(range.device);
  if (const auto idle = offers_ != nullptr ? offers_->reuse(gpu, range.bytes) : std::nullopt) {
    range.base = idle->address;
    *offer = idle->offer;
    blocks_[range.base] = {idle->block, *offer};
    return CUDA_SUCCESS;
  }
  Placed placed;
  const CUresult error = make_block(range.device, range.bytes, &placed);
  if (error != CUDA_SUCCESS) return error;
  range.base = placed.address;
  if (offers_ != nullptr && (source_ == nullptr || source_->may_offer(placed.block)))
    *offer = offers_->bind(placed.block);
  blocks_[range.base] = {placed.block, *offer};
  return CUDA_SUCCESS;
}

void DeviceMemory::enter(const Range& range) {
  ranges_.insert(range);
  if (source_ != nullptr) source_->given(range.base, range.bytes);
  bytes_.fetch_add(range.bytes, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
}

bool DeviceMemory::take(uint32_t untrusted_offer, int device, uint32_t context,
                        uint64_t untrusted_address, uint64_t untrusted_bytes, bool frees_wait) {
  if (offers_ == nullptr) return false;
  const auto held = offers_->take(untrusted_offer, static_cast<uint32_t>(device), untrusted_address,
                                  untrusted_bytes);
  if (!held) return false;
  if (!held->was_idle) {
    // The record that frees it has yet to come; what it names ends here.
    const Range* before = ranges_.at(held->address);
    if (!frees_wait || before == nullptr || before->kind != RangeKind::kDevice ||
        map_.shares().shared(held->address))
      return false;
    ++taken_again_[held->address];
    forget(Range(*before));
  }
  Range range;
  range.base = held->address;
  range.bytes = untrusted_bytes;
  range.device = device;
  range.context = context;
  blocks_[range.base] = {held->block, held->offer};
  enter(range);
  return true;
}

void DeviceMemory::leave_slab(const Range& range) {
  auto it = slabs_.find(range.owner);
  if (it == slabs_.end()) return;
  it->second.space.free(range.base, range.bytes);
  release_if_spare(it);
}

void DeviceMemory::release_if_spare(std::map<uint64_t, Slab>::iterator slab) {
  if (!slab->second.space.empty() || slab->second.leased) return;
  for (const auto& [base, other] : slabs_) {
    if (base == slab->first || other.device != slab->second.device || !other.space.empty())
      continue;
    release_block(slab->second.block);
    slabs_.erase(slab);
    return;
  }
}

bool DeviceMemory::free_empty_slabs() {
  return std::erase_if(slabs_, [this](const auto& entry) {
           if (!entry.second.space.empty() || entry.second.leased) return false;
           release_block(entry.second.block);
           return true;
         }) != 0;
}

CUresult DeviceMemory::retire(CUdeviceptr untrusted_address) {
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  found->kind = RangeKind::kRetired;
  found->retired_at = ranges_.record();
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
      (void)free(base, RangeKind::kRetired, AtEnd::kReleased);
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
  auto own = blocks_.find(address);
  return own == blocks_.end() ? BlockId::kNone : own->second.block;
}

CUresult DeviceMemory::free(CUdeviceptr untrusted_address, bool untrusted_returns) {
  if (const auto again = taken_again_.find(untrusted_address);
      untrusted_returns && again != taken_again_.end()) {
    if (--again->second == 0) taken_again_.erase(again);
    return CUDA_SUCCESS;
  }
  return free(untrusted_address, RangeKind::kDevice,
              untrusted_returns ? AtEnd::kReturned : AtEnd::kKept);
}

void DeviceMemory::end_block(const Own& own, AtEnd end) {
  if (!map_.has_memory(own.block)) {
    // Nobody needs its bytes. Where the client makes the offer ready, and may have done so, the
    // block stays: what it is taken for then comes back like all that is away, or is backed like
    // all that is promised.
    map_.drop_host_copies(own.block);
    if (end == AtEnd::kKept) end = AtEnd::kReleased;
  }
  if (own.offer == 0 && offers_ != nullptr && end != AtEnd::kReleased && offers_->keep(own.block))
    return;
  if (own.offer != 0) {
    if (end != AtEnd::kReleased && offers_->give_back(own.offer, end == AtEnd::kReturned)) return;
    offers_->unbind(own.offer);
  }
  release_block(own.block);
}

CUresult DeviceMemory::free(CUdeviceptr untrusted_address, RangeKind kind, AtEnd end) {
  collect_lingering();
  Range* found = ranges_.at(untrusted_address);
  if (found == nullptr || found->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  const bool shared = map_.shares().shared(found->base);
  if (shared && keep_for_openers(*found)) return CUDA_SUCCESS;
  const Range range = *found;
  forget(range);
  if (range.owner != 0) {
    leave_slab(range);
    return CUDA_SUCCESS;
  }
  if (auto block = blocks_.find(range.base); block != blocks_.end()) {
    const Own own = block->second;
    blocks_.erase(block);
    end_block(own, shared ? AtEnd::kReleased : end);
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
    (void)free(base, ranges_.at(base)->kind, AtEnd::kReleased);
  }
  if (context != kAllContexts) return;
  while (!slabs_.empty()) {
    const BlockId block = slabs_.begin()->second.block;
    slabs_.erase(slabs_.begin());
    release_block(block);
  }
}

}  // namespace tube::proxy

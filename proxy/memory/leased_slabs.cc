// Slabs that are leased to the client, which cuts pieces out of them by itself
// (hook/memory/slab_leases.h). These books are the proxy's own: a piece is where the client says
// only if that place is free in them.
#include <iterator>

#include "proxy/common/client_limits.h"
#include "proxy/memory/device_memory.h"

namespace tube::proxy {

bool DeviceMemory::may_lease() const {
  return leases_ < abi::kMostLeases &&
         count() < limits::kAllocations - abi::kOffers - abi::kMostPieces;
}

void DeviceMemory::set_leased(Slab& slab, bool leased) {
  slab.leased = leased;
  leases_ += leased ? 1u : ~0u;
}

// What stands in the way of a piece: freed by the client, in records that are still kept back.
bool DeviceMemory::clear_place(Slab& slab, uint64_t base, uint64_t bytes, bool frees_wait) {
  const auto& all = ranges_.all();
  for (auto it = all.lower_bound(base); true; it = all.lower_bound(base)) {
    const bool before = it != all.begin() &&
                        std::prev(it)->second.base + rounded(std::prev(it)->second.bytes) > base;
    if (before) --it;
    if (!before && (it == all.end() || it->first >= base + rounded(bytes))) return true;
    const Range range = it->second;
    if (!frees_wait || range.kind != RangeKind::kDevice || map_.shares().shared(range.base))
      return false;
    ++taken_again_[range.base];
    forget(range);
    slab.space.free(range.base, range.bytes);
  }
}

bool DeviceMemory::cut(int device, uint32_t context, uint64_t untrusted_address,
                       uint64_t untrusted_bytes, bool frees_wait) {
  auto it = slabs_.upper_bound(untrusted_address);
  if (it == slabs_.begin() || untrusted_bytes == 0 || untrusted_bytes > abi::kLargestInSlab)
    return false;
  auto& [base, slab] = *--it;
  const uint64_t offset = untrusted_address - base;
  if (!slab.leased || slab.device != device || offset % abi::kPieceUnit != 0 ||
      offset >= abi::kBlockUnit || untrusted_bytes > abi::kBlockUnit - offset)
    return false;
  if (!clear_place(slab, untrusted_address, untrusted_bytes, frees_wait) ||
      !slab.space.allocate_at(untrusted_address, untrusted_bytes))
    return false;
  Range range;
  range.base = untrusted_address;
  range.bytes = untrusted_bytes;
  range.device = device;
  range.context = context;
  range.owner = base;
  enter(range);
  return true;
}

bool DeviceMemory::end_lease(uint64_t untrusted_slab) {
  const auto it = slabs_.find(untrusted_slab);
  if (it == slabs_.end() || !it->second.leased) return false;
  set_leased(it->second, false);
  release_if_spare(it);
  return true;
}

}  // namespace tube::proxy

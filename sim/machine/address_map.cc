// Ordered map of ranges. A run of adjacent accessible ranges is walked to the right only as far as
// an access needs.
#include "sim/machine/address_map.h"

#include <mutex>

namespace tube::sim {
namespace {

bool allowed(const Range& r, bool write, const Accessor& who) {
  uint64_t bit = 1ull << who.device, owner = 1ull << r.device;
  switch (r.kind) {
    case RangeKind::kDevice:
    case RangeKind::kSymbol:
    case RangeKind::kArray:
    case RangeKind::kImported:
    case RangeKind::kExternal: return who.dma || r.device == who.device || (who.peers & owner) != 0;
    case RangeKind::kPool:
      if (r.freeing)
        return true;  // valid for work ordered before the free; the stream keeps that order
      return who.dma || ((write ? r.writable : r.readable) & bit) != 0;
    case RangeKind::kMapped: {
      uint64_t mask = write ? r.writable : r.readable;
      return (mask & bit) != 0 || (who.dma && r.host_access);
    }
    case RangeKind::kManaged:
    case RangeKind::kHost:
    case RangeKind::kRegistered: return true;
  }
  return false;
}

// A copy engine's work is checked against what was asked for, of an allocation of any kind (H200,
// 13.0), a kernel's against what is there.
uint64_t end_for(const Range& r, const Accessor& who) {
  const bool allocated = r.kind == RangeKind::kDevice || r.kind == RangeKind::kPool ||
                         r.kind == RangeKind::kManaged || r.kind == RangeKind::kHost;
  return who.dma && allocated ? r.base + r.requested : r.end();
}

}  // namespace

Range* AddressMap::at(uint64_t address) {
  return const_cast<Range*>(static_cast<const AddressMap*>(this)->at(address));
}

const Range* AddressMap::at(uint64_t address) const {
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return nullptr;
  --it;
  return address < it->second.end() ? &it->second : nullptr;
}

bool AddressMap::insert(Range range) {
  std::unique_lock lock(mutex_);
  auto next = ranges_.lower_bound(range.base);
  if (next != ranges_.end() && next->first < range.end()) return false;
  if (next != ranges_.begin() && std::prev(next)->second.end() > range.base) return false;
  uint64_t base = range.base;
  ranges_.emplace(base, std::move(range));
  return true;
}

std::optional<Range> AddressMap::remove(uint64_t base) {
  std::unique_lock lock(mutex_);
  auto it = ranges_.find(base);
  if (it == ranges_.end()) return std::nullopt;
  Range gone = std::move(it->second);
  ranges_.erase(it);
  return gone;
}

std::optional<Range> AddressMap::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const Range* range = at(address);
  if (range == nullptr) return std::nullopt;
  return *range;
}

std::vector<Range> AddressMap::intersecting(uint64_t address, uint64_t size) const {
  std::shared_lock lock(mutex_);
  std::vector<Range> found;
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin() && std::prev(it)->second.end() > address) --it;
  for (; it != ranges_.end() && (it->first <= address || it->first - address < size); ++it)
    found.push_back(it->second);
  return found;
}

bool AddressMap::accessible(uint64_t address, uint64_t size, bool write, const Accessor& who,
                            uint64_t* begin, uint64_t* end) const {
  std::shared_lock lock(mutex_);
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return false;
  --it;
  if (address >= end_for(it->second, who) || !allowed(it->second, write, who)) return false;
  *begin = it->first;
  *end = end_for(it->second, who);
  if (size > UINT64_MAX - address) return false;
  while (*end < address + size) {
    const Range& before = it->second;
    ++it;
    if (it == ranges_.end() || it->first != *end || !allowed(it->second, write, who)) return false;
    // A copy may span mappings of one reservation, but not two allocations that happen to be
    // neighbours.
    if (who.dma && (before.kind != it->second.kind || before.kind != RangeKind::kMapped))
      return false;
    *end = it->second.end();
  }
  return true;
}

}  // namespace tube::sim

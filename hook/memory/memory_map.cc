#include "hook/memory/memory_map.h"

#include <iterator>

namespace tube::hook {

MemoryMap& memory_map() {
  static MemoryMap* map = new MemoryMap;  // leaked: calls arrive until the very end
  return *map;
}

namespace {
bool lies_outside(MemoryKind kind) {
  return kind == MemoryKind::kGlobal || kind == MemoryKind::kOpened ||
         kind == MemoryKind::kRegistered || kind == MemoryKind::kGraph ||
         kind == MemoryKind::kExternal;
}
}  // namespace

void MemoryMap::insert(const Allocation& allocation) {
  Locked locked(lock_);
  const auto [it, fresh] = by_base_.insert_or_assign(allocation.base, allocation);
  if (fresh && lies_outside(it->second.kind)) outside_.fetch_add(1, std::memory_order_release);
}

bool MemoryMap::remove(uint64_t base, MemoryKind kind, Allocation* removed) {
  Locked locked(lock_);
  const auto it = by_base_.find(base);
  if (it == by_base_.end() || it->second.kind != kind) return false;
  *removed = it->second;
  by_base_.erase(it);
  if (lies_outside(kind)) outside_.fetch_sub(1, std::memory_order_release);
  return true;
}

bool MemoryMap::overlaps(uint64_t base, uint64_t bytes, MemoryKind* kind) const {
  Locked locked(lock_);
  auto it = by_base_.upper_bound(base + bytes - 1);
  if (it == by_base_.begin()) return false;
  --it;
  if (it->first < base && base - it->first >= it->second.size_bytes) return false;
  *kind = it->second.kind;
  return true;
}

bool MemoryMap::outside_windows(uint64_t address, MemoryKind* kind) const {
  Allocation a;
  if (outside_.load(std::memory_order_acquire) == 0 || !find(address, &a) || !lies_outside(a.kind))
    return false;
  *kind = a.kind;
  return true;
}

bool MemoryMap::set_sync_memops(uint64_t address, bool on) {
  Locked locked(lock_);
  auto it = by_base_.upper_bound(address);
  if (it == by_base_.begin() || address - std::prev(it)->first >= std::prev(it)->second.size_bytes)
    return false;
  std::prev(it)->second.sync_memops = on;
  if (on) any_sync_.store(true, std::memory_order_release);
  return true;
}

bool MemoryMap::sync_memops(uint64_t address) const {
  Allocation a;
  return any_sync_.load(std::memory_order_acquire) && find(address, &a) && a.sync_memops;
}

bool MemoryMap::forget_offer(uint64_t base) {
  Locked locked(lock_);
  const auto it = by_base_.find(base);
  if (it == by_base_.end()) return false;
  it->second.offer = 0;
  return true;
}

void MemoryMap::set_own_device(uint64_t base, int32_t device) {
  Locked locked(lock_);
  const auto it = by_base_.find(base);
  if (it != by_base_.end() && it->second.kind == MemoryKind::kMapped)
    it->second.own_device = device;
}

std::vector<uint64_t> MemoryMap::bases_of(const Context* context, MemoryKind kind) const {
  std::vector<uint64_t> bases;
  Locked locked(lock_);
  for (const auto& [base, a] : by_base_) {
    if (a.context == context && a.kind == kind) bases.push_back(base);
  }
  return bases;
}

bool MemoryMap::find(uint64_t address, Allocation* found) const {
  Locked locked(lock_);
  auto it = by_base_.upper_bound(address);
  if (it == by_base_.begin()) return false;
  --it;
  if (address - it->first >= it->second.size_bytes) return false;
  *found = it->second;
  return true;
}

void MemoryMap::forget_context(const Context* context) {
  Locked locked(lock_);
  std::erase_if(by_base_, [this, context](const auto& entry) {
    // Variables and graphs' memory go with their owner, registered memory has pages to give back
    // (forget_registrations), mappings stay until they are unmapped.
    const bool goes = entry.second.context == context && entry.second.kind != MemoryKind::kGlobal &&
                      entry.second.kind != MemoryKind::kRegistered &&
                      entry.second.kind != MemoryKind::kMapped &&
                      entry.second.kind != MemoryKind::kGraph;
    if (goes && lies_outside(entry.second.kind)) outside_.fetch_sub(1, std::memory_order_release);
    return goes;
  });
}

}  // namespace tube::hook

#include "hook/memory_map.h"

namespace tube::hook {

MemoryMap& memory_map() {
  static MemoryMap* map = new MemoryMap;  // leaked: calls arrive until the very end
  return *map;
}

void MemoryMap::insert(const Allocation& allocation) {
  Locked locked(lock_);
  const auto [it, fresh] = by_base_.insert_or_assign(allocation.base, allocation);
  if (fresh && it->second.kind == MemoryKind::kGlobal) globals_.fetch_add(1, std::memory_order_release);
}

bool MemoryMap::remove(uint64_t base, MemoryKind kind, Allocation* removed) {
  Locked locked(lock_);
  const auto it = by_base_.find(base);
  if (it == by_base_.end() || it->second.kind != kind) return false;
  *removed = it->second;
  by_base_.erase(it);
  if (kind == MemoryKind::kGlobal) globals_.fetch_sub(1, std::memory_order_release);
  return true;
}

bool MemoryMap::is_global(uint64_t address) const {
  Allocation a;
  return globals_.load(std::memory_order_acquire) != 0 && find(address, &a) && a.kind == MemoryKind::kGlobal;
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
  std::erase_if(by_base_, [context](const auto& entry) {
    return entry.second.context == context && entry.second.kind != MemoryKind::kGlobal;  // those go with their module
  });
}

}  // namespace tube::hook

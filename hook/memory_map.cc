#include "hook/memory_map.h"

namespace tube::hook {

MemoryMap& memory_map() {
  static MemoryMap* map = new MemoryMap;  // leaked: calls arrive until the very end
  return *map;
}

void MemoryMap::insert(const Allocation& allocation) {
  Locked locked(lock_);
  by_base_[allocation.base] = allocation;
}

bool MemoryMap::remove(uint64_t base, MemoryKind kind, Allocation* removed) {
  Locked locked(lock_);
  const auto it = by_base_.find(base);
  if (it == by_base_.end() || it->second.kind != kind) return false;
  *removed = it->second;
  by_base_.erase(it);
  return true;
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
  std::erase_if(by_base_, [context](const auto& entry) { return entry.second.context == context; });
}

}  // namespace tube::hook

// What this program allocated: address -> allocation, for pointer queries and for checks before a copy.
//
// Reads take a short lock; an address in a window is classified as device or pinned without a look here, because the
// windows are fixed (Connection::in_device_window). Any other address is a module variable's or pageable.
#pragma once

#include <cstdint>
#include <map>

#include "hook/lock.h"

namespace tube::hook {

struct Context;

// kGlobal: a module variable. The driver chose its address, outside the windows, so only this map knows that it is the GPU's.
enum class MemoryKind : uint32_t { kDevice, kPinned, kGlobal };

struct Allocation {
  uint64_t base = 0;
  uint64_t size_bytes = 0;
  uint64_t buffer_id = 0;  // unique per allocation
  Context* context = nullptr;
  MemoryKind kind = MemoryKind::kDevice;
  uint32_t flags = 0;      // of cuMemHostAlloc
};

class MemoryMap {
 public:
  void insert(const Allocation& allocation);
  // Whole allocations only, by their first address. False: none starts there.
  bool remove(uint64_t base, MemoryKind kind, Allocation* removed);
  bool find(uint64_t address, Allocation* found) const;
  // Everything of a context that was reset or destroyed.
  void forget_context(const Context* context);

 private:
  mutable Lock lock_;  // rank 3
  std::map<uint64_t, Allocation> by_base_;
};

MemoryMap& memory_map();

}  // namespace tube::hook

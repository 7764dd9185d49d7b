// The owner of each simulated device address, and the GPUs that may touch it.
//
// A device address is a host address of this process (so a copy engine is memcpy), but only ranges
// entered here are device memory: everything else faults a kernel and fails a copy. Ranges never
// overlap. Lookup is a binary search in an ordered map; the PTX interpreter caches what it gets
// back. Own lock, taken last (rank below State::mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "base/cuda_api.h"

namespace tube::sim {

struct Context;
struct Pool;
struct Physical;

enum class RangeKind : uint8_t {
  kDevice,  // cuMemAlloc
  kSymbol,  // a module's variable
  kPool,    // cuMemAllocAsync
  kManaged,
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kMapped,      // cuMemMap
  kArray,
  kImported,  // cuIpcOpenMemHandle
  kExternal,  // mapped external memory: a buffer, or the levels of an array
};

struct Range {
  uint64_t base = 0;
  uint64_t size = 0;       // as mapped, rounded up
  uint64_t requested = 0;  // as asked for
  RangeKind kind = RangeKind::kDevice;
  int device = 0;
  Context* context = nullptr;  // null for memory that belongs to no context
  uint64_t id = 0;             // CU_POINTER_ATTRIBUTE_BUFFER_ID
  uint64_t readable = 0;       // kMapped, kPool: bit per device
  uint64_t writable = 0;
  bool host_access = false;  // kMapped: cuMemSetAccess with a host location
  unsigned host_flags = 0;   // kHost, kRegistered
  bool sync_memops = false;
  bool of_module = false;  // kManaged: a module's variable, which ends with it
  bool direct = false;     // own mapping, not out of the arena
  bool freeing = false;    // kPool: cuMemFreeAsync was called
  Pool* pool = nullptr;
  std::shared_ptr<Physical> physical;  // kMapped
  uint64_t physical_offset = 0;
  // kImported, kExternal: how such memory ends, once the range is gone from the map. With the lock
  // held; its context is idle.
  void (*release)(const Range&) = nullptr;

  uint64_t end() const { return base + size; }
  bool is_host() const { return kind == RangeKind::kHost || kind == RangeKind::kRegistered; }
};

// A device or context as the accessor of memory.
struct Accessor {
  int device = 0;
  uint64_t peers = 0;  // devices whose cuMemAlloc memory it has enabled
  bool dma = false;    // copy engines reach every device's memory
};

class AddressMap {
 public:
  // False when it would overlap.
  bool insert(Range range);
  // The range that was removed; `base` must be its first byte.
  std::optional<Range> remove(uint64_t base);
  // Copy of the range that holds the address.
  std::optional<Range> find(uint64_t address) const;
  // All ranges that intersect [address, address+size).
  std::vector<Range> intersecting(uint64_t address, uint64_t size) const;
  // Applies `change` to the range that holds the address; false when there is none.
  template <typename F>
  bool update(uint64_t address, F change) {
    std::unique_lock lock(mutex_);
    Range* range = at(address);
    if (range == nullptr) return false;
    change(*range);
    return true;
  }
  // Is every byte accessible? Adjacent ranges count as one (for copy engines: only mapped ones). On
  // success *begin, *end span the accessible run.
  bool accessible(uint64_t address, uint64_t size, bool write, const Accessor& who, uint64_t* begin,
                  uint64_t* end) const;
  template <typename F>
  void for_each(F change) {
    std::unique_lock lock(mutex_);
    for (auto& [base, range] : ranges_) change(range);
  }
  // Removes every range for which `match` is true and returns them.
  template <typename F>
  std::vector<Range> remove_if(F match) {
    std::unique_lock lock(mutex_);
    std::vector<Range> gone;
    for (auto it = ranges_.begin(); it != ranges_.end();) {
      if (!match(it->second)) {
        ++it;
        continue;
      }
      gone.push_back(it->second);
      it = ranges_.erase(it);
    }
    return gone;
  }

 private:
  Range* at(uint64_t address);
  const Range* at(uint64_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
};

}  // namespace tube::sim

// What this program allocated: address -> allocation, for pointer queries and for checks before a
// copy.
//
// Reads take a short lock; an address in a window is device or pinned memory without a look here,
// because the windows are fixed (Connection::in_device_window); any other one is a module's
// variable, registered host memory or pageable.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "base/cuda_api.h"
#include "hook/process/lock.h"

namespace tube::hook {

struct Context;

enum class MemoryKind : uint32_t {
  kDevice,
  kPinned,
  kMapped,  // by cuMemMap: access rights are the program's business, so a copy there may fail
            // (own_device)
  kGlobal,  // a module's variable: the driver placed it, outside the windows
  kOpened,  // another process's, by cuIpcOpenMemHandle; a native program's lies outside the windows
  kManaged,     // cuMemAllocManaged: pinned memory by another name
  kRegistered,  // cuMemHostRegister: the program's own memory, outside the windows
  kGraph,       // of a graph's allocation node: the driver placed it, outside the windows
                // (graph_memory.h)
  kExternal,    // of another API, mapped: the driver placed it, outside the windows
                // (calls/external_objects.cc)
};

inline constexpr uint32_t kFromPool = 1u << 31;  // kDevice: allocated in stream order
inline constexpr uint32_t kVariable =
    1u << 30;  // kManaged: a module's __managed__ variable, which ends with it

struct Allocation {
  uint64_t base = 0;
  uint64_t size_bytes = 0;
  uint64_t buffer_id = 0;  // unique per allocation
  Context* context = nullptr;
  MemoryKind kind = MemoryKind::kDevice;
  uint32_t flags = 0;           // of cuMemHostAlloc; kFromPool, kVariable
  CUmemoryPool pool = nullptr;  // kFromPool: its handle, which may be gone
  bool sync_memops = false;     // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  int32_t own_device = -1;  // kMapped: the GPU (proxy's ordinal) whose memory it is and that may
                            // read and write it; -1: none is known to
  uint32_t offer = 0;       // kDevice: of the offer that its block is bound to (sharedmem/offers.h)
  uint64_t offer_generation = 0;
};

class MemoryMap {
 public:
  void insert(const Allocation& allocation);
  // Whole allocations only, by their first address. False: none starts there.
  bool remove(uint64_t base, MemoryKind kind, Allocation* removed);
  bool find(uint64_t address, Allocation* found) const;
  // Does any allocation touch [base, base + bytes)? The last one that does.
  bool overlaps(uint64_t base, uint64_t bytes, MemoryKind* kind) const;
  // Is it of a kind that may lie outside the windows, and which? Costs one load while the program
  // has none.
  bool outside_windows(uint64_t address, MemoryKind* kind) const;
  // The bases of the allocations of `kind` that `context` owns.
  std::vector<uint64_t> bases_of(const Context* context, MemoryKind kind) const;
  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the allocation that holds the address. False: there is
  // none.
  bool set_sync_memops(uint64_t address, bool on);
  // Shall synchronous operations on it always wait? One load while no memory is such.
  bool sync_memops(uint64_t address) const;
  // The block goes on to other processes: the proxy says what becomes of it when it is freed.
  // False: no allocation begins there.
  bool forget_offer(uint64_t base);
  // Allocation::own_device of the mapping that begins at `base`.
  void set_own_device(uint64_t base, int32_t device);
  // Everything of a context that was reset or destroyed; mappings belong to none.
  void forget_context(const Context* context);

 private:
  mutable Lock lock_;  // rank 3, innermost of that rank
  std::map<uint64_t, Allocation> by_base_;
  std::atomic<bool> any_sync_{false};  // ever
  std::atomic<uint32_t> outside_{0};   // kGlobal, kOpened, kRegistered, kGraph, kExternal
};

MemoryMap& memory_map();

}  // namespace tube::hook

// Where the bytes of the store's objects are: GPU memory of the memory map, and the store's slot of
// pinned memory (sharedmem/windows.h), which all functions map.
//
// GPU memory belongs to the store and is charged to an account of its own, so that an object may
// outlive the function that made it; the workflow's limits count it, the limits of functions are
// checked by the store (store.h). An object of up to 1 MiB takes a piece of a slab of 2 MiB, a
// larger one a block. A block that is given back is kept idle for the next object of its size: all
// functions of the workflow could have read what is in it, so nothing clears it. Idle blocks count
// as free, are bounded like those of the pool (block_pool.h), and go back before any request fails
// and when the last client of the store leaves.
//
// Any thread. `mutex_` (rank 19) is not held across driver calls; `making_` (rank 18) is held while
// pinned memory is made.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/block.h"
#include "proxy/memory/memory_budgets.h"
#include "proxy/memory/pinned_pool.h"

namespace tube::proxy {

struct Driver;
class HostBudget;
class MemoryMap;

// What holds the bytes of an object.
struct StorePiece {
  uint64_t address = 0;  // 0: nothing
  uint64_t bytes = 0;    // that are taken
  int device = -1;       // -1: pinned memory
  uint32_t window = 0;
  BlockId block = BlockId::kNone;  // kNone: a piece of a slab, or pinned memory
  uint64_t lease = 0;     // not 0: of another workflow's object; its number (store_exchange.h)
  bool consumed = false;  // of that: it has served those that had it
};

class StoreMemory {
 public:
  // `idle_bytes`: of a GPU, how much may be kept idle.
  StoreMemory(const Driver& driver, MemoryMap& map,
              std::function<uint64_t(uint32_t gpu)> idle_bytes);
  ~StoreMemory();
  StoreMemory(const StoreMemory&) = delete;
  StoreMemory& operator=(const StoreMemory&) = delete;
  // Of the pinned memory that is made from now on; outlives this.
  void count_in(HostBudget* host) { host_budget_ = host; }

  // GPU memory, in the current context. CUDA_ERROR_OUT_OF_MEMORY.
  CUresult take(uint32_t window, int device, uint64_t bytes, StorePiece* piece);
  // Pinned memory: the first caller's window is where all of it is. CUDA_ERROR_NOT_SUPPORTED in
  // another one. Makes more when there is none, which takes as long as registering it does.
  CUresult take_host(uint32_t window, uint64_t bytes, StorePiece* piece);
  // The GPU is done with it.
  void give(const StorePiece& piece);
  // Idle blocks of a GPU go back to the driver; all of them with kAllGpus. False: there was none.
  static constexpr int kAllGpus = -1;
  bool give_idle_back(int gpu);
  // The file of pinned memory for a client of that window; -1: it has none there.
  int host_fd(uint32_t window);
  // Of GPU memory.
  BlockId block_of(const StorePiece& piece) const;

  uint64_t idle_bytes() const;
  uint64_t host_held_bytes() const;

 private:
  struct Slab {
    BlockId block = BlockId::kNone;
    int device = 0;
    uint32_t window = 0;
    AddressSpace space;
  };
  struct Idle {
    BlockId block;
    uint64_t address;
  };
  using Size = std::tuple<int, uint32_t, uint64_t>;  // device, window, bytes

  CUresult take_block(uint32_t window, int device, uint64_t bytes, StorePiece* piece);
  bool take_piece(uint32_t window, int device, uint64_t bytes, StorePiece* piece);
  bool has_other_empty(const Slab& slab) const;
  Status open_host(uint32_t window);
  CUresult make_host(uint64_t bytes, uint64_t* address);

  const Driver& driver_;
  MemoryMap& map_;
  const std::function<uint64_t(uint32_t)> idle_allowed_;
  const std::shared_ptr<MemoryAccount> account_;
  HostBudget* host_budget_ = nullptr;  // nullptr: nobody counts (unit tests)
  std::mutex making_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Slab> slabs_;  // by base
  std::multimap<Size, Idle> idle_;
  std::map<int, uint64_t> idle_bytes_;  // by device
  std::shared_ptr<PinnedPool> host_;
};

}  // namespace tube::proxy

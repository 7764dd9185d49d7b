// One client's pinned host memory: what it has allocated in the pool of its slot (pinned_pool.h).
//
// A request takes free memory of the pool; only where none fits, a block of its size is made, which
// takes as long as natively (pages, registration). Requests of up to 64 KiB share 2 MiB. Session
// thread only, but for bytes().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "base/cuda_api.h"
#include "base/result.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/pinned_pool.h"
#include "proxy/memory/ranges.h"

namespace tube::proxy {

struct Driver;
class PinnedPools;
struct Stats;

class PinnedSlot {
 public:
  // `pools`: nullptr: nothing is made ahead, and freed memory stays for as long as the client
  // (unit tests).
  PinnedSlot(const Driver& driver, Ranges& ranges, PinnedPools* pools, Stats& stats);
  ~PinnedSlot();
  PinnedSlot(const PinnedSlot&) = delete;
  PinnedSlot& operator=(const PinnedSlot&) = delete;

  // `ready`: what another client left in that slot; nullptr: a new pool.
  Status open(uint64_t owner, uint32_t window, uint32_t client_slot,
              std::shared_ptr<PinnedPool> ready);
  int fd() const { return pool_ != nullptr ? pool_->fd() : -1; }
  // The client has attached: its lock on the pool's file is looked at.
  void look();

  CUresult allocate(uint32_t context, uint64_t untrusted_bytes, uint64_t* address);
  CUresult free(uint64_t untrusted_address);
  void free_all(uint32_t context);
  // Unregisters and unmaps everything.
  void close();
  // The same but for what must be unregistered: the pool then is the caller's, to be used by
  // another client (`reusable`) or ended. nullptr when nothing is left.
  std::shared_ptr<PinnedPool> retire(bool reusable);

  // Leaves everything as it is for good: the GPU may still use it.
  void abandon();

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  CUresult take(uint64_t bytes, uint64_t* address);
  CUresult make(uint64_t bytes, uint64_t* address);
  CUresult take_shared(uint64_t bytes, Range* range);
  void give(uint64_t address, uint64_t bytes);
  void forget_ranges();

  const Driver& driver_;
  Ranges& ranges_;
  PinnedPools* const pools_;
  Stats& stats_;
  std::shared_ptr<PinnedPool> pool_;
  std::map<uint64_t, AddressSpace> shared_blocks_;  // 2 MiB that small requests share
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace tube::proxy

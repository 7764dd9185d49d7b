// The memory of one client slot: a sparse memory file at the same address in the proxy and in the
// client, parts of which (blocks) have pages and are registered with the driver.
//
// A block is made for a request that finds nothing, or ahead of requests on the pools' thread
// (pinned_pools.h): first its pages, which takes nearly all of the time and disturbs nobody, then
// the registration, which all functions stand still for, in a moment when nobody minds, or by the
// request that wants it first. It is given back to the driver by the janitor alone, because
// unregistering makes all functions stand still (docs/decisions/0009-context-gate.md); until then
// it serves requests.
//
// When its client has left, the pool serves the next one as it is, but not before two things: no
// process maps the file any more (a forked child may outlive the client), and all bytes are zero.
// The client could write anywhere in the file, so what lies outside of blocks is cut out of it.
//
// Locks: `mutex_` (rank 16). Any thread where nothing else is said.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policies/memory/pinned_pool.h"
#include "proxy/gpu/registrations.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/pinned_blocks.h"
#include "sharedmem/life_lock.h"

namespace tube::proxy {

struct Driver;
class HostBudget;

class PinnedPool {
 public:
  // Makes the file and maps it over the window's reservation. `host` counts its pages.
  static Result<std::shared_ptr<PinnedPool>> open(const Driver& driver, uint32_t window,
                                                  uint32_t client_slot, HostBudget* host = nullptr,
                                                  Registrations* registrations = nullptr);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  int fd() const { return fd_.get(); }
  uint32_t window() const { return window_; }

  // ---- the client's session
  // Makes no system call. 0: no block has room.
  uint64_t take(uint64_t bytes);
  // A block of that size (whole pages) with pages and registered, in the current context, for the
  // caller, whose it is as if take() had given it.
  CUresult make(uint64_t bytes, uint64_t* taken);
  // The same when a block that is registered first has room: the smallest one with pages, or the
  // one that the pools' thread registers at this moment. 0: there is none, or the driver refuses.
  uint64_t take_registering(uint64_t bytes);
  void give(uint64_t address, uint64_t bytes);
  // Looks whether the client has its lock on the file; without, the pool serves no other client.
  void look();
  // The client is gone and the GPU no longer works with its memory.
  void leave(bool reusable, uint64_t now_ns);
  // Everything stays as it is for good: the GPU may still use it.
  void abandon();

  // ---- the pools' thread
  // A block with pages, not registered yet.
  CUresult touch(uint64_t bytes);
  // Registers such a block of that size when its moment has come (registrations.h), for `owner`, a
  // session that has not asked for it. Until then the block is a request's that does.
  enum class Ahead : uint8_t { kMade, kNotWanted, kRefused };
  Ahead register_ahead(uint64_t bytes, uint64_t owner);
  // Blocks with pages that are not registered: of them all, and the largest of at most `bytes`.
  uint64_t touched_bytes() const { return touched_bytes_.load(std::memory_order_relaxed); }
  uint64_t largest_touched(uint64_t bytes) const;

  // ---- between two clients
  // Waits until no process maps the file, then makes all bytes zero. False: not now.
  bool wipe();
  bool ready() const;
  bool reusable() const;
  bool empty() const;  // nothing registered, nothing on its way
  // For the next client. Precondition: ready().
  void begin();
  uint64_t left_ns() const;  // when leave() was called; 0: a client is there

  // ---- the end
  // Nothing new begins; waits for what is being made or wiped.
  void settle();
  // In the current context: gives everything back, the slot becomes a plain reservation again. May
  // wait for the whole context.
  void close();
  // The janitor's, inside the gate: unregisters blocks that nobody uses, until they are `bytes`.
  void unregister_idle(uint64_t bytes);
  // Behind it, outside: their pages and addresses.
  void release_unregistered();

  uint64_t idle_bytes() const { return idle_bytes_.load(std::memory_order_relaxed); }
  // Of blocks that are wholly idle: what the janitor could take.
  uint64_t returnable_bytes() const { return returnable_bytes_.load(std::memory_order_relaxed); }
  // The janitor has taken them, their pages and addresses are not free yet.
  uint64_t leaving_bytes() const { return leaving_bytes_.load(std::memory_order_relaxed); }
  uint64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  uint64_t largest_run_bytes() const { return largest_run_.load(std::memory_order_relaxed); }

  // ---- the pools' own, under their lock
  policies::PinnedDemand demand;
  uint64_t owner = 0;   // the session
  bool failed = false;  // memory has run out: nothing is made ahead before somebody asks

 private:
  enum class Use : uint32_t { kClient, kLeft, kReady, kEnding };

  PinnedPool(const Driver& driver, uint32_t window, uint64_t base, UniqueFd fd, HostBudget* host,
             Registrations* registrations);
  using Fill = std::function<CUresult(uint64_t address)>;
  using Keep = std::function<void(uint64_t address)>;
  CUresult with_place(uint64_t bytes, const Fill& fill, const Keep& keep);
  CUresult populate(uint64_t address, uint64_t bytes);
  CUresult register_now(uint64_t address, uint64_t bytes);
  bool end_registration(uint64_t address, uint64_t bytes, CUresult error);
  bool punch(uint64_t address, uint64_t bytes);
  void unregister(uint64_t address);
  void publish();
  std::vector<PinnedBlocks::Block> all_blocks() const;
  bool zero(const std::vector<PinnedBlocks::Block>& blocks);
  void finish_work();

  const Driver& driver_;
  HostBudget* const host_;
  Registrations* const registrations_;
  const uint32_t window_;
  mutable std::mutex mutex_;  // rank 16: the members below, up to the atomics
  std::condition_variable worked_;
  UniqueFd fd_;    // closed when the pool is to end: the mapping keeps the memory
  uint64_t base_;  // 0: closed or abandoned
  AddressSpace space_;
  PinnedBlocks blocks_;
  std::set<std::pair<uint64_t, uint64_t>> touched_;  // bytes, address
  uint64_t in_hand_bytes_ = 0;  // of the block that the pools' thread registers; 0: none
  std::vector<PinnedBlocks::Block> unregistered_;
  std::optional<shared::LifeWatch> watch_;
  Use use_ = Use::kClient;
  bool wiping_ = false;
  uint32_t working_ = 0;  // threads that make or wipe, without the lock
  uint64_t left_ns_ = 0;
  std::atomic<uint64_t> idle_bytes_{0};
  std::atomic<uint64_t> returnable_bytes_{0};
  std::atomic<uint64_t> leaving_bytes_{0};
  std::atomic<uint64_t> touched_bytes_{0};
  std::atomic<uint64_t> held_bytes_{0};
  std::atomic<uint64_t> largest_run_{0};
};

}  // namespace tube::proxy

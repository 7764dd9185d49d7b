// The pinned memory that a proxy holds ready for its clients: the pools of all client slots, the
// thread that makes more of it ahead of requests and wipes what clients left, the bounds on all of
// it. How much is decided by policies/memory/pinned_pool.h.
//
// Nothing here waits for the whole context but drop_surplus(), which is the janitor's
// (proxy/gpu/janitor.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda_api.h"
#include "policies/memory/pinned_pool.h"
#include "proxy/memory/pinned_pool.h"

namespace tube::proxy {

struct Driver;
class Gpus;
class HostBudget;

class PinnedPools {
 public:
  // `surplus` says that there is something for the janitor. With `now` memory has run out: the call
  // waits until the janitor has given back what it can, and is false when it could not begin. Any
  // thread, without the lock.
  PinnedPools(const Driver& driver, Gpus& gpus, policies::PinnedBudget budget,
              std::function<bool(bool now)> surplus);
  ~PinnedPools();
  PinnedPools(const PinnedPools&) = delete;
  PinnedPools& operator=(const PinnedPools&) = delete;

  // What counts the pages of all pools; before any.
  void count_in(HostBudget* host) { host_ = host; }
  HostBudget* host() const { return host_; }
  Registrations& registrations() const;
  void start();
  // Ends the thread.
  void close();
  const policies::PinnedBudget& budget() const { return budget_; }

  // ---- sessions' threads
  void add(std::shared_ptr<PinnedPool> pool, uint64_t owner);
  // A request was served; `found`: from what was there.
  void asked(PinnedPool& pool, uint64_t bytes, bool found);
  void freed(PinnedPool& pool);
  void left(PinnedPool& pool);
  // The janitor has been held back for so long that the client has to wait for it.
  bool overdue(const PinnedPool& pool) const;
  // All idle memory back to the driver, and what is on its way there. False: there was none, or it
  // cannot be now.
  bool make_room();

  // ---- the server's and the janitor's
  void remove(const PinnedPool& pool);
  // Since when nobody has used a pool that its client left: long enough to give it back?
  bool expired(const PinnedPool& pool) const;
  // How far the idle memory of all pools exceeds the budget.
  uint64_t excess_bytes() const;
  bool making_room() const { return making_room_.load(std::memory_order_relaxed) != 0; }
  void drop_surplus();     // inside the gate
  void release_surplus();  // behind it

  struct Counts {
    uint64_t held_bytes = 0, idle_bytes = 0;
    uint64_t hits = 0, misses = 0;  // requests
    uint64_t made_ahead = 0;        // blocks
    uint32_t left = 0;              // pools that no client uses
    uint32_t ready = 0;             // of these, wiped
  };
  Counts counts() const;
  // The thread has nothing to do or to watch.
  bool asleep() const;

 private:
  void run();
  policies::PinnedState state_of(const PinnedPool& pool) const;
  uint64_t idle_sum() const;
  bool wipe_one(std::unique_lock<std::mutex>& lock);
  bool grow_one(std::unique_lock<std::mutex>& lock);
  bool any_surplus() const;
  bool register_one(std::unique_lock<std::mutex>& lock);
  bool any_unwiped() const;
  bool any_touched() const;
  bool any_returnable() const;

  const Driver& driver_;
  Gpus& gpus_;
  const policies::PinnedBudget budget_;
  const std::function<bool(bool now)> surplus_;
  HostBudget* host_ = nullptr;
  mutable std::mutex mutex_;  // rank 15: the members below
  std::condition_variable wanted_;
  std::vector<std::shared_ptr<PinnedPool>> pools_;
  std::vector<std::shared_ptr<PinnedPool>> dropping_;  // the janitor's, between its two calls
  Counts counts_;
  bool news_ = false;    // since the thread's last look: a request wants more, or a client left
  bool asleep_ = false;  // the thread, until there is news
  bool stop_ = false;
  std::atomic<uint32_t> making_room_{0};  // sessions that wait for it
  std::thread thread_;
};

}  // namespace tube::proxy

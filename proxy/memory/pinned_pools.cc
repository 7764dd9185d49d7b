#include "proxy/memory/pinned_pools.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/contained_thread.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

namespace {
// Between two looks: whether the last process has unmapped what a client left, whether idle memory
// has been idle for long enough.
constexpr std::chrono::milliseconds kFirstNap{2};
constexpr std::chrono::milliseconds kLongestNap{2000};
}  // namespace

PinnedPools::PinnedPools(const Driver& driver, Gpus& gpus, policies::PinnedBudget budget,
                         std::function<bool(bool now)> surplus)
    : driver_(driver), gpus_(gpus), budget_(budget), surplus_(std::move(surplus)) {}

PinnedPools::~PinnedPools() { close(); }

void PinnedPools::start() {
  if (budget_.total_bytes == 0) return;
  // Without the thread every request makes its own, and nothing is used again.
  thread_ =
      contained_thread("tube-pinned", "the thread that prepares pinned memory", [this] { run(); });
}

void PinnedPools::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PinnedPools::add(std::shared_ptr<PinnedPool> pool, uint64_t owner) {
  std::lock_guard lock(mutex_);
  pool->owner = owner;
  pool->demand.arrived(now_ns());
  pool->failed = false;
  if (std::find(pools_.begin(), pools_.end(), pool) == pools_.end())
    pools_.push_back(std::move(pool));
}

void PinnedPools::remove(const PinnedPool& pool) {
  std::lock_guard lock(mutex_);
  std::erase_if(pools_, [&](const auto& known) { return known.get() == &pool; });
}

// mutex_ is held, as for all that follow.
uint64_t PinnedPools::idle_sum() const {
  uint64_t sum = 0;
  for (const auto& pool : pools_) sum += pool->idle_bytes();
  return sum;
}

policies::PinnedState PinnedPools::state_of(const PinnedPool& pool) const {
  return {pool.idle_bytes(), pool.largest_run_bytes(), idle_sum(), pool.returnable_bytes()};
}

void PinnedPools::asked(PinnedPool& pool, uint64_t bytes, bool found) {
  const uint64_t now = now_ns();
  {
    std::lock_guard lock(mutex_);
    ++(found ? counts_.hits : counts_.misses);
    pool.demand.asked(bytes, found, budget_, now);
    pool.failed = false;
    if (policies::next_pinned_piece(pool.demand, state_of(pool), budget_, now) == 0) return;
    news_ = true;
  }
  wanted_.notify_one();
}

void PinnedPools::freed(PinnedPool& pool) {
  bool surplus = false, wakes = false;
  {
    std::lock_guard lock(mutex_);
    surplus = policies::pinned_surplus(pool.demand, state_of(pool), budget_, now_ns()) != 0;
    // What could go back does so after a while, which the thread has to watch.
    wakes = asleep_ && pool.returnable_bytes() != 0;
    news_ |= wakes;
  }
  if (wakes) wanted_.notify_one();
  if (surplus && surplus_) (void)surplus_(false);
}

bool PinnedPools::overdue(const PinnedPool& pool) const {
  return pool.returnable_bytes() > budget_.client_bytes() + limits::kPinnedOverdueBytes;
}

void PinnedPools::left(PinnedPool& pool) {
  {
    std::lock_guard lock(mutex_);
    pool.demand = {};
    news_ = true;
  }
  wanted_.notify_one();
}

bool PinnedPools::make_room() {
  {
    std::lock_guard lock(mutex_);
    const bool leaves = std::any_of(pools_.begin(), pools_.end(),
                                    [](const auto& pool) { return pool->leaving_bytes() != 0; });
    if (!surplus_ || (!leaves && !any_returnable())) return false;
  }
  making_room_.fetch_add(1, std::memory_order_relaxed);
  const bool made = surplus_(true);
  making_room_.fetch_sub(1, std::memory_order_relaxed);
  return made;
}

bool PinnedPools::expired(const PinnedPool& pool) const {
  return now_ns() - pool.left_ns() >= policies::kPinnedQuietNs;
}

uint64_t PinnedPools::excess_bytes() const {
  std::lock_guard lock(mutex_);
  const uint64_t idle = idle_sum();
  return idle > budget_.total_bytes ? idle - budget_.total_bytes : 0;
}

// Of pools that a client uses; what was left goes as a whole (Server::collect_remains).
void PinnedPools::drop_surplus() {
  const uint64_t now = now_ns();
  std::vector<std::pair<std::shared_ptr<PinnedPool>, uint64_t>> surplus;
  {
    std::lock_guard lock(mutex_);
    uint64_t total = idle_sum();
    for (const auto& pool : pools_) {
      if (pool->left_ns() != 0) continue;
      policies::PinnedState state = state_of(*pool);
      state.total_idle_bytes = total;
      uint64_t bytes = policies::pinned_surplus(pool->demand, state, budget_, now);
      if (making_room()) {
        bytes = state.returnable_bytes;
        pool->failed = true;  // or the thread would take the memory before whoever waits for it
      }
      if (bytes == 0) continue;
      surplus.emplace_back(pool, bytes);
      dropping_.push_back(pool);
      total -= bytes;
    }
  }
  if (surplus.empty()) return;
  driver_.cuCtxSetCurrent(gpus_[0].context);
  for (const auto& [pool, bytes] : surplus) pool->unregister_idle(bytes);
}

void PinnedPools::release_surplus() {
  std::vector<std::shared_ptr<PinnedPool>> dropped;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(dropping_);
  }
  for (const auto& pool : dropped) pool->release_unregistered();
}

PinnedPools::Counts PinnedPools::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts = counts_;
  for (const auto& pool : pools_) {
    counts.held_bytes += pool->held_bytes();
    counts.idle_bytes += pool->idle_bytes();
    counts.left += pool->left_ns() != 0;
    counts.ready += pool->ready();
  }
  return counts;
}

bool PinnedPools::asleep() const {
  std::lock_guard lock(mutex_);
  return asleep_;
}

bool PinnedPools::any_returnable() const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [](const auto& pool) { return pool->returnable_bytes() != 0; });
}

bool PinnedPools::any_unwiped() const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [](const auto& pool) { return pool->reusable() && !pool->ready(); });
}

bool PinnedPools::any_surplus() const {
  const bool too_much = idle_sum() > budget_.total_bytes;
  return std::any_of(pools_.begin(), pools_.end(), [&](const auto& pool) {
    if (pool->left_ns() != 0) return too_much || expired(*pool);
    return policies::pinned_surplus(pool->demand, state_of(*pool), budget_, now_ns()) != 0;
  });
}

// True: one pool more is ready.
bool PinnedPools::wipe_one(std::unique_lock<std::mutex>& lock) {
  for (size_t i = 0; i < pools_.size(); ++i) {
    const std::shared_ptr<PinnedPool> pool = pools_[i];
    if (!pool->reusable() || pool->ready()) continue;
    lock.unlock();
    const bool wiped = pool->wipe();
    lock.lock();
    if (wiped) return true;
  }
  return false;
}

bool PinnedPools::grow_one(std::unique_lock<std::mutex>& lock) {
  if (making_room()) return false;
  const uint64_t now = now_ns();
  for (const std::shared_ptr<PinnedPool>& each : pools_) {
    if (each->failed || each->left_ns() != 0) continue;
    const uint64_t bytes = policies::next_pinned_piece(each->demand, state_of(*each), budget_, now);
    if (bytes == 0) continue;
    const std::shared_ptr<PinnedPool> pool = each;
    lock.unlock();
    CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
    (void)contained("a piece of pinned memory", [&] { error = pool->touch(bytes); });
    lock.lock();
    pool->failed = error != CUDA_SUCCESS;
    return true;
  }
  return false;
}

bool PinnedPools::register_one(std::unique_lock<std::mutex>& lock) {
  if (making_room()) return false;
  for (const std::shared_ptr<PinnedPool>& each : pools_) {
    if (each->failed || each->left_ns() != 0 || each->touched_bytes() == 0) continue;
    const uint64_t owner = each->owner;
    const uint64_t bytes =
        each->largest_touched(policies::registered_at_once(gpus_.registrations().company(owner)));
    if (bytes == 0) continue;
    const std::shared_ptr<PinnedPool> pool = each;
    lock.unlock();
    auto ahead = PinnedPool::Ahead::kRefused;
    (void)contained("a piece of pinned memory",
                    [&] { ahead = pool->register_ahead(bytes, owner); });
    lock.lock();
    pool->failed = ahead == PinnedPool::Ahead::kRefused;
    counts_.made_ahead += ahead == PinnedPool::Ahead::kMade;
    return true;
  }
  return false;
}

Registrations& PinnedPools::registrations() const { return gpus_.registrations(); }

bool PinnedPools::any_touched() const {
  return std::any_of(pools_.begin(), pools_.end(), [](const auto& pool) {
    return !pool->failed && pool->left_ns() == 0 && pool->touched_bytes() != 0;
  });
}

void PinnedPools::run() {
  driver_.cuCtxSetCurrent(gpus_[0].context);
  auto nap = kFirstNap;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (std::exchange(news_, false)) nap = kFirstNap;
    // First, or what exceeds the budget would be wiped for nobody.
    if (any_surplus() && surplus_) {
      lock.unlock();
      (void)surplus_(false);
      lock.lock();
    }
    if (gpus_[0].failed.load() == 0 && (wipe_one(lock) || grow_one(lock) || register_one(lock)))
      continue;
    const auto news = [this] { return stop_ || news_; };
    if (!any_returnable() && !any_unwiped()) {
      asleep_ = true;
      wanted_.wait(lock, news);
      asleep_ = false;
      continue;
    }
    wanted_.wait_for(lock, any_unwiped() || any_touched() ? nap : kLongestNap, news);
    nap = std::min(2 * nap, kLongestNap);
  }
}

}  // namespace tube::proxy

// The client slots of a proxy: what holds a slot, which functions wait for one, and what is given
// back so that one becomes free.
//
// A function that used pinned memory leaves it registered in its place (pinned_pool.h), for the
// next function or until the janitor gives it back to the driver.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/server/server.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kPlaceNs = 15'000'000'000;  // so long it waits: more than the janitor's
                                               // patience, less than the hook's (kGreetTimeoutMs)
}  // namespace

uint32_t Server::free_slot() const {
  std::lock_guard lock(mutex_);
  const auto free = std::find(slots_.begin(), slots_.end(), Place::kFree);
  return static_cast<uint32_t>(free - slots_.begin());
}

// mutex_ is held.
size_t Server::places(Place what) const {
  return static_cast<size_t>(std::count(slots_.begin(), slots_.end(), what));
}

std::string Server::no_place() const {
  std::lock_guard lock(mutex_);
  std::string text = std::to_string(places(Place::kFunction)) + " functions are connected";
  if (const size_t pinned = places(Place::kPinned))
    text += ", memory of " + std::to_string(pinned) + " that left is not yet given back";
  if (const size_t lost = places(Place::kLost))
    text += ", GPU work of " + std::to_string(lost) + " that left does not end";
  return text + ": that makes " + std::to_string(limits::kClients) + ", the limit of a proxy";
}

// mutex_ is held. A function that left has a place, and memory in it, for the next one.
bool Server::any_ready() const {
  return std::any_of(retired_pinned_.begin(), retired_pinned_.end(),
                     [](const RetiredPinned& retired) { return retired.remains->ready(); });
}

// All places are taken, but some only by memory that the janitor can give back: this function
// waits, for so long from when it came.
bool Server::place_to_come(uint64_t greeting) {
  bool comes = false;
  {
    std::lock_guard lock(mutex_);
    comes = places(Place::kFree) == 0 && places(Place::kPinned) != 0 && !any_ready();
  }
  if (comes) {
    const auto [since, first] = waiting_since_ns_.try_emplace(greeting, now_ns());
    if (first) log_info("a function waits for a place");
    comes = now_ns() - since->second < kPlaceNs;
  }
  if (!comes) waiting_since_ns_.erase(greeting);
  return comes;
}

void Server::greet_waiting() {
  if (waiting_.empty() || restarting_) return;
  retire_pinned(limits::kPinnedReuseBytes, limits::kSparePlaces);
  for (uint64_t id : std::exchange(waiting_, {})) {
    // A function that must wait on stays in line.
    if (!contained("the start of a function", [&] { greet(id); })) greeting_.erase(id);
  }
}

// The largest of the pools that functions left in this window and that are wiped; nullptr: there is
// none. Its place then is the new function's.
std::shared_ptr<PinnedPool> Server::take_ready(uint32_t window, uint32_t* slot) {
  std::lock_guard lock(mutex_);
  auto best = retired_pinned_.end();
  for (auto it = retired_pinned_.begin(); it != retired_pinned_.end(); ++it) {
    if (it->remains->window() != window || !it->remains->ready()) continue;
    if (best == retired_pinned_.end() || it->remains->held_bytes() > best->remains->held_bytes())
      best = it;
  }
  if (best == retired_pinned_.end()) return nullptr;
  std::shared_ptr<PinnedPool> pool = std::move(best->remains);
  *slot = best->slot;
  slots_[*slot] = Place::kFunction;
  retired_pinned_.erase(best);
  pool->begin();
  return pool;
}

// The function did not come after all. Its session may hold the pool by now, or have left it.
void Server::put_back(Session& session, std::shared_ptr<PinnedPool> ready) {
  session.end();
  std::shared_ptr<PinnedPool> left = session.take_pinned_remains();
  if (session.abandoned()) {
    std::lock_guard lock(mutex_);
    slots_[session.client().slot] = Place::kLost;
    return;
  }
  if (left == nullptr && ready == nullptr) return;
  if (left == nullptr) {
    left = std::move(ready);
    left->leave(true, now_ns());
    pinned_.left(*left);
  }
  std::lock_guard lock(mutex_);
  slots_[session.client().slot] = Place::kPinned;
  retired_pinned_.push_back({session.client().slot, std::move(left)});
}

// The longest retired that no function will use again are the janitor's, until at most
// `above_bytes` are left and `free_slots` places are free or will be. These are needed soon, and
// now, where a function stands at the door.
void Server::retire_pinned(uint64_t above_bytes, size_t free_slots) {
  bool more = false;
  auto need = Janitor::Need::kAnyTime;
  {
    std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const RetiredPinned& retired : retired_pinned_) {
      if (!retired.remains->reusable()) bytes += retired.remains->held_bytes();
    }
    const size_t before = old_pinned_.size();
    for (auto it = retired_pinned_.begin(); it != retired_pinned_.end();) {
      const bool reusable = it->remains->reusable();
      if ((reusable || bytes <= above_bytes) && places(Place::kFree) + leaving_ >= free_slots) {
        ++it;
        continue;
      }
      if (!reusable) bytes -= it->remains->held_bytes();
      it = leave_to_janitor(it);
    }
    more = old_pinned_.size() != before || pinned_.excess_bytes() != 0;
    if (leaving_ != 0 && places(Place::kFree) < free_slots) need = Janitor::Need::kSoon;
    if (leaving_ != 0 && places(Place::kFree) == 0 && !waiting_.empty()) need = Janitor::Need::kNow;
  }
  if (more) janitor_.wake(need);
  else if (need != Janitor::Need::kAnyTime) janitor_.hurry(need);
}

// mutex_ is held. The next one.
std::deque<Server::RetiredPinned>::iterator Server::leave_to_janitor(
    const std::deque<RetiredPinned>::iterator& retired) {
  old_pinned_.push_back(std::move(*retired));
  pinned_.remove(*old_pinned_.back().remains);
  ++leaving_;
  return retired_pinned_.erase(retired);
}

// The janitor's work, on its thread: before its turn, in it, and after it. Everything in clean_up()
// may wait for the whole context.
void Server::collect_remains() {
  {
    std::lock_guard lock(mutex_);
    remains_.closing = closing_;
    remains_.all = closing_ || (resting_ && sessions_.empty());
    uint64_t excess = pinned_.excess_bytes();
    for (auto it = retired_pinned_.begin(); it != retired_pinned_.end();) {
      const PinnedPool& pool = *it->remains;
      const bool goes = pool.reusable() ? closing_ || excess != 0 || pinned_.making_room() ||
                                              pinned_.expired(pool)
                                        : remains_.all;
      if (goes && pool.reusable()) excess -= std::min(excess, pool.held_bytes());
      it = goes ? leave_to_janitor(it) : std::next(it);
    }
    for (; !old_pinned_.empty(); old_pinned_.pop_front())
      remains_.pinned.push_back(std::move(old_pinned_.front()));
  }
  for (const RetiredPinned& retired : remains_.pinned) retired.remains->settle();
}

void Server::clean_up() {
  (void)contained("the unloading of modules", [this] {
    modules_.unload_surplus();
    if (remains_.all) modules_.unload_retired();
    if (remains_.closing) modules_.unload_idle();
  });
  (void)contained("the return of shared memory", [this] {
    if (remains_.all) spares_.trim();
    if (remains_.closing) spares_.close();
    spares_.drop_old();
  });
  // Not by the server's thread: its thread may stand in the driver for good.
  if (remains_.closing) (void)contained("the end of its thread", [this] { pinned_.close(); });
  if (remains_.closing) (void)contained("the end of its thread", [this] { blocks_.close(); });
  if (remains_.closing) (void)contained("the end of its thread", [this] { ahead_.close(); });
  if (remains_.closing) (void)contained("the end of its thread", [this] { idle_.close(); });
  for (const RetiredPinned& retired : remains_.pinned) retired.remains->close();
  if (remains_.all) (void)contained("the return of host memory", [this] { arena_.drop_idle(); });
  (void)contained("the return of pinned memory", [this] { pinned_.drop_surplus(); });
}

void Server::cleaned_up() {
  if (options_.keeps_record) (void)contained("the record of kernels", [this] { kernels_.write(); });
  {
    std::lock_guard lock(mutex_);
    for (const RetiredPinned& retired : remains_.pinned) slots_[retired.slot] = Place::kFree;
    leaving_ -= remains_.pinned.size();
  }
  remains_.pinned.clear();
  pinned_.release_surplus();
  ring();
}

}  // namespace tube::proxy

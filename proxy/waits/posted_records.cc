#include "proxy/waits/posted_records.h"

#include <poll.h>

#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/scope_guard.h"

namespace tube::proxy {

void PostedRecords::join(uint64_t session, Poster poster) {
  std::lock_guard lock(mutex_);
  members_[session].poster = std::move(poster);
}

void PostedRecords::leave(uint64_t session) {
  std::lock_guard lock(mutex_);
  members_.erase(session);
}

// How far the others are; `session` settles from now on.
std::map<uint64_t, PostedRecords::Mark> PostedRecords::marks(uint64_t session) {
  std::map<uint64_t, Mark> marks;
  std::lock_guard lock(mutex_);
  for (auto& [id, member] : members_) {
    if (id == session) member.settles = true;
    else marks.emplace(id, member.poster.mark());
  }
  return marks;
}

void PostedRecords::drop_past(std::map<uint64_t, Mark>& marks) {
  std::lock_guard lock(mutex_);
  const auto is_past = [&](uint64_t id, Mark& mark) {
    const auto found = members_.find(id);
    if (found == members_.end()) return true;
    // Two that settle would wait for each other; but the end of a client comes whatever it does.
    if (found->second.settles && !mark.gone) return true;
    return found->second.poster.is_past(mark);
  };
  for (auto it = marks.begin(); it != marks.end();)
    it = is_past(it->first, it->second) ? marks.erase(it) : std::next(it);
}

bool PostedRecords::settle(uint64_t session, const Caller& caller) {
  constexpr int kLookMs = 1;
  std::map<uint64_t, Mark> ahead = marks(session);
  const ScopeGuard over([&] {
    std::lock_guard lock(mutex_);
    if (const auto found = members_.find(session); found != members_.end())
      found->second.settles = false;
  });
  if (ahead.empty()) return false;
  drop_past(ahead);
  if (ahead.empty()) return true;
  waits_.fetch_add(1, std::memory_order_relaxed);
  for (const uint64_t end = now_ns() + wait_ns_; !caller.stop() && now_ns() < end;) {
    poll(nullptr, 0, kLookMs);
    caller.serve();
    drop_past(ahead);
    if (ahead.empty()) break;
  }
  return true;
}

}  // namespace tube::proxy

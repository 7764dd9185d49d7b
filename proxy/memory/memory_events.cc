#include "proxy/memory/memory_events.h"

#include <string_view>
#include <utility>

#include "base/clock.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kTogetherNs = 1'000'000'000;

bool alike(const MemoryEvent& a, const MemoryEvent& b) {
  return std::string_view(a.what) == b.what && a.pid == b.pid && a.gpu == b.gpu &&
         a.name == b.name && a.why == b.why;
}

}  // namespace

void MemoryEvents::note(MemoryEvent event) { note(std::move(event), now_ns()); }

void MemoryEvents::note(MemoryEvent event, uint64_t now_ns) {
  event.at_ns = now_ns;
  std::lock_guard lock(mutex_);
  if (!events_.empty() && alike(events_.back(), event) &&
      now_ns - events_.back().at_ns < kTogetherNs) {
    MemoryEvent& last = events_.back();
    last.bytes += event.bytes;
    last.times += event.times;
    last.at_ns = now_ns;
    return;
  }
  events_.push_back(std::move(event));
  if (events_.size() > kMost) events_.pop_front();
}

std::vector<MemoryEvent> MemoryEvents::list() const {
  std::lock_guard lock(mutex_);
  return {events_.begin(), events_.end()};
}

}  // namespace tube::proxy

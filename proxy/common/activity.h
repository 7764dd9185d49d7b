// Which sessions were at work lately, for what makes all functions stand still for a moment and can
// wait for a better one.
//
// A session counts as at work from each time it wakes until it sleeps, and for kLatelyNs after it
// last woke. Any thread; a moment old.
#pragma once

#include <atomic>
#include <cstdint>

namespace tube::proxy {

class Activity {
 public:
  static constexpr uint64_t kLatelyNs = 100'000'000;

  std::atomic<uint32_t> awake{0};  // sessions that are not asleep

  void woke(uint64_t session, uint64_t now_ns) {
    if (last_.exchange(session, std::memory_order_relaxed) != session)
      changed_ns_.store(now_ns, std::memory_order_relaxed);
    woke_ns_.store(now_ns, std::memory_order_relaxed);
  }
  // Whether nobody but this session has been at work lately.
  bool alone(uint64_t session, uint64_t now_ns) const {
    const bool is_last = last_.load(std::memory_order_relaxed) == session;
    const uint64_t since = (is_last ? changed_ns_ : woke_ns_).load(std::memory_order_relaxed);
    return awake.load(std::memory_order_relaxed) <= (is_last ? 1 : 0) &&
           (now_ns < since ? 0 : now_ns - since) >= kLatelyNs;
  }

 private:
  std::atomic<uint64_t> last_{0};        // that woke
  std::atomic<uint64_t> changed_ns_{0};  // when another one had woken before it
  std::atomic<uint64_t> woke_ns_{0};
};

}  // namespace tube::proxy

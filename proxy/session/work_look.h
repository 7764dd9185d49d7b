// Whether work of a client is outstanding on a GPU, asked by somebody who is not its session.
//
// A session that sleeps for want of records does not know: the client may have launched a kernel of
// four seconds and gone to sleep. It is woken, asks the driver for each stream, and sleeps on.
// The server's thread asks, and looks for the answer later; questions may overlap, each has a
// number.
#pragma once

#include <atomic>
#include <cstdint>

namespace tube::proxy {

class WorkLook {
 public:
  // Before the session is woken. The question's number.
  uint32_t ask() { return asked_.fetch_add(1, std::memory_order_release) + 1; }
  bool answered(uint32_t question) const {
    return static_cast<int32_t>(answered_.load(std::memory_order_acquire) - question) >= 0;
  }
  // Precondition: one that was asked is answered().
  bool works() const { return works_.load(std::memory_order_relaxed); }

  // The session's thread.
  template <class Look>
  bool answer(const Look& look) {
    const uint32_t asked = asked_.load(std::memory_order_acquire);
    if (asked == answered_.load(std::memory_order_relaxed)) return false;
    works_.store(look(), std::memory_order_relaxed);
    answered_.store(asked, std::memory_order_release);
    return true;
  }

 private:
  std::atomic<uint32_t> asked_{0};
  std::atomic<uint32_t> answered_{0};
  std::atomic<bool> works_{false};
};

}  // namespace tube::proxy

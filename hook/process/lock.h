// The hook's lock: four bytes, constant-initialised, no destructor, spins briefly and then sleeps
// on a futex.
//
// Used instead of std::mutex because it guards the ring, where an uncontended lock and unlock are
// two atomic operations and the holder stays for less than a microsecond; a waiter therefore spins
// first. Not recursive. Not valid across fork: after a fork every entry answers before it reaches a
// lock (process.h), the error log's excepted, which begins anew.
//
// Ranks, taken in this order only: what is held while the proxy is asked (0, one at a time) <
// thread and context lists (1) < objects and images (2) < memory map (3) < producer (4) < the queue
// of host functions, the contexts that printed (5).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tube::hook {

class Lock {
 public:
  constexpr Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() {
    uint32_t expected = kFree;
    if (state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                       std::memory_order_relaxed))
      return;
    slow_lock();
  }
  bool try_lock() {
    uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) wake_one();
  }

 private:
  static constexpr uint32_t kFree = 0, kHeld = 1, kContended = 2;
  static constexpr int kSpins = 200;

  __attribute__((noinline)) void slow_lock() {
    for (int i = 0; i < kSpins; ++i) {
      uint32_t expected = kFree;
      if (state_.load(std::memory_order_relaxed) == kFree &&
          state_.compare_exchange_weak(expected, kHeld, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return;
      }
      __builtin_ia32_pause();
    }
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kContended, nullptr, nullptr, 0);
    }
  }
  __attribute__((noinline)) void wake_one() {
    syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> state_{kFree};
};

class [[nodiscard]] Locked {
 public:
  explicit Locked(Lock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lock& lock_;
};

}  // namespace tube::hook

// The client's own waits in its streams (cuStreamWaitValue, batches of them), so that its death
// does not leave them waiting.
//
// Nobody would ever write the values that a dead client's streams wait for: its memory and its slot
// would stay taken for good. So the session remembers address and value of each wait, and at its
// end writes what satisfies them, in their order. The newest kMost are kept; older ones are dropped
// when no stream is busy, or for want of room. Session thread, but for pass().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

struct PendingWait {
  CUdeviceptr address = 0;
  uint64_t value = 0;
  uint32_t flags = 0;  // CUstreamWaitValue_flags
  uint32_t bytes = 4;
  bool host = false;  // in the client's pinned memory, which this process can write
};

class PendingWaits {
 public:
  static constexpr size_t kMost = 1024;

  // `idle`: none of the client's streams has work; only asked when there is no room.
  void add(const PendingWait& wait, const std::function<bool()>& idle);
  enum class Reach {
    kNone,
    kHost,
    kGpu
  };  // what can write there: nothing any more, this process, only the GPU
  // Writes values, of each address in their order and all of them again and again, until `idle`,
  // for at most `timeout_ms`. Never waits for the GPU: a stream that waits may hold up every stream
  // of its hardware queue, the one that would release it too. Forgets them when all is idle.
  void release(const Driver& driver, uint32_t timeout_ms, const std::function<bool()>& idle,
               const std::function<Reach(const PendingWait&)>& reach);
  // Writes what satisfies waits in host memory, a few values for each address with each call, some
  // milliseconds in all. Which ones have passed is not known, but those that have not came last:
  // the last one, then the last two in their order, then four, and so on. Any thread; for a session
  // that is in the driver and does not come back.
  void pass();
  // The memory is about to be freed: it has another meaning then.
  void forget(CUdeviceptr base, uint64_t bytes);
  size_t count() const {
    std::lock_guard lock(mutex_);
    return waits_.size();
  }

 private:
  static void satisfy(const std::deque<PendingWait>& waits, const Driver& driver,
                      uint32_t timeout_ms, const std::function<bool()>& idle,
                      const std::function<Reach(const PendingWait&)>& reach);

  mutable std::mutex mutex_;  // leaf: waits_
  std::deque<PendingWait> waits_;
  size_t passes_ = 0;
};

// Which of `count` waits for one address has its turn at `step`, the oldest being 0: of the last
// one, two, four, ... and at last all of them, the oldest first; then the last one again.
size_t turn_of_wait(size_t step, size_t count);

// A value that satisfies the wait. (AND with 0 and NOR with all bits set can never be satisfied.)
uint64_t satisfying_value(const PendingWait& wait);

}  // namespace tube::proxy

// The client's own waits in its streams (cuStreamWaitValue, batches of them), so that its death does not leave them waiting.
//
// Nobody would ever write the values that a dead client's streams wait for: its memory and its slot would stay taken for
// good. So the session remembers address and value of each wait, and at its end writes what satisfies them, in their order.
// The newest kMost are kept; older ones are dropped when no stream is busy, or for want of room. Session thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

struct PendingWait {
  CUdeviceptr address = 0;
  uint64_t value = 0;
  uint32_t flags = 0;   // CUstreamWaitValue_flags
  uint32_t bytes = 4;
};

class PendingWaits {
 public:
  static constexpr size_t kMost = 1024;

  // `idle`: none of the client's streams has work; only asked when there is no room.
  void add(const PendingWait& wait, const std::function<bool()>& idle);
  enum class Reach { kNone, kHost, kGpu };  // who can write there: nobody any more, this process, only the GPU
  // Writes values until `idle` or every wait has had its turn, for at most `timeout_ms`. Never waits for the GPU: a stream that
  // waits may hold up every stream of its hardware queue, the one that would release it too.
  void release(const Driver& driver, uint32_t timeout_ms, const std::function<bool()>& idle,
               const std::function<Reach(const PendingWait&)>& reach);
  size_t count() const { return waits_.size(); }

 private:
  std::deque<PendingWait> waits_;
};

// A value that satisfies the wait. (AND with 0 and NOR with all bits set can never be satisfied.)
uint64_t satisfying_value(const PendingWait& wait);

}  // namespace tube::proxy

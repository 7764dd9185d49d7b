// What one session counts. Written by the session thread, read by the control socket's thread: relaxed atomics, since
// each number stands alone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "protocol/wire.gen.h"

namespace tube::proxy {

struct Stats {
  std::atomic<uint64_t> records{0};
  std::atomic<uint64_t> round_trips{0};  // records that somebody waited for
  std::atomic<uint64_t> errors{0};       // records that answered or left an error
  std::array<std::atomic<uint64_t>, wire::kCallCount> calls{};

  // One writer: a plain add is enough and saves the locked instruction.
  static void add(std::atomic<uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
};

}  // namespace tube::proxy

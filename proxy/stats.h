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
  std::atomic<uint64_t> runs{0};          // runs of launches that went out as one graph
  std::atomic<uint64_t> run_launches{0};  // launches in them
  std::array<std::atomic<uint64_t>, wire::kCallCount> calls{};

  // One writer: a plain add is enough and saves the locked instruction.
  static void add(std::atomic<uint64_t>& counter, uint64_t count = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
};

}  // namespace tube::proxy

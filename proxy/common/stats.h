// What one session counts. Written by the session thread, read by the control socket's thread:
// relaxed atomics, since each number stands alone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "protocol/wire.gen.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

struct Stats {
  std::atomic<uint64_t> records{0};
  std::atomic<uint64_t> round_trips{0};   // records that somebody waited for
  std::atomic<uint64_t> record_bytes{0};  // of whole records, as they lay in the ring
  std::atomic<uint64_t> reply_bytes{0};   // of what replies carried beside their result
  std::atomic<uint64_t> copy_bytes{0};    // that copies were told to move, however they travelled
  std::atomic<uint64_t> errors{0};  // records that answered or left an error; NOT_READY is none
  std::atomic<uint64_t> runs{0};    // runs of launches that went out as one graph
  std::atomic<uint64_t> run_launches{0};   // launches in them
  std::atomic<uint64_t> images_loaded{0};  // asked of the driver
  std::atomic<uint64_t> images_shared{0};  // that were loaded for another function already
  std::atomic<uint64_t> image_bytes{
      0};  // received: in records, or read from files that were not known
  std::atomic<uint64_t> pinned_hits{0};    // requests that the pool of pinned memory served
  std::atomic<uint64_t> pinned_misses{0};  // those for which a block had to be made
  std::atomic<uint64_t> kernels_loaded{0};
  std::atomic<uint64_t> kernels_shared{0};
  std::array<std::atomic<uint64_t>, wire::kCallCount> calls{};
  std::array<std::atomic<uint64_t>, wire::kCallCount>
      waited_calls{};         // those of them that were round trips
  abi::WaitCounters waits{};  // the session's own; of them only WaitReason::kRecord happens

  // One writer: a plain add is enough and saves the locked instruction.
  static void add(std::atomic<uint64_t>& counter, uint64_t count = 1) {
    counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
};

}  // namespace tube::proxy

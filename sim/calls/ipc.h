// What crosses processes on the simulator: the state of an interprocess event, and memory opened
// from elsewhere.
//
// A handle of cuIpcGetMemHandle or cuIpcGetEventHandle names a memory file by its owner's process
// and descriptor number; an opener goes through /proc/PID/fd, so the kernel checks that its user
// may. The file stays alive as long as anybody has it mapped; a handle whose owner is gone
// opens nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "sim/machine/address_map.h"

namespace tube::sim {

// One page that all openers share: how often the event was recorded, and which of these records the
// GPU has reached.
struct SharedEvent {
  struct Words {
    std::atomic<uint64_t> recorded;
    std::atomic<uint64_t> reached;
  };
  int fd = -1;  // -1 in a process that opened it
  Words* words = nullptr;

  SharedEvent() = default;
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;
  ~SharedEvent();

  uint64_t record() { return words->recorded.fetch_add(1, std::memory_order_acq_rel) + 1; }
  uint64_t last() const { return words->recorded.load(std::memory_order_acquire); }
  bool reached(uint64_t record) const {
    return words->reached.load(std::memory_order_acquire) >= record;
  }
  void reach(uint64_t record);
};
using SharedEventPtr = std::shared_ptr<SharedEvent>;

// nullptr when the process has no descriptor left.
SharedEventPtr make_shared_event();

// A range of kind kImported is gone from the map. With the lock held; its context is idle.
void release_import(const Range& range);

}  // namespace tube::sim

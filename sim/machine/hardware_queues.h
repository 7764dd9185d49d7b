// The hardware queues through which streams' work comes to a GPU: fewer than there may be streams.
//
// A stream that has been idle gets the queue with the fewest streams that wait, and of these the
// one with the fewest streams. Work that waits (for a value in memory, for an event that has not
// happened) stands at the head of its queue, and what other streams put into it later stands behind
// it. There is no such limit unless TUBE_SIM_QUEUES says how many queues there are.
//
// With State::mutex held.
#pragma once

#include <memory>
#include <vector>

#include "sim/machine/engine.h"

namespace tube::sim {

class HardwareQueues {
 public:
  // Null when the environment asks for none.
  static std::unique_ptr<HardwareQueues> load();

  // The operation, which has its fence, is about to be appended to the lane of a stream.
  void submits(Lane& lane, Op& op);
  // The lane has nothing left to do.
  void is_idle(Lane& lane);

 private:
  struct Wait {
    FencePtr fence;
    const Lane* lane;
  };
  struct Queue {
    size_t lanes = 0;
    std::vector<Wait> waits;  // in their order
  };
  explicit HardwareQueues(size_t count) : queues_(count) {}

  std::vector<Queue> queues_;
};

}  // namespace tube::sim

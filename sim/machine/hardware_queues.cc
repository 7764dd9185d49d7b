#include "sim/machine/hardware_queues.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace tube::sim {

std::unique_ptr<HardwareQueues> HardwareQueues::load() {
  const char* text = std::getenv("TUBE_SIM_QUEUES");
  const int count = text != nullptr ? std::atoi(text) : 0;
  if (count <= 0) return nullptr;
  return std::unique_ptr<HardwareQueues>(new HardwareQueues(static_cast<size_t>(count)));
}

void HardwareQueues::submits(Lane& lane, Op& op) {
  if (lane.stream == 0) return;  // no stream's
  for (Queue& queue : queues_)
    std::erase_if(queue.waits, [](const Wait& wait) { return wait.fence->done; });
  if (lane.queue.empty()) {
    const auto best =
        std::min_element(queues_.begin(), queues_.end(), [](const Queue& a, const Queue& b) {
          return std::pair(a.waits.size(), a.lanes) < std::pair(b.waits.size(), b.lanes);
        });
    lane.hardware_queue = static_cast<size_t>(best - queues_.begin());
    ++best->lanes;
  }
  Queue& queue = queues_[lane.hardware_queue];
  const bool waits =
      op.condition || std::any_of(op.waits.begin(), op.waits.end(),
                                  [](const FencePtr& fence) { return !fence->done; });
  for (const Wait& wait : queue.waits)
    if (wait.lane != &lane) op.waits.push_back(wait.fence);
  if (waits) queue.waits.push_back({op.fence, &lane});
}

void HardwareQueues::is_idle(Lane& lane) {
  if (lane.stream != 0 && queues_[lane.hardware_queue].lanes != 0)
    --queues_[lane.hardware_queue].lanes;
}

}  // namespace tube::sim

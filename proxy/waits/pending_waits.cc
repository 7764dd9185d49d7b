#include "proxy/waits/pending_waits.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kComparison = CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_EQ |
                                 CU_STREAM_WAIT_VALUE_AND | CU_STREAM_WAIT_VALUE_NOR;
// For the streams to see a value before the next one for the same address is written.
constexpr int kStepMs = 1;
constexpr int kLooks = 4;
constexpr int kPassedAtOnce = 4;  // by one call of pass()

void write_from_here(const PendingWait& wait) {
  const uint64_t value = satisfying_value(wait);
  if (wait.bytes == 8)
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(wait.address))
        .store(value, std::memory_order_release);
  else
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(wait.address))
        .store(static_cast<uint32_t>(value), std::memory_order_release);
}

void write_by_gpu(const Driver& driver, CUstream stream, const PendingWait& wait) {
  const uint64_t value = satisfying_value(wait);
  if (wait.bytes == 8) (void)driver.cuStreamWriteValue64_v2(stream, wait.address, value, 0);
  else
    (void)driver.cuStreamWriteValue32_v2(stream, wait.address, static_cast<cuuint32_t>(value), 0);
}

}  // namespace

uint64_t satisfying_value(const PendingWait& wait) {
  return (wait.flags & kComparison) == CU_STREAM_WAIT_VALUE_NOR ? 0 : wait.value;
}

void PendingWaits::add(const PendingWait& wait, const std::function<bool()>& idle) {
  const bool ended = count() >= kMost && idle();
  std::lock_guard lock(mutex_);
  if (ended) waits_.clear();
  if (waits_.size() >= kMost) waits_.pop_front();
  waits_.push_back(wait);
}

size_t turn_of_wait(size_t step, size_t count) {
  size_t round = 0;  // steps of one round through all windows
  for (size_t window = 1;; window = std::min(2 * window, count)) {
    round += window;
    if (window == count) break;
  }
  step %= round;
  for (size_t window = 1;; window = std::min(2 * window, count)) {
    if (step < window) return count - window + step;
    step -= window;
  }
}

void PendingWaits::pass() {
  std::lock_guard lock(mutex_);
  std::map<CUdeviceptr, std::vector<const PendingWait*>> queues;
  for (const PendingWait& wait : waits_) {
    if (wait.host && wait.address % wait.bytes == 0) queues[wait.address].push_back(&wait);
  }
  for (int i = 0; i < kPassedAtOnce && !queues.empty(); ++i) {
    if (i != 0) poll(nullptr, 0, kStepMs);
    for (const auto& [address, queue] : queues)
      write_from_here(*queue[turn_of_wait(passes_, queue.size())]);
    ++passes_;
    // One that is alone has been written.
    std::erase_if(queues, [](const auto& entry) { return entry.second.size() == 1; });
  }
}

void PendingWaits::forget(CUdeviceptr base, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  std::erase_if(waits_, [&](const PendingWait& wait) { return wait.address - base < bytes; });
}

void PendingWaits::release(const Driver& driver, uint32_t timeout_ms,
                           const std::function<bool()>& idle,
                           const std::function<Reach(const PendingWait&)>& reach) {
  std::deque<PendingWait> waits;
  {
    std::lock_guard lock(mutex_);
    waits = waits_;  // which stay until all is idle: this may begin again
  }
  if (waits.empty()) return;
  if (!idle()) satisfy(waits, driver, timeout_ms, idle, reach);
  if (!idle()) return;
  std::lock_guard lock(mutex_);
  waits_.clear();
}

void PendingWaits::satisfy(const std::deque<PendingWait>& waits, const Driver& driver,
                           uint32_t timeout_ms, const std::function<bool()>& idle,
                           const std::function<Reach(const PendingWait&)>& reach) {
  const uint64_t deadline = now_ns() + uint64_t{timeout_ms} * 1'000'000u;
  struct Queue {
    std::vector<PendingWait> waits;
    size_t next = 0;
  };
  std::map<CUdeviceptr, Queue> queues;
  size_t round = 0;  // steps after which each value was written
  for (const PendingWait& wait : waits) {
    if (reach(wait) == Reach::kNone || wait.address % wait.bytes != 0) continue;
    Queue& queue = queues[wait.address];
    queue.waits.push_back(wait);
    round = std::max(round, queue.waits.size());
  }
  CUstream stream = nullptr;
  if (driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return;
  // One value for every address at a time: what waits for the next one goes on when it has seen
  // this one. Whether it has, nobody says, and on a busy machine it may look too late. So all
  // values are written again and again, and in each round they stand twice as long.
  int looks = kLooks;
  for (size_t step = 1; !queues.empty() && !idle() && now_ns() < deadline; ++step) {
    // The GPU writes the next value when the last one is written, not many behind each other.
    const bool written = driver.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
    for (auto& [address, queue] : queues) {
      const PendingWait& wait = queue.waits[queue.next];
      const bool from_here = reach(wait) == Reach::kHost;
      if (from_here) write_from_here(wait);
      else if (written) write_by_gpu(driver, stream, wait);
      if (from_here || written) queue.next = (queue.next + 1) % queue.waits.size();
    }
    for (int i = 0; i < looks && !idle() && now_ns() < deadline; ++i) poll(nullptr, 0, kStepMs);
    if (step % round == 0) looks *= 2;
  }
  driver.cuStreamDestroy_v2(stream);
}

}  // namespace tube::proxy

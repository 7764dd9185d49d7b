#include "proxy/pending_waits.h"

#include <poll.h>

#include <map>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kComparison = CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_AND | CU_STREAM_WAIT_VALUE_NOR;
constexpr int kStepMs = 1;  // for the streams to see a value before the next one for the same address is written

CUresult write(const Driver& driver, CUstream stream, const PendingWait& wait) {
  const uint64_t value = satisfying_value(wait);
  if (wait.bytes == 8) return driver.cuStreamWriteValue64_v2(stream, wait.address, value, 0);
  return driver.cuStreamWriteValue32_v2(stream, wait.address, static_cast<cuuint32_t>(value), 0);
}

}  // namespace

uint64_t satisfying_value(const PendingWait& wait) { return (wait.flags & kComparison) == CU_STREAM_WAIT_VALUE_NOR ? 0 : wait.value; }

void PendingWaits::add(const PendingWait& wait, const std::function<bool()>& idle) {
  if (waits_.size() >= kMost && idle()) waits_.clear();
  if (waits_.size() >= kMost) waits_.pop_front();
  waits_.push_back(wait);
}

void PendingWaits::release(const Driver& driver, const std::function<bool()>& idle,
                           const std::function<bool(const PendingWait&)>& valid) {
  if (waits_.empty() || idle()) return;
  CUstream stream = nullptr;
  if (driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return;
  std::map<CUdeviceptr, std::deque<PendingWait>> queues;
  for (const PendingWait& wait : waits_) {
    if (valid(wait)) queues[wait.address].push_back(wait);
  }
  // One value for every address at a time: what waits for the next one goes on when it has seen this one.
  while (!queues.empty() && !idle()) {
    for (auto it = queues.begin(); it != queues.end();) {
      (void)write(driver, stream, it->second.front());
      it->second.pop_front();
      it = it->second.empty() ? queues.erase(it) : std::next(it);
    }
    (void)driver.cuStreamSynchronize(stream);
    for (int i = 0; i < 4 && !idle(); ++i) poll(nullptr, 0, kStepMs);
  }
  driver.cuStreamDestroy_v2(stream);
  waits_.clear();
}

}  // namespace tube::proxy

#include "proxy/waits/external_waits.h"

#include <set>

#include "protocol/driver_table.gen.h"
#include "proxy/gpu/capture.h"

namespace tube::proxy {

size_t ExternalWaits::count() const {
  size_t count = 0;
  for (const Call& call : calls_) count += call.waits.size();
  return count;
}

void ExternalWaits::drop_passed(const Driver& driver) {
  std::erase_if(calls_, [&](const Call& call) {
    if (driver.cuEventQuery(call.behind) == CUDA_ERROR_NOT_READY) return false;
    driver.cuEventDestroy_v2(call.behind);
    return true;
  });
}

void ExternalWaits::add(const Driver& driver, CUstream stream, uint32_t context,
                        std::span<const uint64_t> semaphores,
                        std::span<const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> params) {
  drop_passed(driver);
  if (count() + semaphores.size() > kMost) return;
  if (is_capturing(driver, stream)) return;
  Call call{nullptr, context, {}};
  if (driver.cuEventCreate(&call.behind, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  if (driver.cuEventRecord(call.behind, stream) != CUDA_SUCCESS) {
    driver.cuEventDestroy_v2(call.behind);
    return;
  }
  for (size_t i = 0; i < semaphores.size(); ++i)
    call.waits.push_back({semaphores[i], params[i].params.fence.value, false});
  calls_.push_back(std::move(call));
}

void ExternalWaits::signal_next(const Driver& driver, const Signal& signal) {
  drop_passed(driver);
  std::set<uint64_t> asked;
  for (Call& call : calls_) {
    for (Wait& wait : call.waits) {
      if (!asked.insert(wait.semaphore).second || wait.signalled) continue;
      wait.signalled = true;
      signal(call.context, wait.semaphore, wait.value);
    }
  }
}

void ExternalWaits::forget(const Driver& driver, uint32_t context) {
  std::erase_if(calls_, [&](const Call& call) {
    if (call.context != context) return false;
    driver.cuEventDestroy_v2(call.behind);
    return true;
  });
}

void ExternalWaits::forget_all(const Driver& driver) {
  for (const Call& call : calls_) driver.cuEventDestroy_v2(call.behind);
  calls_.clear();
}

}  // namespace tube::proxy

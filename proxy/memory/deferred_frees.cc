#include "proxy/memory/deferred_frees.h"

#include <iterator>

#include "protocol/driver_table.gen.h"
#include "proxy/memory/device_memory.h"

namespace tube::proxy {

CUresult DeferredFrees::add(CUstream stream, CUdeviceptr untrusted_address) {
  collect();
  CUevent event = nullptr;
  if (CUresult error = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      error != CUDA_SUCCESS)
    return error;
  CUresult error = driver_.cuEventRecord(event, stream);
  if (error == CUDA_SUCCESS) error = memory_.retire(untrusted_address);
  if (error != CUDA_SUCCESS) {
    driver_.cuEventDestroy_v2(event);
    return error;
  }
  queues_[stream].push_back({event, untrusted_address});
  return CUDA_SUCCESS;
}

void DeferredFrees::collect() {
  for (auto it = queues_.begin(); it != queues_.end();) {
    std::deque<Free>& queue = it->second;
    while (!queue.empty() && driver_.cuEventQuery(queue.front().event) != CUDA_ERROR_NOT_READY) {
      driver_.cuEventDestroy_v2(queue.front().event);
      (void)memory_.free_retired(queue.front().address);
      queue.pop_front();
    }
    it = queue.empty() ? queues_.erase(it) : std::next(it);
  }
}

void DeferredFrees::drop() {
  for (const auto& [stream, queue] : queues_) {
    for (const Free& free : queue) driver_.cuEventDestroy_v2(free.event);
  }
  queues_.clear();
}

size_t DeferredFrees::count() const {
  size_t sum = 0;
  for (const auto& [stream, queue] : queues_) sum += queue.size();
  return sum;
}

}  // namespace tube::proxy

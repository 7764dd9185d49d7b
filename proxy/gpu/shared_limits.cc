#include "proxy/gpu/shared_limits.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/driver_wrappers.h"

namespace tube::proxy {

namespace {

// The others are hints to the hardware, which would slow other functions down.
bool is_applied(int32_t limit) {
  return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
         limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT;
}

}  // namespace

CUresult SharedLimits::look(const Driver& driver, int32_t limit, Applied** applied) {
  const auto [entry, fresh] = applied_.try_emplace(limit);
  *applied = &entry->second;
  if (!fresh) return CUDA_SUCCESS;
  size_t value = 0;
  const CUresult error = driver.cuCtxGetLimit(&value, static_cast<CUlimit>(limit));
  entry->second = {value, value};
  if (error != CUDA_SUCCESS) applied_.erase(entry);
  return error;
}

CUresult SharedLimits::reserve_heap(const Driver& driver, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  Applied* heap = nullptr;
  CUresult error = look(driver, CU_LIMIT_MALLOC_HEAP_SIZE, &heap);
  if (error != CUDA_SUCCESS || bytes <= heap->now) return error;
  error = driver.cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, bytes);
  if (error == CUDA_SUCCESS) heap->now = bytes;
  return error;
}

// With the wish of `who` being `value`.
uint64_t SharedLimits::needed(int32_t limit, uint64_t initial, const Wisher& who,
                              uint64_t value) const {
  uint64_t largest = initial, sum = initial;
  const auto add = [&](uint64_t wish) {
    largest = std::max(largest, wish);
    const uint64_t more = wish > initial ? wish - initial : 0;
    sum += std::min(more, std::numeric_limits<uint64_t>::max() - sum);
  };
  add(value);
  for (auto wish = wishes_.lower_bound({limit, 0, 0});
       wish != wishes_.end() && std::get<0>(wish->first) == limit; ++wish) {
    if (wish->first != who) add(wish->second);
  }
  return limit == CU_LIMIT_MALLOC_HEAP_SIZE ? sum : largest;
}

CUresult SharedLimits::want(const Driver& driver, ContextGate& gate, uint64_t session,
                            uint32_t context, int32_t limit, uint64_t value) {
  if (!is_applied(limit)) return CUDA_SUCCESS;
  const Wisher who{limit, session, context};
  {
    std::lock_guard lock(mutex_);
    Applied* applied = nullptr;
    if (CUresult error = look(driver, limit, &applied); error != CUDA_SUCCESS) return error;
    if (needed(limit, applied->initial, who, value) <= applied->now) {
      wishes_[who] = value;
      return CUDA_SUCCESS;
    }
  }
  return gate.context_wide(this_caller(), "cuCtxSetLimit",
                           [&] { return raise(driver, who, value); });
}

// Until the context has enough: meanwhile others may have wished for what was there.
CUresult SharedLimits::raise(const Driver& driver, const Wisher& who, uint64_t value) {
  const int32_t limit = std::get<0>(who);
  std::lock_guard changing(changing_);
  while (true) {
    uint64_t now = 0, all = 0;
    {
      std::lock_guard lock(mutex_);
      const Applied& applied = applied_.at(limit);
      now = applied.now;
      all = needed(limit, applied.initial, who, value);
      if (all <= now) {
        wishes_[who] = value;
        return CUDA_SUCCESS;
      }
    }
    const CUresult error = driver.cuCtxSetLimit(static_cast<CUlimit>(limit), all);
    std::lock_guard lock(mutex_);
    if (error == CUDA_SUCCESS) {
      applied_.at(limit).now = all;
      continue;
    }
    // Kernels of some function have used the heap or the buffer already. What is there may be
    // enough for this one.
    if (error == CUDA_ERROR_INVALID_VALUE && (value <= now || limit == CU_LIMIT_PRINTF_FIFO_SIZE)) {
      wishes_[who] = std::min(value, now);
      return CUDA_SUCCESS;
    }
    if (error == CUDA_ERROR_INVALID_VALUE && limit == CU_LIMIT_MALLOC_HEAP_SIZE)
      log_warn(
          "a function asks for a device heap of %lu MiB, but kernels use the one of %lu MiB "
          "already: start the proxy with a larger TUBE_DEVICE_HEAP_MIB",
          value >> 20, now >> 20);
    else
      log_info("limit %d stays at %lu instead of %lu: the driver answers %d", limit, now, all,
               static_cast<int>(error));
    return error;
  }
}

void SharedLimits::forget(const Driver& driver, ContextGate& gate, uint64_t session,
                          uint32_t context) {
  {
    std::lock_guard lock(mutex_);
    const size_t before = wishes_.size();
    std::erase_if(wishes_, [=](const auto& wish) {
      return std::get<1>(wish.first) == session && std::get<2>(wish.first) == context;
    });
    const auto stack = applied_.find(CU_LIMIT_STACK_SIZE);
    if (wishes_.size() == before || stack == applied_.end() ||
        rest_of_stack(stack->second) >= stack->second.now)
      return;
  }
  (void)gate.context_wide(this_caller(), "cuCtxSetLimit", [&] { return lower_stack(driver); });
}

uint64_t SharedLimits::rest_of_stack(const Applied& applied) const {
  return needed(CU_LIMIT_STACK_SIZE, applied.initial, {}, 0);
}

CUresult SharedLimits::lower_stack(const Driver& driver) {
  std::lock_guard changing(changing_);
  uint64_t before = 0, rest = 0;
  {
    std::lock_guard lock(mutex_);
    Applied& stack = applied_.at(CU_LIMIT_STACK_SIZE);
    before = stack.now;
    rest = rest_of_stack(stack);
    if (rest >= before) return CUDA_SUCCESS;
    stack.now = rest;  // at once: a larger wish from here on comes behind this
  }
  const CUresult error = driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, rest);
  if (error == CUDA_SUCCESS) return error;
  std::lock_guard lock(mutex_);
  applied_.at(CU_LIMIT_STACK_SIZE).now = before;
  return error;
}

}  // namespace tube::proxy

#include "proxy/gpu/promised_memory.h"

#include <algorithm>

#include "base/clock.h"
#include "policies/memory/lazy_backing.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/current_context.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

int64_t PromisedMemory::charged(uint32_t gpu) const { return static_cast<int64_t>(charged_(gpu)); }

// False: the driver does not say.
bool PromisedMemory::ask(uint32_t gpu, Seen* seen) const {
  CUcontext current = nullptr;
  (void)driver_.cuCtxGetCurrent(&current);
  const CUcontext wanted = gpus_[gpu].context;
  const CurrentContext context(driver_, current == wanted ? nullptr : wanted);
  seen->charged = charged(gpu);
  const uint64_t taken = promised_[gpu].load() + making_[gpu].load();
  size_t free_bytes = 0, total_bytes = 0;
  if (driver_.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return false;
  seen->room = static_cast<int64_t>(free_bytes) - static_cast<int64_t>(taken);
  seen->at_ns = now_ns();
  return true;
}

template <class Enough>
bool PromisedMemory::enough(uint32_t gpu, uint64_t uncounted, Enough enough) {
  if (gpu >= gpus_.count()) return false;
  std::lock_guard lock(mutex_);
  Seen& seen = seen_[gpu];
  const auto look = [&] { return enough(seen.room - (charged(gpu) - seen.charged)); };
  const bool fresh = seen.at_ns != 0 && now_ns() - seen.at_ns < policies::kFreeMemoryFreshNs;
  if (fresh && look()) return true;
  if (!ask(gpu, &seen)) return false;
  seen.room -= static_cast<int64_t>(uncounted);
  return look();
}

bool PromisedMemory::has_room(uint32_t gpu, uint64_t uncounted) {
  if (gpu >= promised_.size() || promised_[gpu].load() == 0) return true;
  return enough(gpu, uncounted, [](int64_t room) { return room >= 0; });
}

bool PromisedMemory::may_promise(int gpu) {
  const auto at = index(gpu);
  return enough(at, 0,
                [&](int64_t room) { return policies::may_promise(room, gpus_[at].total_bytes); });
}

uint64_t PromisedMemory::unpromised(uint32_t gpu, uint64_t free_bytes) const {
  if (gpu >= promised_.size()) return free_bytes;
  return free_bytes - std::min(free_bytes, promised_[gpu].load());
}

}  // namespace tube::proxy

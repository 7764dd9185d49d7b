#include "proxy/gpu/stream_reserve.h"

#include <algorithm>
#include <vector>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {

namespace {

constexpr uint32_t kReserve = 256;  // slots made ahead at a time
constexpr uint32_t kFew = 128;      // left over: more are made when no stream waits; what is
                                    // destroyed with work on its way keeps its slot a while
constexpr uint32_t kGreenReserve = 64;

// Makes so many streams and destroys them; instances find their slots as well. How many there were.
uint32_t make_slots(const Driver& driver, uint32_t count) {
  std::vector<CUstream> streams;
  CUstream stream = nullptr;
  while (streams.size() < count &&
         driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
    streams.push_back(stream);
  for (CUstream made : streams) (void)driver.cuStreamDestroy_v2(made);
  return static_cast<uint32_t>(streams.size());
}

}  // namespace

StreamReserve::Counted* StreamReserve::of(CUcontext context) {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(counted_.begin(), counted_.end(),
                                  [context](const Counted& c) { return c.context == context; });
  return found == counted_.end() ? nullptr : &*found;
}

void StreamReserve::prepare(const Driver& driver, CUcontext context) {
  {
    std::lock_guard lock(mutex_);
    counted_.emplace_back().context = context;
  }
  grow(driver, context);
}

StreamReserve::Slot StreamReserve::take(CUcontext context) {
  Counted* counted = of(context);
  if (counted == nullptr) return Slot::kTaken;
  std::lock_guard lock(mutex_);
  if (counted->taken >= counted->slots) return Slot::kNone;
  ++counted->taken;
  return counted->taken + kFew > counted->slots ? Slot::kTakenOfFew : Slot::kTaken;
}

void StreamReserve::cancel(CUcontext context) {
  Counted* counted = of(context);
  if (counted == nullptr) return;
  std::lock_guard lock(mutex_);
  --counted->taken;
}

void StreamReserve::made(CUcontext context, const void* handle) {
  Counted* counted = of(context);
  if (counted == nullptr) return;
  std::lock_guard lock(mutex_);
  holders_[handle] = counted;
}

bool StreamReserve::gone(const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = holders_.find(handle);
  if (found == holders_.end()) return false;
  --found->second->taken;
  holders_.erase(found);
  return true;
}

void StreamReserve::grow(const Driver& driver, CUcontext context) {
  Counted* counted = of(context);
  if (counted == nullptr) return;
  std::lock_guard growing(counted->growing);
  uint32_t taken = 0;
  {
    std::lock_guard lock(mutex_);
    if (counted->slots != 0 && counted->taken + kFew <= counted->slots)
      return;  // another thread has grown it
    taken = counted->taken;
  }
  const uint32_t made = make_slots(driver, kReserve);
  std::lock_guard lock(mutex_);
  // At the limit the driver's error is returned to the caller that makes a stream.
  counted->slots = std::max(counted->slots, taken + std::max(made, 1u));
}

void StreamReserve::grow_uncounted(const Driver& driver) {
  (void)make_slots(driver, kGreenReserve);
}

}  // namespace tube::proxy

#include "proxy/session/parked_waits.h"

#include <algorithm>

#include "proxy/gpu/context_gate.h"
#include "proxy/session/stream_state.h"

namespace tube::proxy {

bool ParkedWaits::Wait::satisfied() const {
  const bool wide = bytes == 8;
  const uint64_t now = wide ? __atomic_load_n(static_cast<const uint64_t*>(word), __ATOMIC_ACQUIRE)
                            : __atomic_load_n(static_cast<const uint32_t*>(word), __ATOMIC_ACQUIRE);
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return wide ? static_cast<int64_t>(now - value) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(now) -
                                         static_cast<uint32_t>(value)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == (wide ? value : static_cast<uint32_t>(value));
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return wide ? ~(now | value) != 0 : static_cast<uint32_t>(~(now | value)) != 0;
  }
}

bool ParkedWaits::came_before(uint64_t record) const {
  return std::find(passes_.begin(), passes_.end(), record) != passes_.end();
}

bool ParkedWaits::stays(const Wait& wait, const StreamState& stream, CUdevice device,
                        uint64_t record) {
  if (came_before(record) || gate_.wait_has_room(owner_, device, room_) || wait.satisfied())
    return false;
  ParkKeys keys;
  stream.add_keys(keys, true);
  parked_.hold(keys);
  holds_.push_back({wait, keys, device, record});
  return true;
}

// As many go as there is room for, the oldest first, and those whose value is there.
bool ParkedWaits::look() {
  bool any = false, full = false;
  for (Hold& hold : holds_) {
    if (!hold.goes && !full && !any) full = !gate_.wait_has_room(owner_, hold.device, room_);
    hold.goes = hold.goes || hold.wait.satisfied() || (!full && !any);
    any = any || hold.goes;
  }
  return any;
}

void ParkedWaits::give_up() {
  for (Hold& hold : holds_) hold.goes = true;
}

void ParkedWaits::settle() {
  std::erase_if(holds_, [&](const Hold& hold) {
    if (!hold.goes) return false;
    parked_.let_go(hold.keys);
    passes_.push_back(hold.record);
    return true;
  });
}

void ParkedWaits::clear() {
  holds_.clear();
  passes_.clear();
}

}  // namespace tube::proxy

#include "proxy/waits/own_waits.h"

#include <algorithm>

#include "base/clock.h"
#include "proxy/gpu/context_gate.h"

namespace tube::proxy {

bool OwnWaits::stays(uint64_t record, CUdevice device) {
  const auto call = std::find_if(calls_.begin(), calls_.end(),
                                 [&](const Call& each) { return each.record == record; });
  const uint64_t now = now_ns();
  if (call == calls_.end()) {
    if (!gate_.waits_for(owner_, device, now)) return false;
    calls_.push_back({record, device, now});
    return true;
  }
  if (!call->goes) return true;
  calls_.erase(call);
  return false;
}

bool OwnWaits::look() {
  const uint64_t now = now_ns(), patience_ns = uint64_t{gate_.patience_ms()} * 1'000'000;
  bool any = false;
  for (Call& call : calls_) {
    if (call.goes) continue;
    call.goes =
        now - call.since_ns >= patience_ns || !gate_.waits_for(owner_, call.device, call.since_ns);
    any = any || call.goes;
  }
  return any;
}

void OwnWaits::forget(uint64_t record) {
  std::erase_if(calls_, [record](const Call& call) { return call.record == record; });
}

}  // namespace tube::proxy

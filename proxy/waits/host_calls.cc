#include "proxy/waits/host_calls.h"

#include "sharedmem/accessors.h"

namespace tube::proxy {

bool HostCalls::due(uint64_t now_ns) {
  if (!any() || now_ns - looked_ns_ < kLookNs) return false;
  looked_ns_ = now_ns;
  std::erase_if(newest_, [](const auto& call) {
    const auto& [word, value] = call;
    return shared::load_word(*word) >= value;
  });
  return any();
}

}  // namespace tube::proxy

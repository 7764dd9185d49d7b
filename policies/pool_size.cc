#include "policies/pool_size.h"

#include <algorithm>

namespace tube::policies {

PoolDemand::Size* PoolDemand::find(uint32_t gpu, uint64_t bytes) {
  for (Size& size : sizes_)
    if (size.bytes == bytes && size.gpu == gpu) return &size;
  return nullptr;
}

void PoolDemand::found(uint32_t gpu, uint64_t bytes, uint64_t now_ns) {
  if (Size* size = find(gpu, bytes)) size->last_ns = now_ns;
}

void PoolDemand::missed(uint32_t gpu, uint64_t bytes, uint64_t now_ns) {
  Size* size = find(gpu, bytes);
  const bool lately = size != nullptr && !pool_expired(size->last_ns, now_ns);
  if (size == nullptr) {  // in place of the one that was asked for the longest ago
    size = &*std::min_element(sizes_.begin(), sizes_.end(),
                              [](const Size& a, const Size& b) { return a.last_ns < b.last_ns; });
  }
  const uint32_t ahead = lately ? std::clamp(2 * size->ahead, 1u, kMostAhead) : 0;
  *size = {bytes, gpu, ahead, now_ns};
}

uint32_t PoolDemand::ahead(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const {
  for (const Size& size : sizes_)
    if (size.bytes == bytes && size.gpu == gpu)
      return pool_expired(size.last_ns, now_ns) ? 0 : size.ahead;
  return 0;
}

}  // namespace tube::policies

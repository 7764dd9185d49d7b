#include "policies/memory/eviction.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace tube::policies {

std::string_view eviction_order_name(EvictionOrder order) {
  switch (order) {
    case EvictionOrder::kQueue: return "queue";
    case EvictionOrder::kLru: return "lru";
  }
  return "";
}

std::optional<EvictionOrder> parse_eviction_order(std::string_view name) {
  for (const EvictionOrder order : kEvictionOrders)
    if (name == eviction_order_name(order)) return order;
  return std::nullopt;
}

uint64_t Turns::next_ns(uint64_t now_ns) const {
  if (working_) return now_ns;
  if (last_ns_ != 0 && distance_ns_ != 0) {
    const uint64_t due = last_ns_ + distance_ns_;
    if (now_ns < due + distance_ns_) return std::max(due, now_ns);
  }
  return now_ns + (now_ns > used_ns_ ? now_ns - used_ns_ : 0);
}

std::vector<EvictionShare> choose_evictions(EvictionOrder order,
                                            std::span<const EvictionCandidate> candidates,
                                            uint64_t bytes, uint64_t largest, uint64_t now_ns) {
  const auto small = [&](const EvictionCandidate& each) {
    return each.bytes < largest / kSmallPart;
  };
  uint64_t of_large = 0;
  for (const EvictionCandidate& each : candidates)
    if (!small(each)) of_large += each.bytes;
  std::vector<EvictionCandidate> able;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(able),
               [&](const auto& each) {
                 return each.bytes != 0 && each.not_before_ns <= now_ns &&
                        (of_large < bytes || !small(each));
               });
  std::stable_sort(able.begin(), able.end(), [&](const auto& a, const auto& b) {
    return order == EvictionOrder::kQueue ? a.next_turn_ns > b.next_turn_ns : a.used_ns < b.used_ns;
  });
  std::vector<EvictionShare> shares;
  for (const EvictionCandidate& each : able) {
    if (bytes == 0) break;
    const uint64_t part = std::min(bytes, each.bytes);
    shares.push_back({each.function, part});
    bytes -= part;
  }
  return shares;
}

std::vector<size_t> choose_blocks(std::span<const uint64_t> sizes, uint64_t bytes) {
  std::vector<size_t> by_size(sizes.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<size_t> chosen;
  for (size_t i = 0; i < by_size.size() && bytes != 0; ++i) {
    if (sizes[by_size[i]] < bytes) {
      chosen.push_back(by_size[i]);
      bytes -= sizes[by_size[i]];
      continue;
    }
    // Any from here on to the last one that is large enough would do alone.
    size_t last = i;
    while (last + 1 < by_size.size() && sizes[by_size[last + 1]] >= bytes) ++last;
    chosen.push_back(by_size[last]);
    bytes = 0;
  }
  return chosen;
}

Leave may_leave(uint64_t came_ns, uint64_t took_ns, uint64_t quiet_ns, uint64_t now_ns) {
  if (quiet_ns >= kQuietNs) return Leave::kWhenIdle;
  const uint64_t stayed = now_ns > came_ns ? now_ns - came_ns : 0;
  if (stayed >= std::max(kLeastDrainNs, kDrainTimes * took_ns)) return Leave::kDrained;
  return stayed >= std::clamp(took_ns, kLeastStayNs, kMostStayNs) ? Leave::kWhenIdle
                                                                  : Leave::kStays;
}

}  // namespace tube::policies

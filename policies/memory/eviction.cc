#include "policies/memory/eviction.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

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

std::optional<uint64_t> Turns::expected_ns(uint64_t now_ns) const {
  if (last_ns_ == 0 || distance_ns_ == 0) return std::nullopt;
  const uint64_t due = last_ns_ + distance_ns_;
  if (now_ns >= due + distance_ns_) return std::nullopt;
  return std::max(due, now_ns);
}

uint64_t Turns::next_ns(uint64_t now_ns) const {
  if (working_) return now_ns;
  if (const auto due = expected_ns(now_ns)) return *due;
  return now_ns + (now_ns > used_ns_ ? now_ns - used_ns_ : 0);
}

namespace {

// The level down to which those who hold more give, so that all together give `bytes`, or what they
// have.
uint64_t level_of(std::vector<uint64_t> held, uint64_t bytes) {
  std::sort(held.begin(), held.end(), std::greater<>());
  uint64_t sum = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    sum += held[i];
    const uint64_t next = i + 1 < held.size() ? held[i + 1] : 0;
    if (sum - next * (i + 1) >= bytes) return (sum - bytes) / (i + 1);
  }
  return 0;
}

// What each gives before anybody gives all it has: none less than a part.
std::vector<uint64_t> first_shares(std::span<const EvictionCandidate> able, uint64_t bytes) {
  uint64_t shortest = UINT64_MAX;
  for (const EvictionCandidate& each : able)
    if (each.distance_ns != 0) shortest = std::min(shortest, each.distance_ns);
  const auto in_circle = [&](const EvictionCandidate& each) {
    return each.distance_ns != 0 && each.distance_ns / 2 <= shortest;
  };
  std::vector<uint64_t> held;  // by those of the circle
  for (const EvictionCandidate& each : able)
    if (in_circle(each)) held.push_back(each.bytes);
  std::vector<uint64_t> shares(able.size(), 0);
  size_t first = 0;  // those before the circle go whole
  for (; first < able.size() && !in_circle(able[first]) && bytes != 0; ++first)
    bytes -= shares[first] = std::min(bytes, able[first].bytes);
  const uint64_t level = level_of(std::move(held), bytes);
  for (size_t i = first; i < able.size(); ++i) {
    const uint64_t more = able[i].bytes - std::min(able[i].bytes, level);
    if (!in_circle(able[i]) || more < kLeastPartBytes) continue;
    bytes -= shares[i] = std::min(bytes, more);
  }
  return shares;
}

}  // namespace

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
                 return each.bytes != 0 && (each.not_before_ns <= now_ns || each.soon) &&
                        (of_large < bytes || !small(each));
               });
  std::stable_sort(able.begin(), able.end(), [&](const auto& a, const auto& b) {
    return order == EvictionOrder::kQueue ? a.next_turn_ns > b.next_turn_ns : a.used_ns < b.used_ns;
  });
  std::vector<uint64_t> parts(able.size(), 0);
  if (order == EvictionOrder::kQueue) parts = first_shares(able, bytes);
  bytes -= std::accumulate(parts.begin(), parts.end(), uint64_t{0});
  std::vector<EvictionShare> shares;
  for (size_t i = 0; i < able.size(); ++i) {
    const uint64_t more = std::min(bytes, able[i].bytes - parts[i]);
    bytes -= more;
    if (parts[i] + more != 0) shares.push_back({able[i].function, parts[i] + more, able[i].soon});
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

#include "policies/memory/pool_size.h"

#include <algorithm>
#include <bit>

namespace tube::policies {

namespace {

constexpr uint32_t kAged = 4096;  // requests, behind which old ones count half
constexpr std::array<const char*, 3> kNames = {"demand", "keep", "static"};

template <size_t N>
void count(std::array<uint32_t, N>& buckets, size_t which) {
  uint64_t sum = 0;
  for (const uint32_t bucket : buckets) sum += bucket;
  if (sum >= kAged)
    for (uint32_t& bucket : buckets) bucket /= 2;
  ++buckets[std::min(which, N - 1)];
}

// The bucket that 99 of 100 do not exceed. None: nothing was counted.
template <size_t N>
std::optional<size_t> p99(const std::array<uint32_t, N>& buckets) {
  uint64_t sum = 0, below = 0;
  for (const uint32_t bucket : buckets) sum += bucket;
  if (sum == 0) return std::nullopt;
  for (size_t i = 0; i < N; ++i) {
    below += buckets[i];
    if (below * 100 >= sum * 99) return i;
  }
  return N - 1;
}

}  // namespace

std::optional<PoolPolicy> parse_pool_policy(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i]) return static_cast<PoolPolicy>(i);
  return std::nullopt;
}

const char* pool_policy_name(PoolPolicy policy) { return kNames[static_cast<size_t>(policy)]; }

// ---- one size ----------------------------------------------------------------------------------

void SizeProfile::add_interval(uint64_t ns) {
  ns = std::min(ns, kPoolQuietNs);
  count(intervals, static_cast<size_t>(std::bit_width(ns / 1000)));
  distance_ns = distance_ns == 0 ? std::max<uint64_t>(ns, 1) : (7 * distance_ns + ns) / 8;
}

void SizeProfile::add_held(uint32_t blocks) { count(held, blocks); }

uint64_t SizeProfile::window_ns() const {
  const auto bucket = p99(intervals);
  if (!bucket) return kPoolQuietNs;  // the first one may be one of many
  return std::clamp((uint64_t{1} << *bucket) * 1000, kPoolLookNs, kPoolQuietNs);
}

uint32_t SizeProfile::most_held() const { return static_cast<uint32_t>(p99(held).value_or(1)); }

// ---- a function --------------------------------------------------------------------------------

const PoolDemand::Size* PoolDemand::find(uint32_t gpu, uint64_t bytes) const {
  for (const Size& size : sizes_)
    if (size.bytes == bytes && size.gpu == gpu) return &size;
  return nullptr;
}

PoolDemand::Size& PoolDemand::enter(uint32_t gpu, uint64_t bytes) {
  if (const Size* known = find(gpu, bytes)) return const_cast<Size&>(*known);
  // In place of the one that was asked for the longest ago.
  Size& size = *std::ranges::min_element(sizes_, {}, &Size::last_ns);
  size = {bytes, gpu, 0, 0, 0, {}};
  return size;
}

void PoolDemand::asked(Size& size, uint64_t now_ns) {
  if (size.last_ns != 0) size.profile.add_interval(now_ns - size.last_ns);
  size.profile.add_held(++size.held);
  size.last_ns = now_ns;
}

void PoolDemand::found(uint32_t gpu, uint64_t bytes, uint64_t now_ns) {
  asked(enter(gpu, bytes), now_ns);
}

void PoolDemand::missed(uint32_t gpu, uint64_t bytes, uint64_t now_ns) {
  Size& size = enter(gpu, bytes);
  const bool lately = size.last_ns != 0 && !pool_expired(size.last_ns, now_ns);
  size.ahead = lately ? std::clamp(2 * size.ahead, 1u, kMostAhead) : 0;
  asked(size, now_ns);
}

void PoolDemand::freed(uint32_t gpu, uint64_t bytes) {
  const Size* known = find(gpu, bytes);
  if (known != nullptr && known->held != 0) --const_cast<Size*>(known)->held;
}

void PoolDemand::forget() {
  for (Size& size : sizes_) size.ahead = 0;
}

bool PoolDemand::restore(uint32_t gpu, uint64_t bytes, const SizeProfile& profile) {
  if (bytes == 0 || find(gpu, bytes) != nullptr) return false;
  const auto place = std::ranges::find(sizes_, uint64_t{0}, &Size::bytes);
  if (place == sizes_.end()) return false;
  *place = {bytes, gpu, 0, 0, 0, profile};
  place->profile.distance_ns = std::min(profile.distance_ns, kPoolQuietNs);
  for (uint32_t& bucket : place->profile.intervals) bucket = std::min(bucket, kAged);
  for (uint32_t& bucket : place->profile.held) bucket = std::min(bucket, kAged);
  return true;
}

uint32_t PoolDemand::ahead(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const {
  const Size* size = find(gpu, bytes);
  return size == nullptr || pool_expired(size->last_ns, now_ns) ? 0 : size->ahead;
}

uint32_t PoolDemand::worth(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const {
  const Size* size = find(gpu, bytes);
  if (size == nullptr || now_ns > size->last_ns + size->profile.window_ns()) return 0;
  const uint32_t most = size->profile.most_held();
  const uint32_t reserved = most > size->held ? most - size->held : 0;
  const uint64_t distance = size->profile.distance_ns;
  // Of what has been asked for once nothing is known: one is kept.
  const uint64_t next = distance == 0 ? 1 : (2 * remake_ns(bytes) + distance / 2) / distance;
  return static_cast<uint32_t>(std::min<uint64_t>(reserved, next));
}

}  // namespace tube::policies

#include "proxy/memory/ranges.h"

#include <iterator>
#include <utility>

namespace tube::proxy {

Ranges::Ranges() = default;
Ranges::~Ranges() = default;

bool Ranges::insert(const Range& range) {
  if (range.bytes == 0 || range.base + range.bytes < range.base) return false;
  auto next = map_.lower_bound(range.base);
  if (next != map_.end() && next->first < range.base + range.bytes) return false;
  if (next != map_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second.bytes > range.base) return false;
  }
  map_.emplace_hint(next, range.base, range);
  return true;
}

Range* Ranges::at(uint64_t base) {
  auto it = map_.find(base);
  return it == map_.end() ? nullptr : &it->second;
}

const Range* Ranges::look_up(uint64_t address) {
  auto next = map_.upper_bound(address);
  if (next == map_.begin()) return nullptr;
  const Range& range = std::prev(next)->second;
  if (address - range.base >= range.bytes) return nullptr;
  last_ = &range;
  return last_;
}

const Range* Ranges::covering(uint64_t untrusted_address, uint64_t untrusted_bytes) {
  uint64_t address = untrusted_address;
  uint64_t left = untrusted_bytes;
  if (address + left < address) return nullptr;
  const Range* first = nullptr;
  do {
    const Range* range = find(address);
    if (range == nullptr) return nullptr;
    if (range->kind == RangeKind::kRetired && record_ >= range->retired_at) return nullptr;
    if (first == nullptr) first = range;
    const uint64_t here = range->base + range->bytes - address;
    if (left <= here) return first;
    left -= here;
    address += here;
  } while (true);
}

bool Ranges::read_only(uint64_t untrusted_address, uint64_t untrusted_bytes) const {
  if (read_only_.empty() || untrusted_bytes == 0) return false;
  const auto behind = read_only_.upper_bound(untrusted_address + untrusted_bytes - 1);
  return behind != read_only_.begin() && std::prev(behind)->second > untrusted_address;
}

bool Ranges::erase(uint64_t base) {
  last_ = nullptr;
  const auto found = map_.find(base);
  if (found == map_.end()) return false;
  if (found->second.kind == RangeKind::kPinned && pinned_ends_) pinned_ends_(found->second);
  map_.erase(found);
  return true;
}

void Ranges::on_pinned_end(std::function<void(const Range&)> what) {
  pinned_ends_ = std::move(what);
}

}  // namespace tube::proxy

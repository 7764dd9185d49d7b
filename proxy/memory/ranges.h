// Address ranges that a client may name in copies and memsets, and what each of them is.
//
// An ordered map from base to range; ranges never overlap. A look-up remembers the last hit,
// because copies come in runs. Session thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

namespace tube::proxy {

enum class RangeKind : uint32_t {
  kDevice,      // a device allocation of this client
  kPinned,      // pinned host memory of this client
  kGlobal,      // a module's variable
  kMapped,      // the client's own cuMemMap
  kOpened,      // another process's, by cuIpcOpenMemHandle
  kRegistered,  // the client's own memory, by cuMemHostRegister
  kGraph,       // of an allocation node: the driver placed it (graph_objects.h)
  kExternal,    // a buffer of external memory: the driver placed it (calls/external_objects.cc)
  kRetired,     // freed in stream order, not yet there: never a target
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  int device = 0;
  uint32_t context = 0;
  uint64_t owner = 0;  // library id (kGlobal), slab base (kDevice, kPinned; 0 = not of a slab)
};

class Ranges {
 public:
  bool insert(const Range& range) {
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

  // The range that begins at `base`, or nullptr.
  Range* at(uint64_t base) {
    auto it = map_.find(base);
    return it == map_.end() ? nullptr : &it->second;
  }

  // The range that holds `address`, or nullptr.
  const Range* find(uint64_t address) {
    if (last_ != nullptr && address - last_->base < last_->bytes) return last_;
    auto next = map_.upper_bound(address);
    if (next == map_.begin()) return nullptr;
    const Range& range = std::prev(next)->second;
    if (address - range.base >= range.bytes) return nullptr;
    last_ = &range;
    return last_;
  }

  // Whether [address, address + bytes) lies in ranges of the client, which may adjoin (several
  // mappings in a row).
  bool covers(uint64_t untrusted_address, uint64_t untrusted_bytes) {
    uint64_t address = untrusted_address;
    uint64_t left = untrusted_bytes;
    if (address + left < address) return false;
    do {
      const Range* range = find(address);
      if (range == nullptr || range->kind == RangeKind::kRetired) return false;
      const uint64_t here = range->base + range->bytes - address;
      if (left <= here) return true;
      left -= here;
      address += here;
    } while (true);
  }

  bool erase(uint64_t base) {
    last_ = nullptr;
    const auto found = map_.find(base);
    if (found == map_.end()) return false;
    if (found->second.kind == RangeKind::kPinned && pinned_ends_) pinned_ends_(found->second);
    map_.erase(found);
    return true;
  }
  // Before a range of pinned memory ends.
  void on_pinned_end(std::function<void(const Range&)> what) { pinned_ends_ = std::move(what); }
  size_t size() const { return map_.size(); }
  const std::map<uint64_t, Range>& all() const { return map_; }

 private:
  std::map<uint64_t, Range> map_;
  const Range* last_ = nullptr;
  std::function<void(const Range&)> pinned_ends_;
};

}  // namespace tube::proxy

// Address ranges that a client may name in copies and memsets, and what each of them is.
//
// An ordered map from base to range; ranges never overlap. A look-up remembers the last hit,
// because copies come in runs. Session thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

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
  kStored,      // an object of the store in GPU memory (proxy/store/store.h)
  kStoredHost,  // the same in pinned memory, which all functions share
  kRetired,     // freed in stream order, not yet there: a target of earlier records only
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  int device = 0;
  uint32_t context = 0;
  uint64_t owner = 0;       // library id (kGlobal), slab base (kDevice, kPinned; 0 = not of a slab)
  uint64_t retired_at = 0;  // kRetired: the record that freed it

  // Host memory, which this process has at the same address.
  bool is_host() const {
    return kind == RangeKind::kPinned || kind == RangeKind::kRegistered ||
           kind == RangeKind::kStoredHost;
  }
};

class Ranges {
 public:
  Ranges();
  ~Ranges();
  Ranges(const Ranges&) = delete;
  Ranges& operator=(const Ranges&) = delete;

  // False: the range is empty, leaves the address space or overlaps another one.
  bool insert(const Range& range);

  // The range that begins at `base`, or nullptr.
  Range* at(uint64_t base);

  // The range that holds `address`, or nullptr.
  const Range* find(uint64_t address) {
    return last_ != nullptr && address - last_->base < last_->bytes ? last_ : look_up(address);
  }

  // Where [address, address + bytes) lies in ranges of the client, which may adjoin (several
  // mappings in a row): the first of them. nullptr: not all of it does.
  const Range* covering(uint64_t untrusted_address, uint64_t untrusted_bytes);
  // Memory in which the GPU may only read, whatever ranges lie there: pages from `first` to behind
  // `last`, until they end. Spans never overlap.
  void protect(uint64_t first, uint64_t last) { read_only_[first] = last; }
  void unprotect(uint64_t first) { read_only_.erase(first); }
  // Whether some byte of it is in such memory: nothing may write there, neither the GPU nor this
  // process on a copy's behalf.
  bool read_only(uint64_t untrusted_address, uint64_t untrusted_bytes) const;
  bool covers(uint64_t untrusted_address, uint64_t untrusted_bytes) {
    return covering(untrusted_address, untrusted_bytes) != nullptr;
  }

  // The record that is executed: one that was kept back comes behind later ones.
  void at_record(uint64_t sequence) { record_ = sequence; }
  uint64_t record() const { return record_; }

  bool erase(uint64_t base);
  // Before a range of pinned memory ends.
  void on_pinned_end(std::function<void(const Range&)> what);
  size_t size() const { return map_.size(); }
  const std::map<uint64_t, Range>& all() const { return map_; }

 private:
  const Range* look_up(uint64_t address);

  std::map<uint64_t, Range> map_;
  std::map<uint64_t, uint64_t> read_only_;  // first -> last
  const Range* last_ = nullptr;
  uint64_t record_ = 0;
  std::function<void(const Range&)> pinned_ends_;
};

}  // namespace tube::proxy

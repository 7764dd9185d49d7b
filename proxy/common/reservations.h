// One client's own reservations of addresses (cuMemAddressReserve). Session thread only.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "policies/memory/address_windows.h"
#include "proxy/common/client_limits.h"
#include "sharedmem/windows.h"

namespace tube::proxy {

class Reservations {
 public:
  bool may_add(uint64_t untrusted_bytes) const {
    return bases_.size() < limits::kReservations &&
           policies::may_reserve(bytes_, untrusted_bytes, windows::kDeviceBytes);
  }
  void add(uint64_t base, uint64_t bytes) {
    bases_[base] = bytes;
    bytes_ += bytes;
  }
  bool is_one(uint64_t untrusted_base, uint64_t untrusted_bytes) const {
    const auto found = bases_.find(untrusted_base);
    return found != bases_.end() && found->second == untrusted_bytes;
  }
  // Whether all of it lies in one of them.
  bool holds(uint64_t untrusted_address, uint64_t untrusted_bytes) const {
    const auto next = bases_.upper_bound(untrusted_address);
    if (next == bases_.begin() || untrusted_bytes == 0) return false;
    const auto& [base, size] = *std::prev(next);
    return untrusted_address - base < size && untrusted_bytes <= size - (untrusted_address - base);
  }
  void remove(uint64_t base) {
    const auto found = bases_.find(base);
    bytes_ -= found->second;
    bases_.erase(found);
  }
  bool empty() const { return bases_.empty(); }
  std::pair<uint64_t, uint64_t> first() const { return *bases_.begin(); }

 private:
  std::map<uint64_t, uint64_t> bases_;  // base -> bytes
  uint64_t bytes_ = 0;
};

}  // namespace tube::proxy

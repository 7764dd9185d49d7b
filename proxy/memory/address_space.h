// Hands out addresses of one range, lowest first, and takes them back.
//
// A map of free pieces, merged when neighbours come back; first fit. Plain values: no memory is
// touched, no lock inside (the owner's lock covers it). O(number of free pieces) per allocation,
// which stays small because sizes are few.
#pragma once

#include <cstdint>
#include <map>

namespace tube::proxy {

class AddressSpace {
 public:
  AddressSpace() = default;
  AddressSpace(uint64_t base, uint64_t bytes, uint64_t granularity);

  // 0 when nothing fits. `bytes` is rounded up to the granularity; alignment is a power of two, 0 =
  // granularity. What is found ends at `below` or before.
  uint64_t allocate(uint64_t bytes, uint64_t alignment = 0, uint64_t below = UINT64_MAX);
  // Exactly [address, address + bytes), when that is free.
  bool allocate_at(uint64_t address, uint64_t bytes);
  // The same bytes as were asked for.
  void free(uint64_t address, uint64_t bytes);

  uint64_t base() const { return base_; }
  uint64_t used_bytes() const { return used_; }
  bool empty() const { return used_ == 0; }
  uint64_t round_up(uint64_t bytes) const {
    return (bytes + granularity_ - 1) / granularity_ * granularity_;
  }

 private:
  void take(std::map<uint64_t, uint64_t>::iterator piece, uint64_t address, uint64_t bytes);

  uint64_t base_ = 0;
  uint64_t granularity_ = 1;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> free_;  // address -> bytes
};

}  // namespace tube::proxy

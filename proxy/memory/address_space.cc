#include "proxy/memory/address_space.h"

#include <algorithm>
#include <iterator>

namespace tube::proxy {

AddressSpace::AddressSpace(uint64_t base, uint64_t bytes, uint64_t granularity)
    : base_(base), granularity_(granularity) {
  free_.emplace(base, bytes);
}

void AddressSpace::take(std::map<uint64_t, uint64_t>::iterator piece, uint64_t address,
                        uint64_t bytes) {
  const uint64_t start = piece->first;
  const uint64_t end = start + piece->second;
  // First what may be refused: a request that fails here takes nothing.
  if (address + bytes < end) free_.emplace(address + bytes, end - address - bytes);
  if (address > start) piece->second = address - start;
  else free_.erase(piece);
  used_ += bytes;
}

uint64_t AddressSpace::allocate(uint64_t bytes, uint64_t alignment, uint64_t below) {
  if (bytes == 0 || bytes > (1ull << 62)) return 0;
  bytes = round_up(bytes);
  if (alignment < granularity_) alignment = granularity_;
  for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
    const uint64_t address = (piece->first + alignment - 1) / alignment * alignment;
    const uint64_t end = std::min(piece->first + piece->second, below);
    if (address >= end || end - address < bytes) continue;
    take(piece, address, bytes);
    return address;
  }
  return 0;
}

bool AddressSpace::allocate_at(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || bytes > (1ull << 62) || address % granularity_ != 0) return false;
  bytes = round_up(bytes);
  auto piece = free_.upper_bound(address);
  if (piece == free_.begin()) return false;
  --piece;
  const uint64_t end = piece->first + piece->second;
  if (address >= end || end - address < bytes) return false;
  take(piece, address, bytes);
  return true;
}

void AddressSpace::free(uint64_t address, uint64_t bytes) {
  bytes = round_up(bytes);
  auto [piece, inserted] = free_.emplace(address, bytes);
  used_ -= bytes;
  if (!inserted) return;
  if (auto next = std::next(piece);
      next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece != free_.begin()) {
    auto before = std::prev(piece);
    if (before->first + before->second == piece->first) {
      before->second += piece->second;
      free_.erase(piece);
    }
  }
}

}  // namespace tube::proxy

// Content hashes (XXH3): names for module images and tables. Not for hostile input: collisions can
// be made.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tube {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

uint64_t hash64(const void* data, size_t size_bytes);
Hash128 hash128(const void* data, size_t size_bytes);

// For unordered_map.
struct Hash128Hasher {
  size_t operator()(const Hash128& h) const { return static_cast<size_t>(h.low ^ h.high); }
};

}  // namespace tube

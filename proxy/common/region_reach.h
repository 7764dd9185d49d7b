// How far a region of rows and slices reaches in memory, from numbers that a client chose.
#pragma once

#include <cstdint>

namespace tube::proxy {

// Of linear memory: rows of `pitch` bytes, `height` of them a slice.
struct RegionShape {
  const uint64_t (&origin)[3];  // bytes, rows, slices
  const uint64_t (&extent)[3];  // each at least 1
  uint64_t pitch;
  uint64_t height;
};

// *bytes: from the memory's start to behind the region's last byte. False when that, or anything on
// the way to it, leaves 2^60: a product that wraps would tell of a place that is not the region's.
inline bool region_reach(const RegionShape& untrusted, uint64_t* bytes) {
  constexpr int kBits = 60;  // sums of a few such numbers stay in 64 bits
  const auto sane = [](uint64_t number) { return number >> kBits == 0; };
  for (int i = 0; i < 3; ++i) {
    if (!sane(untrusted.origin[i]) || !sane(untrusted.extent[i])) return false;
  }
  uint64_t rows = 0, end = 0;
  if (__builtin_mul_overflow(untrusted.origin[2] + untrusted.extent[2] - 1, untrusted.height,
                             &rows) ||
      !sane(rows))
    return false;
  rows += untrusted.origin[1] + untrusted.extent[1] - 1;
  if (__builtin_mul_overflow(rows, untrusted.pitch, &end) || !sane(end)) return false;
  *bytes = end + untrusted.origin[0] + untrusted.extent[0];
  return true;
}

// The bytes that the region itself has; false when they leave 2^60.
inline bool region_bytes(const uint64_t (&untrusted_extent)[3], uint64_t* bytes) {
  return !__builtin_mul_overflow(untrusted_extent[0], untrusted_extent[1], bytes) &&
         !__builtin_mul_overflow(*bytes, untrusted_extent[2], bytes) && *bytes >> 60 == 0;
}

}  // namespace tube::proxy

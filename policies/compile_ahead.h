// Whether the driver's cache hands on what was compiled, by the times of two loads of one image.
#pragma once

#include <cstdint>

namespace tube::policies {

// A first load of so long has compiled: on an H200 the smallest text takes 6 ms, a load from the
// cache 0.5 ms with ten thousand instructions.
inline constexpr uint64_t kLeastCompileNs = 4'000'000;
constexpr bool tells_of_cache(uint64_t first_ns) { return first_ns >= kLeastCompileNs; }

constexpr bool cache_serves(uint64_t first_ns, uint64_t again_ns) {
  return again_ns < first_ns / 2;
}

}  // namespace tube::policies

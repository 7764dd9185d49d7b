// What tubeHostRegister carries for each piece of a registered range: which file its pages are, and
// where in it. Written by the hook, untrusted in the proxy.
#pragma once

#include <cstdint>

namespace tube::wire {

inline constexpr uint64_t kHostPageBytes = 4096;
inline constexpr uint32_t kMaxHostSegments = 256;
inline constexpr uint32_t kMaxHostFiles = 8;  // distinct fds of one call

struct HostSegment {
  uint64_t address;  // page-aligned; segments are in ascending order and leave no gap
  uint64_t bytes;    // whole pages
  uint64_t offset;   // of the file; page-aligned
  uint64_t token;    // FdMessage of the file; segments of one file name the same
};
static_assert(sizeof(HostSegment) == 32);

}  // namespace tube::wire

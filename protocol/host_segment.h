// Limits of what tubeHostRegister carries (protocol/calls: HostSegment).
#pragma once

#include <cstdint>

#include "protocol/wire.gen.h"

namespace tube::wire {

inline constexpr uint64_t kHostPageBytes = 4096;
inline constexpr uint32_t kMaxHostSegments = 256;
inline constexpr uint32_t kMaxHostFiles = 8;  // distinct fds of one call

}  // namespace tube::wire

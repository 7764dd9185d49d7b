// Monotonic time in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace tube {

// About 25 ns (vDSO): fine per wait, too dear per record.
inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace tube

// Sizes and times in tests.
#pragma once

#include <cstdint>

namespace tube {

inline constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
inline constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;  // in nanoseconds

}  // namespace tube

// How urgent a function's kernels are beside those of others (`tubectl run --priority`).
//
// The hardware deals out the blocks of a kernel of higher priority before those of others that
// wait; it takes none away that run. A program's own stream priorities, 0 to -5 on today's GPUs,
// keep their order among its streams, as far as numbers are left: high ones have the upper three,
// low ones the lower two, normal ones are as the program says. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tube::policies {

enum class LaunchPriority : int32_t { kLow = -1, kNormal = 0, kHigh = 1 };

inline std::optional<LaunchPriority> parse_launch_priority(std::string_view text) {
  if (text == "high") return LaunchPriority::kHigh;
  if (text == "normal") return LaunchPriority::kNormal;
  if (text == "low") return LaunchPriority::kLow;
  return std::nullopt;
}
inline const char* launch_priority_name(LaunchPriority priority) {
  return priority == LaunchPriority::kHigh  ? "high"
         : priority == LaunchPriority::kLow ? "low"
                                            : "normal";
}

// The priority of a stream or a launch for which the program said `own`, 0 or less: the lower, the
// more urgent.
inline int stream_priority(LaunchPriority function, int own) {
  constexpr int kGreatest = -5;
  own = std::clamp(own, kGreatest, 0);
  switch (function) {
    case LaunchPriority::kLow: return own < 0 ? -1 : 0;
    case LaunchPriority::kNormal: return own;
    case LaunchPriority::kHigh: return -3 + own / 2;
  }
  return own;
}

}  // namespace tube::policies

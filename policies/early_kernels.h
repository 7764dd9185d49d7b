// Which kernels of an image are loaded with it, before anybody asks for them: those that functions
// looked up when they loaded this image before. Loading code waits for the whole context, and every
// launch stands meanwhile (docs/decisions/0009); a start that loads some hundred kernels one by one
// waits as many times. Together they need one quiet moment (docs/decisions/0028).
//
// A kernel that nobody has wanted for kForgetLoads loads of the image is not loaded early any more:
// it costs memory and time for nothing.
#pragma once

#include <cstdint>

namespace tube::policies {

inline constexpr uint64_t kForgetLoads = 8;
// So long may a moment last: everybody's launches stand. What it does not suffice for is loaded
// when it is asked for.
inline constexpr uint64_t kEarlyNs = 5'000'000;

// `last_wanted`: at which of the image's loads somebody wanted it last; they count from 1.
constexpr bool loads_early(uint64_t last_wanted, uint64_t this_load) {
  return this_load - last_wanted <= kForgetLoads;
}

}  // namespace tube::policies

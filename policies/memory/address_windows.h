// Which of the agreed address windows a new function gets, and how much of a window its
// reservations may take (cuMemAddressReserve).
//
// The functions of one window find each other's objects in the store, so the first window goes to
// everybody until half of its addresses are taken; then the one with the fewest taken does.
//
// A reservation costs nothing but addresses, and programs are generous: PyTorch's expandable
// segments reserve nine eighths of a GPU's memory for each of their pools. One function gets half
// of a window at most, all together three quarters: the rest is for allocations, which nobody's
// reservations may make fail.
#pragma once

#include <cstdint>

namespace tube::policies {

// Whether a window takes new functions whatever the others have left.
constexpr bool window_stays_first(uint64_t used_bytes, uint64_t window_bytes) {
  return used_bytes <= window_bytes / 2;
}

// From the window's start: reservations lie below, allocations anywhere.
constexpr uint64_t reservable_bytes(uint64_t window_bytes) { return window_bytes / 4 * 3; }

// Whether a function that has reserved so much of a window may have so many bytes more.
constexpr bool may_reserve(uint64_t reserved_bytes, uint64_t more_bytes, uint64_t window_bytes) {
  const uint64_t most = window_bytes / 2;
  return more_bytes <= most && reserved_bytes <= most - more_bytes;
}

}  // namespace tube::policies

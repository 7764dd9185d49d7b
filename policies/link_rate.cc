#include "policies/link_rate.h"

#include <algorithm>

namespace tube::policies {

// The least first: one that moves less than its share leaves the rest to those behind it.
uint64_t own_link_rate(uint64_t link, std::span<uint64_t> others) {
  std::sort(others.begin(), others.end());
  uint64_t left = link, sharers = others.size() + 1;
  for (const uint64_t rate : others) {
    left -= std::min(rate, left / sharers);
    --sharers;
  }
  return left;
}

}  // namespace tube::policies

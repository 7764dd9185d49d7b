// What a kernel keeps to know when a launch of it is worth a look (session/long_launches.h): the
// first ones, some of the later ones, those of more blocks than any that was short, and each one of
// a kernel that may be long. For all others due() is all that it costs.
#pragma once

#include <cstdint>

namespace tube::proxy {

struct LaunchWatch {
  uint32_t left = 1;         // launches until the next look
  uint32_t span = 1;         // of which that is the last
  uint64_t most_blocks = 0;  // that are known to be short

  bool due(uint64_t blocks) { return --left == 0 || blocks > most_blocks; }
  void look_in(uint32_t launches) { left = span = launches; }
  // How many launches this one stands for.
  uint32_t seen() const { return span - left; }
};

}  // namespace tube::proxy

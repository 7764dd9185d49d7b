// A spinning thread's offer of its core to others, while that is cheap (policies/core_offers.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "policies/core_offers.h"

namespace tube::shared {

// Any thread. Threads that offer at once may lose a note of one; nothing rests on it.
class CoreOffer {
 public:
  // `now_ns`: a look at the clock (base/clock.h) of this moment. Blocks for as long as others want
  // the core, unless that was long lately.
  void make(uint64_t now_ns);

 private:
  std::atomic<uint64_t> none_until_ns_{0}, pause_ns_{0};
};

}  // namespace tube::shared

#include "sharedmem/core_offer.h"

#include <sched.h>

#include "base/clock.h"

namespace tube::shared {

void CoreOffer::make(uint64_t now_ns) {
  policies::CoreOffers offers{none_until_ns_.load(std::memory_order_relaxed),
                              pause_ns_.load(std::memory_order_relaxed)};
  if (!offers.due(now_ns)) return;
  ::sched_yield();
  const uint64_t back_ns = tube::now_ns();
  const uint64_t before = offers.none_until_ns;
  offers.made(back_ns, back_ns - now_ns);
  if (offers.none_until_ns == before) return;
  pause_ns_.store(offers.pause_ns, std::memory_order_relaxed);
  none_until_ns_.store(offers.none_until_ns, std::memory_order_relaxed);
}

}  // namespace tube::shared

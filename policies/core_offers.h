// Whether a thread that spins offers its core to others each time round (sched_yield).
//
// Where the other side of the wait shares the core, an offer brings what is waited for. Where
// somebody else wants it, a program's own threads or a batch job of whatever priority, the
// scheduler gives them a whole slice, and the waiter comes 3 to 8 ms late, who natively would have
// spun on. An offer that came dear was taken by such a one: then there are none for a while, for
// longer each time that it happens again.
//
// Plain values; the waiters' clock is in sharedmem/core_offer.h.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tube::policies {

// A round of the other side takes some microseconds, a slice at least 0.7 ms.
inline constexpr uint64_t kDearOfferNs = 250'000;
inline constexpr uint64_t kFirstOfferPauseNs = 1'000'000'000;
inline constexpr uint64_t kLongestOfferPauseNs = 64 * kFirstOfferPauseNs;

struct CoreOffers {
  uint64_t none_until_ns = 0;
  uint64_t pause_ns = 0;  // the last one; 0: none was dear

  constexpr bool due(uint64_t now_ns) const { return now_ns >= none_until_ns; }
  // One was made, and the core came back at `now_ns`.
  constexpr void made(uint64_t now_ns, uint64_t took_ns) {
    if (took_ns < kDearOfferNs) return;
    const bool again = pause_ns != 0 && now_ns - none_until_ns < 8 * pause_ns;
    pause_ns = again ? std::min(2 * pause_ns, kLongestOfferPauseNs) : kFirstOfferPauseNs;
    none_until_ns = now_ns + pause_ns;
  }
};

}  // namespace tube::policies

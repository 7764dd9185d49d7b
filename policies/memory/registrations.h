// When host memory may be registered with the driver, and how much of it at a time.
//
// While cuMemHostRegister runs (60 us a MiB when the pages are there, more when several threads do
// it at once) the driver holds a lock that launches and copies of all functions need. So pieces are
// small, one at a time, and pieces that nobody waits for stand behind the others' work: behind each
// there is a pause of several times what it took, a short one while nobody is at work at this
// moment, and none when nobody but the one whom the memory is for was at work lately. The share of
// time in which others stand still is then bounded by the policy, however dear a piece is; a piece
// that took long because others wait for the same lock makes the next pause longer.
//
// What a request waits for goes at once: only behind the piece that is being registered.
//
// Plain values in, decisions out; proxy/gpu/registrations.h has the clock, the lock and the driver.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tube::policies {

// Who would notice: nobody but the one whom the memory is for was at work lately; others were, but
// nobody is at this moment, and no copy is in flight; somebody is.
enum class Company : uint8_t { kNone, kBetween, kAtWork };

inline constexpr uint64_t kRegisteredPiece = 4ull << 20;  // 0.25 ms of the lock
inline constexpr uint64_t kMostRegisteredAlone = 256ull << 20;
inline constexpr uint64_t kPauseTimesAtWork = 16;
inline constexpr uint64_t kPauseTimesBetween = 4;
inline constexpr uint64_t kLongestPauseNs = 50'000'000;

// How large a piece may be registered ahead of need in this company.
constexpr uint64_t registered_at_once(Company company) {
  return company == Company::kNone ? kMostRegisteredAlone : kRegisteredPiece;
}

// For how long a piece that nobody waits for is still to stand back. `took_ns`: the last piece;
// `since_ns`: for how long that has been over.
constexpr uint64_t registration_pause_ns(Company company, uint64_t took_ns, uint64_t since_ns) {
  uint64_t times = 0;
  switch (company) {
    case Company::kNone: return 0;
    case Company::kBetween: times = kPauseTimesBetween; break;
    case Company::kAtWork: times = kPauseTimesAtWork; break;
  }
  const uint64_t pause = std::min(took_ns, kLongestPauseNs / times) * times;
  return since_ns < pause ? pause - since_ns : 0;
}

}  // namespace tube::policies

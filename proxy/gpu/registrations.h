// The one place where the proxy registers host memory with the driver and unregisters it, whoever
// needs it: what that costs all functions is bounded and counted here
// (policies/memory/registrations.h says when a piece may go).
//
// One piece at a time: several at once only make each other longer, and everybody else stands still
// for all of them. kAhead waits for its moment, kLongestPauseNs a piece at most, so only threads of
// the proxy's own may ask so. kNow, for which a request waits, goes behind the piece in hand, and
// in front of all that wait. A program's own registrations (kFiles) are as large as it wants them,
// as natively; they are only counted, or others' requests would stand behind them here as well.
//
// The pages are to be there before: making them takes far longer than registering them.
//
// Any thread that holds no lock, in a context of the GPUs'. Unregistering may wait for a whole
// context (context_gate.h): nothing is held here meanwhile.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/cuda_api.h"
#include "policies/memory/registrations.h"

namespace tube::proxy {

struct Driver;

// Whose memory it is: shared segments, their later staging chunks, the pinned pools, what left the
// GPUs, the programs' own.
enum class Registrant : uint8_t { kSegments, kChunks, kPinned, kEvicted, kFiles, kCount };
const char* registrant_name(Registrant who);

class Registrations {
 public:
  static constexpr unsigned int kMapped =
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  enum class Need : uint8_t { kNow, kAhead };
  struct Counts {
    uint64_t added = 0, added_bytes = 0;
    uint64_t on_request = 0;  // of these, while a request waited (kNow)
    uint64_t longest_ns = 0;  // of them
    uint64_t removed = 0;
    uint64_t longest_removal_ns = 0;
    uint64_t failed = 0;
    uint64_t stood_back_ns = 0;  // before pieces that nobody waited for, altogether
  };

  Registrations() = default;
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // Who would notice a piece for `owner` (a session; 0: nobody's). From any thread, under the lock:
  // must not wait. Before any thread asks; without it nobody would.
  void look_at(std::function<policies::Company(uint64_t owner)> company) {
    company_ = std::move(company);
  }
  policies::Company company(uint64_t owner) const {
    return company_ ? company_(owner) : policies::Company::kNone;
  }

  // Asked when the moment of a piece has come, without the lock. False: it is not wanted any more.
  using Wanted = std::function<bool()>;
  // The driver's answer; CUDA_ERROR_NOT_FOUND for a piece that is not wanted any more.
  CUresult add(const Driver& driver, Registrant who, uint64_t owner, void* at, uint64_t bytes,
               unsigned int flags, Need need, const Wanted& wanted = {});
  CUresult remove(const Driver& driver, Registrant who, void* at);

  Counts counts(Registrant who) const;

 private:
  void stand_back(std::unique_lock<std::mutex>& lock, uint64_t owner);
  void give_turn_back();

  std::function<policies::Company(uint64_t)> company_;
  mutable std::mutex mutex_;  // leaf: the members below; not held across driver calls
  std::condition_variable changed_;
  bool running_ = false;  // a piece is being registered
  uint32_t urgent_ = 0;   // who waits for a turn with kNow
  uint64_t ended_ns_ = 0, took_ns_ = 0;
  std::array<Counts, static_cast<size_t>(Registrant::kCount)> counts_{};
};

// The same where there may be none (unit tests).
CUresult add_registration(Registrations* registrations, const Driver& driver, Registrant who,
                          uint64_t owner, void* at, uint64_t bytes, unsigned int flags,
                          Registrations::Need need, const Registrations::Wanted& wanted = {});
CUresult remove_registration(Registrations* registrations, const Driver& driver, Registrant who,
                             void* at);

}  // namespace tube::proxy

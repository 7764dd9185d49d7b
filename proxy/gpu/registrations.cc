#include "proxy/gpu/registrations.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kLookNs = 1'000'000;  // between looks for a better moment

}  // namespace

const char* registrant_name(Registrant who) {
  switch (who) {
    case Registrant::kSegments: return "segments";
    case Registrant::kChunks: return "staging chunks";
    case Registrant::kPinned: return "pinned memory";
    case Registrant::kEvicted: return "evicted memory";
    case Registrant::kFiles: return "programs' own";
    case Registrant::kCount: break;
  }
  return "";
}

// Until no piece is in hand, nobody waits with more need, and the pause is over.
void Registrations::stand_back(std::unique_lock<std::mutex>& lock, uint64_t owner) {
  while (true) {
    const uint64_t now = now_ns();
    uint64_t wait_ns = kLookNs;
    if (!running_ && urgent_ == 0) {
      const uint64_t since_ns = now > ended_ns_ ? now - ended_ns_ : 0;
      wait_ns = policies::registration_pause_ns(company(owner), took_ns_, since_ns);
      if (wait_ns == 0) return;
    }
    (void)changed_.wait_for(lock, std::chrono::nanoseconds(std::min(wait_ns, kLookNs)));
  }
}

void Registrations::give_turn_back() {
  {
    std::lock_guard lock(mutex_);
    running_ = false;
  }
  changed_.notify_all();
}

CUresult Registrations::add(const Driver& driver, Registrant who, uint64_t owner, void* at,
                            uint64_t bytes, unsigned int flags, Need need, const Wanted& wanted) {
  const bool takes_turns = who != Registrant::kFiles;
  Counts& counts = counts_[static_cast<size_t>(who)];
  {
    std::unique_lock lock(mutex_);
    if (takes_turns && need == Need::kAhead) {
      const uint64_t came_ns = now_ns();
      stand_back(lock, owner);
      counts.stood_back_ns += now_ns() - came_ns;
    } else if (takes_turns) {
      ++urgent_;
      changed_.wait(lock, [this] { return !running_; });
      --urgent_;
    }
    running_ = running_ || takes_turns;
  }
  if (wanted && !wanted()) {
    if (takes_turns) give_turn_back();
    return CUDA_ERROR_NOT_FOUND;
  }
  const uint64_t began_ns = now_ns();
  const CUresult error = driver.cuMemHostRegister_v2(at, bytes, flags);
  const uint64_t ended_ns = now_ns();
  {
    std::lock_guard lock(mutex_);
    if (takes_turns) {
      running_ = false;
      ended_ns_ = ended_ns;
      took_ns_ = ended_ns - began_ns;
    }
    counts.longest_ns = std::max(counts.longest_ns, ended_ns - began_ns);
    if (error != CUDA_SUCCESS) {
      ++counts.failed;
    } else {
      ++counts.added;
      counts.added_bytes += bytes;
      counts.on_request += need == Need::kNow;
    }
  }
  changed_.notify_all();
  return error;
}

CUresult Registrations::remove(const Driver& driver, Registrant who, void* at) {
  const uint64_t began_ns = now_ns();
  const CUresult error = driver.cuMemHostUnregister(at);
  const uint64_t took_ns = now_ns() - began_ns;
  std::lock_guard lock(mutex_);
  Counts& counts = counts_[static_cast<size_t>(who)];
  if (error == CUDA_SUCCESS) ++counts.removed;
  else ++counts.failed;
  counts.longest_removal_ns = std::max(counts.longest_removal_ns, took_ns);
  return error;
}

Registrations::Counts Registrations::counts(Registrant who) const {
  std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(who)];
}

CUresult add_registration(Registrations* registrations, const Driver& driver, Registrant who,
                          uint64_t owner, void* at, uint64_t bytes, unsigned int flags,
                          Registrations::Need need, const Registrations::Wanted& wanted) {
  if (registrations != nullptr)
    return registrations->add(driver, who, owner, at, bytes, flags, need, wanted);
  if (wanted && !wanted()) return CUDA_ERROR_NOT_FOUND;
  return driver.cuMemHostRegister_v2(at, bytes, flags);
}

CUresult remove_registration(Registrations* registrations, const Driver& driver, Registrant who,
                             void* at) {
  if (registrations == nullptr) return driver.cuMemHostUnregister(at);
  return registrations->remove(driver, who, at);
}

}  // namespace tube::proxy

// Counts the host memory that the proxy holds for its functions, and refuses what does not fit
// (policies/memory/host_budget.h). Whoever makes such memory takes its bytes first and gives them
// back when the pages are gone. Any thread; no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "policies/memory/host_budget.h"

namespace tube::proxy {

// What memory is for. kFiles: pages of registered files that were not there before.
enum class HostUse : uint8_t { kPinned, kSegments, kImages, kEvicted, kFiles, kCount };
const char* host_use_name(HostUse use);

class HostBudget {
 public:
  // `available` says what machine and control groups have left.
  explicit HostBudget(const policies::HostBudget& budget, std::function<uint64_t()> available);
  HostBudget(const HostBudget&) = delete;
  HostBudget& operator=(const HostBudget&) = delete;

  // False: refused, which is logged once for each use. Looks at the system once for each MiB taken,
  // which costs less than the pages do.
  [[nodiscard]] bool take(HostUse use, uint64_t bytes);
  void give(HostUse use, uint64_t bytes);

  const policies::HostBudget& budget() const { return budget_; }
  uint64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }
  uint64_t held_bytes(HostUse use) const {
    return by_use_[static_cast<size_t>(use)].load(std::memory_order_relaxed);
  }
  uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  uint64_t available_bytes() const { return available_(); }

 private:
  void refuse(HostUse use, uint64_t bytes, policies::HostVerdict why, uint64_t available);

  const policies::HostBudget budget_;
  const std::function<uint64_t()> available_;
  std::atomic<uint64_t> held_{0};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(HostUse::kCount)> by_use_{};
  std::array<std::atomic<bool>, static_cast<size_t>(HostUse::kCount)> told_{};
  std::atomic<uint64_t> unlooked_{0};  // taken since the system was looked at
  std::atomic<uint64_t> refusals_{0};
};

// The same where there may be none (unit tests).
inline bool take_host(HostBudget* budget, HostUse use, uint64_t bytes) {
  return budget == nullptr || budget->take(use, bytes);
}
inline void give_host(HostBudget* budget, HostUse use, uint64_t bytes) {
  if (budget != nullptr) budget->give(use, bytes);
}

}  // namespace tube::proxy

#include "proxy/memory/host_budget.h"

#include <utility>

#include "base/log.h"

namespace tube::proxy {

namespace {
constexpr uint64_t kLookBytes = 1u << 20;
}  // namespace

const char* host_use_name(HostUse use) {
  switch (use) {
    case HostUse::kPinned: return "pinned";
    case HostUse::kSegments: return "segments";
    case HostUse::kImages: return "images";
    case HostUse::kEvicted: return "evicted";
    case HostUse::kFiles: return "registered_files";
    case HostUse::kCount: break;
  }
  return "";
}

HostBudget::HostBudget(const policies::HostBudget& budget, std::function<uint64_t()> available)
    : budget_(budget), available_(std::move(available)) {}

bool HostBudget::take(HostUse use, uint64_t bytes) {
  uint64_t available = UINT64_MAX;
  if (unlooked_.fetch_add(bytes, std::memory_order_relaxed) + bytes >= kLookBytes) {
    unlooked_.store(0, std::memory_order_relaxed);
    available = available_();
  }
  uint64_t held = held_.load(std::memory_order_relaxed);
  do {
    const auto verdict = policies::admit_host_bytes(budget_, bytes, held, available);
    if (verdict != policies::HostVerdict::kFits) {
      refuse(use, bytes, verdict, available);
      return false;
    }
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  by_use_[static_cast<size_t>(use)].fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void HostBudget::give(HostUse use, uint64_t bytes) {
  held_.fetch_sub(bytes, std::memory_order_relaxed);
  by_use_[static_cast<size_t>(use)].fetch_sub(bytes, std::memory_order_relaxed);
}

void HostBudget::refuse(HostUse use, uint64_t bytes, policies::HostVerdict why,
                        uint64_t available) {
  unlooked_.store(kLookBytes, std::memory_order_relaxed);  // the next one looks, however small
  refusals_.fetch_add(1, std::memory_order_relaxed);
  if (told_[static_cast<size_t>(use)].exchange(true, std::memory_order_relaxed)) return;
  if (why == policies::HostVerdict::kOverTotal)
    log_warn(
        "%lu bytes of host memory (%s) are refused: the proxy holds %lu for its functions, %lu "
        "is its limit",
        bytes, host_use_name(use), held_bytes(), budget_.total_bytes);
  else
    log_warn(
        "%lu bytes of host memory (%s) are refused: machine or container have %lu left, of "
        "which %lu stay free for the proxy itself",
        bytes, host_use_name(use), available, budget_.headroom_bytes);
}

}  // namespace tube::proxy

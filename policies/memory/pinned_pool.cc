#include "policies/memory/pinned_pool.h"

#include <algorithm>
#include <bit>

namespace tube::policies {
namespace {
constexpr uint64_t kUnit = 2ull << 20;

uint64_t above(uint64_t bytes, uint64_t bound) { return bytes > bound ? bytes - bound : 0; }
}  // namespace

PinnedBudget default_pinned_budget(uint64_t memory_bytes) {
  return {std::clamp<uint64_t>(memory_bytes / 32, 64ull << 20, 4ull << 30)};
}

uint64_t pinned_piece_for(uint64_t request_bytes) {
  if (request_bytes == 0 || request_bytes > kLargestPinnedPiece) return 0;
  if (request_bytes > kSmallPinnedPiece) return std::bit_ceil(request_bytes);
  return std::clamp(std::bit_ceil(4 * request_bytes), kLeastPinnedPiece, kSmallPinnedPiece);
}

void PinnedDemand::arrived(uint64_t now_ns) {
  *this = {};
  last_ns_ = now_ns;
}

void PinnedDemand::asked(uint64_t bytes, bool found, const PinnedBudget& budget, uint64_t now_ns) {
  if (quiet(now_ns)) arrived(now_ns);
  last_ns_ = now_ns;
  if (window_ns_ == 0 || now_ns - window_ns_ >= kPinnedQuietNs) {
    window_ns_ = now_ns;
    before_ = latest_;
    latest_ = 0;
  }
  const uint64_t piece = pinned_piece_for(bytes);
  if (piece == 0) return;
  latest_ = std::max(latest_, bytes);
  ahead_ = std::max(found ? ahead_ : 2 * ahead_, piece);
  ahead_ = std::min(ahead_, budget.client_bytes());
}

bool PinnedDemand::quiet(uint64_t now_ns) const {
  return last_ns_ == 0 || now_ns - last_ns_ >= kPinnedQuietNs;
}

uint64_t next_pinned_piece(const PinnedDemand& demand, const PinnedState& state,
                           const PinnedBudget& budget, uint64_t now_ns) {
  if (demand.quiet(now_ns) || demand.ahead_bytes() == 0) return 0;
  const uint64_t largest = demand.largest_bytes();
  if (state.largest_run_bytes >= largest && state.idle_bytes >= demand.ahead_bytes()) return 0;
  const uint64_t room = std::min(above(budget.client_bytes(), state.idle_bytes),
                                 above(budget.total_bytes, state.total_idle_bytes));
  const uint64_t piece = pinned_piece_for(largest);
  if (piece <= room) return piece;
  // A budget that is not a power of two: the request alone may still fit.
  const uint64_t fits = (largest + kUnit - 1) / kUnit * kUnit;
  return state.largest_run_bytes < largest && fits <= room ? fits : 0;
}

uint64_t pinned_surplus(const PinnedDemand& demand, const PinnedState& state,
                        const PinnedBudget& budget, uint64_t now_ns) {
  if (demand.quiet(now_ns)) return state.returnable_bytes;
  const uint64_t over = std::max(above(state.idle_bytes, budget.client_bytes()),
                                 above(state.total_idle_bytes, budget.total_bytes));
  return std::min(over, state.returnable_bytes);
}

}  // namespace tube::policies

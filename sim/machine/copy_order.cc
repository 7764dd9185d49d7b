#include "sim/machine/copy_order.h"

#include <algorithm>

namespace tube::sim {

// The context behind the one served last, in the order of their numbers.
uint64_t CopyOrder::next_context() const {
  uint64_t lowest = UINT64_MAX, higher = UINT64_MAX;
  for (const ReadyCopy& copy : waiting_) {
    lowest = std::min(lowest, copy.context);
    if (copy.context > last_context_) higher = std::min(higher, copy.context);
  }
  return higher != UINT64_MAX ? higher : lowest;
}

std::vector<ReadyCopy>::iterator CopyOrder::choose(uint64_t context) {
  const auto holder = holder_.find(context);
  const uint64_t kept = holder == holder_.end() ? 0 : holder->second;
  auto best = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->context != context) continue;
    if (it->stream == kept) return it;  // in the order of their arrival
    if (best == waiting_.end()) best = it;
  }
  return best;
}

std::optional<ReadyCopy> CopyOrder::next() {
  if (in_hand_ || waiting_.empty()) return std::nullopt;
  const auto chosen = choose(next_context());
  in_hand_ = *chosen;
  waiting_.erase(chosen);
  last_context_ = in_hand_->context;
  holder_[in_hand_->context] = in_hand_->stream;
  return in_hand_;
}

void CopyOrder::ended() {
  const bool another = std::any_of(waiting_.begin(), waiting_.end(), [this](const ReadyCopy& copy) {
    return copy.context == in_hand_->context && copy.stream == in_hand_->stream;
  });
  if (!in_hand_->keeps || !another) holder_.erase(in_hand_->context);
  in_hand_.reset();
}

}  // namespace tube::sim

#include "sim/machine/block_order.h"

#include <algorithm>
#include <utility>

namespace tube::sim {

void BlockOrder::add(uint64_t number, const DealtKernel& kernel, uint64_t now_ns) {
  kernels_[number] = {std::max<uint64_t>(kernel.blocks, 1), kernel.sms, kernel.priority};
  const auto later = std::find_if(waiting_.begin(), waiting_.end(), [&](uint64_t each) {
    return kernels_[each].priority > kernel.priority;
  });
  waiting_.insert(later, number);
  deal(now_ns);
}

void BlockOrder::deal(uint64_t now_ns) {
  for (size_t i = 0; i < waiting_.size() && free_count_ != 0;) {
    Kernel& kernel = kernels_[waiting_[i]];
    deal(waiting_[i], kernel, now_ns);
    if (kernel.undealt == 0) waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    else ++i;
  }
}

void BlockOrder::deal(uint64_t number, Kernel& kernel, uint64_t now_ns) {
  Blocks blocks{number, {}};
  const uint64_t first = std::min<uint64_t>(kernel.sms.first, free_.size());
  const uint64_t end = first + std::min<uint64_t>(kernel.sms.count, free_.size() - first);
  for (uint64_t sm = first; sm < end && kernel.undealt != 0; ++sm) {
    if (!free_[sm]) continue;
    free_[sm] = false;
    --free_count_;
    --kernel.undealt;
    ++kernel.running;
    blocks.sms.push_back(sm);
  }
  if (!blocks.sms.empty()) running_.insert({now_ns + block_ns_, std::move(blocks)});
}

std::optional<uint64_t> BlockOrder::next_ns() const {
  if (running_.empty()) return std::nullopt;
  return running_.begin()->first;
}

std::optional<uint64_t> BlockOrder::end_next() {
  const auto first = running_.begin();
  const uint64_t now_ns = first->first;
  const Blocks blocks = std::move(first->second);
  running_.erase(first);
  for (const uint64_t sm : blocks.sms) free_[sm] = true;
  free_count_ += blocks.sms.size();
  Kernel& kernel = kernels_[blocks.kernel];
  kernel.running -= blocks.sms.size();
  const bool over = kernel.undealt == 0 && kernel.running == 0;
  if (over) kernels_.erase(blocks.kernel);
  deal(now_ns);
  return over ? std::optional(blocks.kernel) : std::nullopt;
}

}  // namespace tube::sim

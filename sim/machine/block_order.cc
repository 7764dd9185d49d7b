#include "sim/machine/block_order.h"

#include <algorithm>

namespace tube::sim {

void BlockOrder::add(uint64_t number, uint64_t blocks, uint64_t now_ns) {
  kernels_[number] = {std::max<uint64_t>(blocks, 1)};
  waiting_.push_back(number);
  deal(now_ns);
}

void BlockOrder::deal(uint64_t now_ns) {
  while (free_ != 0 && !waiting_.empty()) {
    Kernel& kernel = kernels_[waiting_.front()];
    const uint64_t count = std::min(free_, kernel.undealt);
    running_.insert({now_ns + block_ns_, {waiting_.front(), count}});
    free_ -= count;
    kernel.undealt -= count;
    kernel.running += count;
    if (kernel.undealt == 0) waiting_.pop_front();
  }
}

std::optional<uint64_t> BlockOrder::next_ns() const {
  if (running_.empty()) return std::nullopt;
  return running_.begin()->first;
}

std::optional<uint64_t> BlockOrder::end_next() {
  const auto first = running_.begin();
  const uint64_t now_ns = first->first;
  const auto [number, count] = first->second;
  running_.erase(first);
  free_ += count;
  Kernel& kernel = kernels_[number];
  kernel.running -= count;
  const bool over = kernel.undealt == 0 && kernel.running == 0;
  if (over) kernels_.erase(number);
  deal(now_ns);
  return over ? std::optional(number) : std::nullopt;
}

}  // namespace tube::sim

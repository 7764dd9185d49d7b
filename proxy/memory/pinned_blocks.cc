#include "proxy/memory/pinned_blocks.h"

#include <algorithm>
#include <iterator>

#include "policies/memory/pinned_pool.h"

namespace tube::proxy {

void PinnedBlocks::insert_run(uint64_t address, uint64_t bytes) {
  runs_.emplace(address, bytes);
  by_size_.emplace(bytes, address);
}

void PinnedBlocks::erase_run(std::map<uint64_t, uint64_t>::iterator run) {
  by_size_.erase({run->second, run->first});
  runs_.erase(run);
}

PinnedBlocks::Blocks::iterator PinnedBlocks::block_of(uint64_t address) {
  return std::prev(blocks_.upper_bound(address));
}

void PinnedBlocks::add(uint64_t base, uint64_t bytes) {
  blocks_.emplace(base, State{bytes, bytes});
  insert_run(base, bytes);
  held_ += bytes;
  idle_ += bytes;
  returnable_ += bytes;
}

uint64_t PinnedBlocks::take(uint64_t bytes, uint64_t alignment) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const auto [run_bytes, run] = *it;
    const uint64_t address = (run + alignment - 1) / alignment * alignment;
    const uint64_t before = address - run;
    if (before > run_bytes - bytes) continue;
    State& block = block_of(run)->second;
    if (!policies::pinned_block_serves(block.bytes, bytes)) continue;
    erase_run(runs_.find(run));
    if (before != 0) insert_run(run, before);
    if (const uint64_t behind = run_bytes - before - bytes; behind != 0)
      insert_run(address + bytes, behind);
    if (block.free_bytes == block.bytes) returnable_ -= block.bytes;
    block.free_bytes -= bytes;
    idle_ -= bytes;
    return address;
  }
  return 0;
}

void PinnedBlocks::give(uint64_t address, uint64_t bytes) {
  const auto block = block_of(address);
  block->second.free_bytes += bytes;
  idle_ += bytes;
  if (block->second.free_bytes == block->second.bytes) returnable_ += block->second.bytes;
  const uint64_t first = block->first, last = first + block->second.bytes;
  auto next = runs_.lower_bound(address + bytes);
  if (next != runs_.end() && next->first == address + bytes && next->first < last) {
    bytes += next->second;
    const auto merged = next++;
    erase_run(merged);
  }
  if (next != runs_.begin()) {
    const auto before = std::prev(next);
    if (before->first >= first && before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
      erase_run(before);
    }
  }
  insert_run(address, bytes);
}

void PinnedBlocks::give_all() {
  runs_.clear();
  by_size_.clear();
  for (auto& [base, block] : blocks_) {
    block.free_bytes = block.bytes;
    insert_run(base, block.bytes);
  }
  idle_ = returnable_ = held_;
}

std::vector<PinnedBlocks::Block> PinnedBlocks::remove_idle(uint64_t bytes) {
  std::vector<Block> removed;
  uint64_t sum = 0;
  for (auto it = by_size_.end(); it != by_size_.begin() && sum < bytes;) {
    const auto [run_bytes, run] = *--it;
    const auto block = blocks_.find(run);
    if (block == blocks_.end() || block->second.bytes != run_bytes) continue;
    removed.push_back({run, run_bytes});
    sum += run_bytes;
    it = by_size_.erase(it);
    runs_.erase(run);
    blocks_.erase(block);
  }
  held_ -= sum;
  idle_ -= sum;
  returnable_ -= sum;
  return removed;
}

uint64_t PinnedBlocks::largest_run() const {
  for (auto it = by_size_.rbegin(); it != by_size_.rend(); ++it) {
    const auto block = std::prev(blocks_.upper_bound(it->second));
    if (policies::pinned_block_serves(block->second.bytes, 0)) return it->first;
  }
  return 0;
}

std::vector<PinnedBlocks::Block> PinnedBlocks::all() const {
  std::vector<Block> list;
  for (const auto& [base, block] : blocks_) list.push_back({base, block.bytes});
  return list;
}

}  // namespace tube::proxy

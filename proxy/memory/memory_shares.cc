#include "proxy/memory/memory_shares.h"

#include <sys/random.h>

#include <cerrno>

#include "base/clock.h"
#include "proxy/memory/memory_map.h"

namespace tube::proxy {

uint64_t random_bits() {
  uint64_t bits = 0;
  ssize_t got;
  do {
    got = getrandom(&bits, sizeof(bits), 0);
  } while (got < 0 && errno == EINTR);
  return got == sizeof(bits)
             ? bits
             : now_ns();  // a kernel without getrandom is older than any driver we run on
}

MemoryShares::MemoryShares(MemoryMap& map) : map_(map), proxy_id_(random_bits()) {}

CUresult MemoryShares::share(uint64_t session, const SharedMemory& memory, MemoryHandle* handle) {
  ShareToken token{random_bits(), random_bits()};
  if (!map_.retain(memory.block)) return CUDA_ERROR_INVALID_VALUE;
  bool offered = false;
  {
    std::lock_guard lock(mutex_);
    if (auto known = by_base_.find(memory.base); known != by_base_.end()) {
      token = known->second;
      offered = true;
    } else {
      Record& record = records_[token];
      record.memory = memory;
      record.session = session;
      by_base_[memory.base] = token;
      offered_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (offered) map_.release(memory.block);
  *handle = MemoryHandle{kMemoryHandleMagic, proxy_id_, token, {}};
  return CUDA_SUCCESS;
}

bool MemoryShares::shared(uint64_t base) const {
  if (offered_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(mutex_);
  return by_base_.contains(base);
}

bool MemoryShares::withdraw(uint64_t base) {
  BlockId block = BlockId::kNone;
  {
    std::lock_guard lock(mutex_);
    auto known = by_base_.find(base);
    if (known == by_base_.end()) return true;
    auto record = records_.find(known->second);
    record->second.withdrawn = true;
    if (record->second.opens != 0) return false;
    block = record->second.memory.block;
    records_.erase(record);
    by_base_.erase(known);
    offered_.fetch_sub(1, std::memory_order_relaxed);
  }
  map_.release(block);
  return true;
}

void MemoryShares::let_go(uint64_t base) {
  BlockId block = BlockId::kNone;
  {
    std::lock_guard lock(mutex_);
    auto known = by_base_.find(base);
    if (known == by_base_.end()) return;
    auto record = records_.find(known->second);
    by_base_.erase(known);
    offered_.fetch_sub(1, std::memory_order_relaxed);
    record->second.withdrawn = true;
    record->second.let_go = true;
    if (record->second.opens != 0) return;
    block = record->second.memory.block;
    records_.erase(record);
  }
  map_.release(block);
}

CUresult MemoryShares::open(const ShareToken& untrusted_token, uint64_t session,
                            SharedMemory* memory) {
  std::lock_guard lock(mutex_);
  auto found = records_.find(untrusted_token);
  if (found == records_.end() || found->second.withdrawn) return CUDA_ERROR_INVALID_VALUE;
  if (found->second.session == session) return CUDA_ERROR_INVALID_CONTEXT;
  ++found->second.opens;
  *memory = found->second.memory;
  return CUDA_SUCCESS;
}

void MemoryShares::close(const ShareToken& token) {
  BlockId block = BlockId::kNone;
  {
    std::lock_guard lock(mutex_);
    auto found = records_.find(token);
    if (found == records_.end() || --found->second.opens != 0 || !found->second.let_go) return;
    block = found->second.memory.block;
    records_.erase(found);
  }
  map_.release(block);
}

uint32_t MemoryShares::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(records_.size());
}

}  // namespace tube::proxy

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

void MemoryShares::share(uint64_t session, const SharedMemory& memory, MemoryHandle* handle) {
  ShareToken token{random_bits(), random_bits()};
  {
    std::lock_guard lock(mutex_);
    if (auto known = by_base_.find(memory.base); known != by_base_.end()) {
      token = known->second;
    } else {
      Record& record = records_[token];
      record.memory = memory;
      record.session = session;
      by_base_[memory.base] = token;
      offered_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  *handle = MemoryHandle{kMemoryHandleMagic, proxy_id_, token, {}};
}

bool MemoryShares::shared(uint64_t base) const {
  if (offered_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(mutex_);
  return by_base_.contains(base);
}

bool MemoryShares::withdraw(uint64_t base) {
  std::lock_guard lock(mutex_);
  auto known = by_base_.find(base);
  if (known == by_base_.end()) return true;
  Record& record = records_[known->second];
  record.withdrawn = true;
  if (record.opens != 0) return false;
  records_.erase(known->second);
  by_base_.erase(known);
  offered_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool MemoryShares::bequeath(uint64_t base, const Block& block) {
  std::lock_guard lock(mutex_);
  auto known = by_base_.find(base);
  if (known == by_base_.end()) return false;
  const ShareToken token = known->second;
  by_base_.erase(known);
  offered_.fetch_sub(1, std::memory_order_relaxed);
  Record& record = records_[token];
  if (record.opens == 0) {
    records_.erase(token);
    return false;
  }
  record.withdrawn = true;
  record.holds_block = true;
  record.memory.block = block;
  return true;
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
  Block block;
  {
    std::lock_guard lock(mutex_);
    auto found = records_.find(token);
    if (found == records_.end() || --found->second.opens != 0 || !found->second.holds_block) return;
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

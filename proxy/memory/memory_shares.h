// Device memory that its owner has offered to other processes (cuIpcGetMemHandle), and the sessions
// that have it open.
//
// Between functions of one proxy opening is an alias: the address is the same for everybody, so
// nothing is mapped or copied and the driver is not asked. What needs care is life. Natively the
// memory lives until its owner has freed it and every opener has closed it, so a record counts the
// openers and holds a reference on the block, from the offer on. An owner that frees a large
// allocation, or ends, lets go: the last closer ends the record. A freed piece of a slab whose
// owner lives must keep its place in the slab: the owner withdraws it and asks again later. A proxy
// of the same user counts as one opener for each of its clients (broker.h).
//
// The handle holds a random token of 128 bits: its holder may open the memory, as natively. Any
// thread. `mutex_` (rank 15) is not held across driver calls, so references on blocks are given
// back after it is.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/cuda_api.h"
#include "proxy/memory/block.h"

namespace tube::proxy {

class MemoryMap;

struct ShareToken {
  uint64_t high = 0;
  uint64_t low = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): a zero of the compiler's own
  auto operator<=>(const ShareToken&) const = default;
};

// The 64 bytes that programs pass on.
struct MemoryHandle {
  uint64_t magic;
  uint64_t proxy;  // MemoryShares::proxy_id of its maker
  ShareToken token;
  uint64_t reserved[4];
};
static_assert(sizeof(MemoryHandle) == sizeof(CUipcMemHandle));
inline constexpr uint64_t kMemoryHandleMagic = 0x314d454d45425554ull;  // "TUBEMEM1"

struct SharedMemory {
  BlockId block = BlockId::kNone;
  uint64_t base = 0;
  uint64_t bytes = 0;  // as the owner asked for
};

class MemoryShares {
 public:
  explicit MemoryShares(MemoryMap& map);

  // Drawn at start: tells this proxy's handles from those of others, also of the one that ran
  // before it.
  uint64_t proxy_id() const { return proxy_id_; }

  // ---- the owner's session ----
  // The handle of the allocation at `memory.base`; the same one again while the allocation lives.
  // CUDA_ERROR_INVALID_VALUE: there is no such block.
  CUresult share(uint64_t session, const SharedMemory& memory, MemoryHandle* handle);
  // One load while the proxy shares nothing.
  bool shared(uint64_t base) const;
  // No new openers. True: nobody has it open, the record is gone. False: ask again later.
  bool withdraw(uint64_t base);
  // No new openers, and the owner never asks again: the record ends with the last close, or now.
  void let_go(uint64_t base);

  // ---- openers ---- CUDA_ERROR_INVALID_VALUE for a token that names nothing (any more),
  // CUDA_ERROR_INVALID_CONTEXT for the owner itself. `session` 0: another proxy.
  CUresult open(const ShareToken& untrusted_token, uint64_t session, SharedMemory* memory);
  void close(const ShareToken& token);

  uint32_t count() const;

 private:
  struct Record {
    SharedMemory memory;
    uint64_t session = 0;
    uint32_t opens = 0;
    bool withdrawn = false;
    bool let_go = false;
  };

  MemoryMap& map_;
  uint64_t proxy_id_ = 0;
  std::atomic<uint32_t> offered_{0};  // size of by_base_
  mutable std::mutex mutex_;
  std::map<ShareToken, Record> records_;
  std::map<uint64_t, ShareToken> by_base_;  // those whose owner has not let go
};

// Random bits from the kernel: ids and tokens that nobody guesses.
uint64_t random_bits();

}  // namespace tube::proxy

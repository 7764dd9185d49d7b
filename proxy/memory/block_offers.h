// The blocks of GPU memory that one client may take without asking: its side of the pool
// (block_pool.h), and the words in shared memory that say so (sharedmem/abi.h).
//
// An offer is bound to one block from when that is allocated or made ahead until it goes back to
// the driver; the block keeps its address, mapping and access all that time. Either the client
// holds it as an allocation, or it is *idle*: charged to the client's account, counted as free, the
// client's to take, and anybody's to have given back when memory is short. The word in shared
// memory decides between client and proxy; this class keeps what the proxy knows and believes
// nothing else.
//
//   free      -> bind()              -> held
//   held      -> give_back()         -> idle     the client freed it
//   idle      -> take() or reuse()   -> held
//   idle      -> withdraw...()       -> free     the word was still `ready`: back to the driver
//   held      -> unbind()            -> free
//
// take() may find the block held: the record that frees it is kept back (parked_records.h), the
// client has taken it again meanwhile. Its session knows whether that can be.
//
// Any thread: the session's own, the pool's, and those of other sessions that need memory. `mutex_`
// (rank 18) is not held across driver calls: blocks that go are handed to the caller.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "policies/memory/pool_size.h"
#include "proxy/memory/block.h"
#include "sharedmem/segment.h"

namespace tube::proxy {

class BlockPool;
class MemoryAccount;
class MemoryMap;

class BlockOffers {
 public:
  struct Client {
    uint64_t session = 0;
    uint32_t window = 0;
    std::shared_ptr<MemoryAccount> account;
  };
  struct Counts {
    std::atomic<uint64_t> posted{0};      // allocations that the client took by itself
    std::atomic<uint64_t> reused{0};      // round trips for which there was an idle block
    std::atomic<uint64_t> made{0};        // round trips for which one had to be made
    std::atomic<uint64_t> ahead{0};       // blocks made ahead
    std::atomic<uint64_t> given_back{0};  // idle blocks that went back to the driver
  };
  struct Held {
    uint32_t offer = 0;  // its number, from 1
    BlockId block = BlockId::kNone;
    uint64_t address = 0;
    bool was_idle = true;
  };

  // The segment outlives close().
  BlockOffers(BlockPool& pool, MemoryMap& map, Client client, const shared::Segment& segment);

  const Client& client() const { return client_; }
  const Counts& counts() const { return counts_; }

  // ---- the session's thread
  // A block that the client has got by a round trip. 0: no offer is free: it may be kept when it is
  // freed all the same.
  uint32_t bind(BlockId block);
  // For a round trip: an idle block that serves it, from now on held.
  std::optional<Held> reuse(uint32_t gpu, uint64_t bytes);
  // The client says that it took this offer. Nothing: that cannot be.
  std::optional<Held> take(uint32_t untrusted_offer, uint32_t gpu, uint64_t untrusted_address,
                           uint64_t untrusted_bytes);
  // The client has freed the block. `client_returns`: it makes the offer ready itself. False: the
  // block is the caller's to release.
  bool give_back(uint32_t offer, bool client_returns);
  // The same for a block without an offer.
  bool keep(BlockId block);
  // The block goes its own way.
  void unbind(uint32_t offer);
  // Idle blocks without memory (MemoryMap::has_memory) are the caller's to release, if the client
  // has not taken them meanwhile.
  void withdraw_without_memory(std::vector<BlockId>* gone);
  // What is known of the client's requests; and what is known of earlier runs, before its first
  // one.
  policies::PoolDemand demand() const;
  void restore(const policies::PoolDemand& earlier);
  // The client is gone. `release`: its idle blocks go back to the driver; otherwise its work may
  // still use them, and they stay.
  void close(bool release);

  // ---- any thread; blocks that are withdrawn are the caller's to release
  uint64_t idle_bytes(uint32_t gpu) const;
  void withdraw_all(uint32_t gpu, std::vector<BlockId>* gone);
  // The one that has been idle the longest. False: there is none that could go.
  bool withdraw_oldest(uint32_t gpu, std::vector<BlockId>* gone);
  // What the pool's policy does not hold any longer.
  void withdraw_expired(uint64_t now_ns, std::vector<BlockId>* gone);
  // What is not expected to be wanted soon.
  void withdraw_beyond_worth(uint64_t now_ns, std::vector<BlockId>* gone);

  // ---- the pool's thread
  struct Wish {
    uint32_t gpu;
    uint64_t bytes;
  };
  // What should be made ahead next.
  std::optional<Wish> next_ahead(uint64_t now_ns) const;
  // A block that was made ahead is the client's to take. False: it is the caller's to release.
  bool add_ahead(BlockId block);

 private:
  enum class State : uint8_t { kFree, kHeld, kIdle };
  struct Entry {
    State state = State::kFree;
    uint32_t gpu = 0;
    uint64_t generation = 0;
    BlockId block = BlockId::kNone;
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t idle_since_ns = 0;
  };

  // mutex_ held.
  uint32_t enter(BlockId block, State state, uint32_t most = abi::kOffers);
  void set_idle(Entry& entry, bool idle);
  bool withdraw(uint32_t index, std::vector<BlockId>* gone);
  void clear(uint32_t index);
  uint32_t idle_count(uint32_t gpu, uint64_t bytes) const;
  bool wants_more(uint32_t gpu, uint64_t bytes, uint64_t now_ns) const;

  BlockPool& pool_;
  MemoryMap& map_;
  const Client client_;
  const shared::Segment& segment_;
  Counts counts_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  uint32_t used_ = 0;  // offers that were ever bound: the first ones
  std::array<Entry, abi::kOffers> entries_;
  policies::PoolDemand demand_;
};

}  // namespace tube::proxy

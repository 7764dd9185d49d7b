// The pool of GPU memory: idle blocks of all clients (block_offers.h), their bound, the thread that
// makes blocks ahead and gives back those that nobody wants, and giving them back when memory is
// short. How much is decided by policies/memory/pool_size.h.
//
// Idle blocks lie with the client that freed them or is expected to want them; nobody else gets
// their bytes, or sees what is in them, before the driver has had them back. They are charged to
// that client, so that what it takes is within its limits, and counted as free everywhere. Before a
// request of anybody is refused, by a limit or by the driver, make_room() gives back what is in the
// way. No block is made ahead meanwhile.
//
// Any thread. `mutex_` (rank 16) guards the list of clients; `making_` (rank 14) is held while a
// block is made ahead, which takes as long as three driver calls, and `giving_` (rank 15) while
// blocks go back, so that whoever finds none idle knows that none is on its way. Without budget
// nothing is held and no thread runs.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "policies/memory/pool_size.h"
#include "protocol/device_info.h"
#include "proxy/memory/block_offers.h"

namespace tube::proxy {

class Gpus;
class MemoryMap;

class BlockPool {
 public:
  // `allowed_bytes`: of each GPU; 0: no pool.
  BlockPool(MemoryMap& map, const Gpus& gpus, uint64_t allowed_bytes,
            policies::PoolPolicy policy = policies::PoolPolicy::kKeep);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // The thread. Without it blocks are kept, but none is made ahead or given back for age.
  void start();
  void close();
  policies::PoolPolicy policy() const { return policy_; }

  // nullptr: there is no pool. Until BlockOffers::close().
  std::shared_ptr<BlockOffers> join(BlockOffers::Client client, const shared::Segment& segment);

  // Gives idle blocks of a GPU back until `again` is true: of this account, or of all. False: it
  // never was, or there was no need to try. `seen`: MemoryBudgets::times_given_back() before the
  // attempt that failed, since which others may have given blocks back.
  bool make_room(uint32_t gpu, const MemoryAccount* of, uint64_t seen,
                 const std::function<bool()>& again);

  // `look` at what is free while no block comes from the driver or goes back.
  void while_steady(const std::function<void()>& look);

  uint64_t budget_bytes(uint32_t gpu) const { return budget(gpu).bytes; }

 private:
  friend class BlockOffers;
  void leave(const BlockOffers& offers);
  void look();                   // something may have to be made ahead
  void has_grown(uint32_t gpu);  // a block became idle
  bool has_room(uint32_t gpu, uint64_t bytes) const;

  policies::PoolBudget budget(uint32_t gpu) const;
  std::vector<std::shared_ptr<BlockOffers>> members() const;
  // Blocks that `withdraw` takes from this client go back to the driver; false: it took none.
  template <class Withdraw>
  bool give_back(const BlockOffers& of, const char* why, Withdraw withdraw);
  void note(const BlockOffers& of, const char* why, BlockId block);
  void bound(uint32_t gpu);
  bool shrink_one(uint32_t gpu);
  bool make_one_ahead(const std::shared_ptr<BlockOffers>& offers, uint64_t now_ns);
  void run();
  bool go_round();
  bool any_idle() const;

  MemoryMap& map_;
  const Gpus& gpus_;
  const uint64_t allowed_bytes_;
  const policies::PoolPolicy policy_;
  std::mutex making_, giving_;
  std::atomic<uint32_t> short_{0};  // requests that wait for room: nothing is made ahead
  mutable std::mutex mutex_;        // the members below
  std::condition_variable wanted_;
  std::vector<std::shared_ptr<BlockOffers>> members_;
  bool news_ = false;
  bool watching_ = false;  // the thread looks for old blocks
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tube::proxy

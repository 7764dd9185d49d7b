// Which parts of registered blocks are free: the arithmetic of one pool of pinned memory.
//
// A block is one registration with the driver. Requests take the smallest free run that holds them,
// never across two blocks; what comes back is merged within its block. A block that is larger than
// any piece made ahead serves one request at a time, of more than half its size. Plain values: no
// memory is touched, no lock inside. O(log n) but for runs that only fail an alignment.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tube::proxy {

class PinnedBlocks {
 public:
  struct Block {
    uint64_t base = 0;
    uint64_t bytes = 0;
  };

  // A block that overlaps no other; all of it is free.
  void add(uint64_t base, uint64_t bytes);
  // 0: nothing fits. `alignment`: a power of two.
  uint64_t take(uint64_t bytes, uint64_t alignment);
  // What take() gave, the same bytes.
  void give(uint64_t address, uint64_t bytes);
  void give_all();  // everything that was taken
  // Takes out blocks that are wholly free, the largest first, until they are `bytes` or more.
  std::vector<Block> remove_idle(uint64_t bytes);

  std::vector<Block> all() const;
  bool empty() const { return blocks_.empty(); }
  uint64_t held_bytes() const { return held_; }
  uint64_t idle_bytes() const { return idle_; }
  uint64_t returnable_bytes() const { return returnable_; }  // of blocks that are wholly free
  uint64_t largest_run() const;  // that serves any request which it can hold

 private:
  struct State {
    uint64_t bytes = 0;
    uint64_t free_bytes = 0;
  };
  using Blocks = std::map<uint64_t, State>;
  Blocks::iterator block_of(uint64_t address);
  void insert_run(uint64_t address, uint64_t bytes);
  void erase_run(std::map<uint64_t, uint64_t>::iterator run);

  Blocks blocks_;                                    // by base
  std::map<uint64_t, uint64_t> runs_;                // free: address -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // the same: bytes, address
  uint64_t held_ = 0;
  uint64_t idle_ = 0;
  uint64_t returnable_ = 0;
};

}  // namespace tube::proxy

// One session's blocks of GPU memory that begin as promises: address and charge at once, memory
// before the function's next work that could reach it (docs/memory.md).
//
//   make()     the function is at rest: nothing that it has given to the GPU runs or waits, so
//              nothing can use an address that it has not got yet. Then the block is promised
//              (memory_map.h); else it is made as ever.
//   waits()    until back(), which the session calls before the next record that may reach
//              memory (works_promised()).
//   ended()    the block is freed: it costs nothing but its address.
//
// An idle block (block_offers.h) may be promised, too: the client frees and takes it again without
// asking. Before work it is withdrawn (residency.cc); if the client has just taken it, so that the
// work may learn its address, it is backed like the others.
//
// The session's thread. Costs without promises: a test with each record.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/memory/device_memory.h"

namespace tube::proxy {

class LazyBlocks final : public BlockSource {
 public:
  struct Counts {
    std::atomic<uint64_t> promised{0};  // blocks
    std::atomic<uint64_t> backed{0};
    std::atomic<uint64_t> ended{0};  // before there was memory behind them
  };

  // `at_rest`: whether no work of the function is outstanding, in the driver or here. All outlive
  // it.
  LazyBlocks(MemoryMap& map, std::function<bool()> at_rest)
      : map_(map), at_rest_(std::move(at_rest)) {}

  // Without it each block is made at once.
  void open(uint64_t session, bool on) {
    session_ = session;
    on_ = on;
  }

  // ---- BlockSource
  CUresult make(uint32_t window, int device, uint64_t bytes, MemoryAccount& account,
                Placed* placed) override;
  void ended(BlockId block) override;

  // Some of the client's memory is promised.
  bool waits() const { return waits_; }
  // On these GPUs; `gpus`: how many there are.
  std::vector<uint32_t> places(uint32_t gpus) const;
  // Memory behind every promised block on the GPU, whose context is current. An error leaves the
  // rest promised.
  CUresult back(uint32_t gpu);
  // Nothing is promised any more.
  void settled() { waits_ = false; }

  const Counts& counts() const { return counts_; }

 private:
  struct Promised {
    BlockId block;
    uint32_t gpu;
  };
  void forget_gone();

  MemoryMap& map_;
  const std::function<bool()> at_rest_;
  uint64_t session_ = 0;
  bool on_ = false;
  bool waits_ = false;
  std::vector<Promised> blocks_;
  size_t look_at_ = kLeastLook;  // how many there may be before those that are gone are dropped
  static constexpr size_t kLeastLook = 64;
  Counts counts_;
};

}  // namespace tube::proxy

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
// By address, for a function that has a certificate: a block is promised whatever runs, and backed
// when a record names its address (policies/memory/address_scan.h), or everything when want_all()
// says so. Not so, but like the others before the next work: blocks of up to kLeastBytes, among
// them the slabs of small allocations, and blocks at addresses that the function has had before:
// what is on the GPU may still name them. Blocks that wait for their address have no offers.
//
// The session's thread. Costs without promises: a test with each record.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/cuda_api.h"
#include "policies/memory/address_scan.h"
#include "proxy/memory/device_memory.h"

namespace tube::proxy {

class LazyBlocks final : public BlockSource {
 public:
  static constexpr uint64_t kLeastBytes = 2u << 20;  // of blocks that are left out of by_address

  struct Counts {
    std::atomic<uint64_t> promised{0};  // blocks
    std::atomic<uint64_t> backed{0};
    std::atomic<uint64_t> ended{0};  // before there was memory behind them
    std::atomic<uint64_t> named{0};  // of those that were backed: a record had their address
  };

  // `at_rest`: whether no work of the function is outstanding, in the driver or here. All outlive
  // it.
  LazyBlocks(MemoryMap& map, std::function<bool()> at_rest)
      : map_(map), at_rest_(std::move(at_rest)) {}
  ~LazyBlocks() override;

  // Without it each block is made at once.
  void open(uint64_t session, bool on) {
    session_ = session;
    on_ = on;
  }
  // From the function's first record on, or no longer: then all that is promised is wanted.
  void set_by_address(bool on);
  // Of a function that is tried: no address is given twice, so that no block is backed because its
  // address is known, which in another run it may not be.
  void set_profiled() { profiled_ = true; }
  // Blocks that were backed for such a reason all the same, or for want of room for promises.
  uint64_t not_tried() const { return not_tried_; }
  // Any thread.
  bool by_address() const { return by_address_.load(std::memory_order_relaxed); }

  // ---- BlockSource
  CUresult make(uint32_t window, int device, uint64_t bytes, MemoryAccount& account,
                Placed* placed) override;
  void ended(BlockId block) override;
  void given(uint64_t address, uint64_t bytes) override {
    if (by_address()) had_.add(address, bytes);
  }
  bool may_offer(BlockId block) const override { return !by_address() || map_.has_memory(block); }

  // Some of the client's memory is promised.
  bool waits() const { return waits_; }
  // By address: what a record may reach.
  policies::AddressSpans& spans() { return spans_; }
  void want_all() { all_wanted_ = true; }
  // Whether something is to be backed before the record.
  bool wants() const { return all_wanted_ || !by_address() || at_once_ != 0 || spans_.any_named(); }
  // Nothing has named it yet; also while it is away.
  bool waits_for_address(BlockId block) const;
  // On these GPUs; `gpus`: how many there are.
  std::vector<uint32_t> places(uint32_t gpus) const;
  // On the GPU: what is to be backed before the record.
  uint64_t wanted_bytes(uint32_t gpu) const;
  // Memory behind every promised block on the GPU that is wanted; its context is current. An error
  // leaves the rest promised.
  CUresult back(uint32_t gpu);
  // Nothing that is wanted is promised any more.
  void settled();

  // The block of a promise that has the address, or the room around it. False: none.
  struct Found {
    uint64_t address = 0, bytes = 0;
  };
  bool find(uint64_t address, Found* found) const;
  // What waits for its address.
  std::vector<Found> waiting() const;

  const Counts& counts() const { return counts_; }

 private:
  struct Promised {
    BlockId block;
    uint32_t gpu;
    uint64_t address = 0, bytes = 0;
    bool by_address = false;
  };
  bool wanted(const Promised& each) const {
    return all_wanted_ || !each.by_address || spans_.named(each.address);
  }
  struct Addresses {
    uint64_t address, bytes;
    uint32_t window;
  };
  void keep_freed();
  std::vector<Promised>::iterator place_of(BlockId block);
  void drop(std::vector<Promised>::iterator each);
  void gone(const Promised& each);
  void forget_gone();
  CUresult make_by_address(uint32_t window, int device, uint64_t bytes, MemoryAccount& account,
                           Placed* placed);

  MemoryMap& map_;
  const std::function<bool()> at_rest_;
  uint64_t session_ = 0;
  bool on_ = false;
  bool waits_ = false;
  bool profiled_ = false;
  uint64_t not_tried_ = 0;
  std::vector<Addresses> freed_, kept_;  // of a profile: since the last request, and before
  std::atomic<bool> by_address_{false};
  bool all_wanted_ = false;
  std::vector<Promised> blocks_;
  size_t at_once_ = 0;            // of them, before the next work
  policies::AddressSpans spans_;  // of the others
  policies::AddressSet had_;      // addresses of the client's allocations, those that ended as well
  size_t look_at_ = kLeastLook;   // how many there may be before those that are gone are dropped
  static constexpr size_t kLeastLook = 64;
  Counts counts_;
};

}  // namespace tube::proxy

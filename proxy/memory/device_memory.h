// One client's device memory: what cuMemAlloc and its relatives give it.
//
// A request of up to 1 MiB takes its place in one of the client's 2 MiB slabs (512-byte aligned, as
// the driver does), a larger one gets a block of its own. Slabs may be leased to the client, which
// then cuts its pieces by itself (leased_slabs.cc). Each allocation is a Range of the client,
// with exactly the bytes it asked for, so that a copy past its end is refused as natively. A slab
// goes back when its last piece does, except one per GPU, which waits for the next small request
// or until memory runs out.
// What other processes have open (memory_shares.h) outlives its free: a block of its own is theirs
// from then on, a piece of a slab keeps its place until they closed it. Session thread only.
//
// A block of its own is one that the pool may keep when it is freed, and that the client may take
// again without asking (block_offers.h).
//
// Holds one reference on the block of each slab and of each large allocation (memory_map.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/ranges.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

class BlockOffers;

// Where a client's blocks come from.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // A new block, mapped or promised (MemoryMap::allocate, promise), charged to `account`.
  virtual CUresult make(uint32_t window, int device, uint64_t bytes, MemoryAccount& account,
                        Placed* placed) = 0;
  // The client gives one back for good, which is released next.
  virtual void ended(BlockId block) = 0;
  // The client has an allocation there now.
  virtual void given(uint64_t address, uint64_t bytes) = 0;
  // Whether the client may free and take the block again by itself.
  virtual bool may_offer(BlockId block) const = 0;
};

class DeviceMemory {
 public:
  DeviceMemory(MemoryMap& map, Ranges& ranges, uint64_t session, MemoryAccount& account);
  ~DeviceMemory();

  void set_window(uint32_t window) { window_ = window; }
  // nullptr: the memory map makes them at once. Outlives this.
  void set_source(BlockSource* source) { source_ = source; }
  // nullptr: nothing is kept or offered. Outlives this.
  void set_offers(BlockOffers* offers) { offers_ = offers; }
  // *offer: of the block, 0 when it has none.
  CUresult allocate(int device, uint32_t context, uint64_t untrusted_bytes, CUdeviceptr* address,
                    uint32_t* offer = nullptr);
  // The same for a client that takes leases: *leased says that the slab of this allocation is its
  // to cut from now on.
  CUresult allocate_leasing(int device, uint32_t context, uint64_t untrusted_bytes,
                            CUdeviceptr* address, uint32_t* offer, bool* leased);
  // The client has cut a piece out of a leased slab; it gives a lease back. False: it lies.
  // `frees_wait` as in take().
  bool cut(int device, uint32_t context, uint64_t untrusted_address, uint64_t untrusted_bytes,
           bool frees_wait);
  bool end_lease(uint64_t untrusted_slab);
  // The client has taken an offer. `frees_wait`: records that free memory may be kept back. False:
  // it lies.
  bool take(uint32_t untrusted_offer, int device, uint32_t context, uint64_t untrusted_address,
            uint64_t untrusted_bytes, bool frees_wait);
  // CUDA_ERROR_INVALID_VALUE when it is not the start of an allocation of this client. The GPU must
  // be done with it. `untrusted_returns`: the client makes the block's offer ready itself.
  CUresult free(CUdeviceptr untrusted_address, bool untrusted_returns = false);
  // The record that frees it is kept back, and it was taken again behind that.
  bool was_taken_again(CUdeviceptr address) const { return taken_again_.contains(address); }
  // In stream order: no target any more, and freed by free_retired when the GPU is there.
  CUresult retire(CUdeviceptr untrusted_address);
  CUresult free_retired(CUdeviceptr address) {
    return free(address, RangeKind::kRetired, AtEnd::kKept);
  }
  // The slabs that wait for the next small request. False: there was none.
  bool free_empty_slabs();
  // Everything that belongs to `context`, or everything at all (kAllContexts).
  static constexpr uint32_t kAllContexts = 0xffffffffu;
  void free_all(uint32_t context);
  // The block behind an allocation of this client. kNone: `address` is no allocation's start.
  BlockId block_of(CUdeviceptr address);

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  // Of a block: it may be kept, so that the client makes its offer ready or this does; or not.
  enum class AtEnd : uint8_t { kReturned, kKept, kReleased };
  CUresult free(CUdeviceptr untrusted_address, RangeKind kind, AtEnd end);
  struct Own {
    BlockId block = BlockId::kNone;
    uint32_t offer = 0;  // 0: none
  };
  void end_block(const Own& own, AtEnd end);
  CUresult make_block(int device, uint64_t bytes, Placed* placed);
  void release_block(BlockId block);
  CUresult allocate_block(Range& range, uint32_t* offer);
  void enter(const Range& range);
  struct Slab {
    BlockId block;
    int device;
    AddressSpace space;
    bool leased = false;
  };
  uint64_t place_in_slab(int device, uint64_t bytes, uint64_t* slab_base, CUresult* error);
  // leased_slabs.cc
  bool may_lease() const;
  void set_leased(Slab& slab, bool leased);
  bool clear_place(Slab& slab, uint64_t base, uint64_t bytes, bool frees_wait);
  static uint64_t rounded(uint64_t bytes) {
    return (bytes + abi::kPieceUnit - 1) / abi::kPieceUnit * abi::kPieceUnit;
  }
  // An empty slab goes back when another one of its GPU is empty.
  void release_if_spare(std::map<uint64_t, Slab>::iterator slab);
  void leave_slab(const Range& range);
  void forget(const Range& range);
  bool keep_for_openers(Range& range);
  void collect_lingering();

  MemoryMap& map_;
  Ranges& ranges_;
  uint64_t session_;
  MemoryAccount& account_;  // to which its blocks are charged
  uint32_t window_ = 0;
  BlockSource* source_ = nullptr;
  BlockOffers* offers_ = nullptr;
  std::map<uint64_t, Slab> slabs_;            // by base
  uint32_t leases_ = 0;                       // of these, leased
  std::map<uint64_t, Own> blocks_;            // by address
  std::map<uint64_t, uint32_t> taken_again_;  // by address: so many frees of it are still kept back
  std::vector<uint64_t> lingering_;           // freed pieces of slabs that somebody has open
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint32_t> count_{0};
};

}  // namespace tube::proxy

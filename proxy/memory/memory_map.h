// The owner of all device memory that clients name by address: the address windows, and the blocks
// behind them.
//
// A *block* is one piece of driver memory (cuMemCreate, or another process's by its fd). This class
// alone holds its driver handle and makes the fds that are exported from it; everybody else names
// the block by a BlockId. What a driver call on such memory needs (create, map, access, unmap,
// export, import, release) is done here and nowhere else in the proxy (tests/repo/memory_owner.py).
//
// How long a block lives: as long as there is a reference on it.
//   - The maker of a block holds the first reference.
//   - A session holds one for each of its slabs and large allocations (device_memory.h) and for
//     each handle of its own cuMemCreate. Work in flight is covered by these: a free in stream
//     order gives its reference back when the stream has got there (deferred_frees.h).
//   - An offered allocation (memory_shares.h) holds one from the offer to its last close.
//   - Every mapping beside the block's own address holds one: in another window (place), or in a
//     client's reservation (map).
//   - Each function below holds one while it is in the driver.
// With the last one the block is unmapped from its own address, its handle goes back to the driver,
// and what it was charged with to its maker (memory_budgets.h). An exported fd keeps driver memory
// alive by itself, as natively; none is kept here.
//
// The id of a block that is gone is refused: CUDA_ERROR_INVALID_VALUE, false, or nothing happens.
//
// A window's device half is reserved with the driver when the first client needs that window. A
// block that is allocated gets a POSIX-fd handle type and access from every GPU that reaches its
// own. The pinned half is only held, each client's slot is mapped over it (pinned.h).
//
// Any thread. `mutex_` (rank 20) guards windows, regions, blocks and mappings and is never held
// across a driver call, except while a new window is reserved (a few us, once).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/cuda_api.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "proxy/gpu/promised_memory.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/block.h"
#include "proxy/memory/host_arena.h"
#include "proxy/memory/memory_budgets.h"
#include "proxy/memory/memory_shares.h"
#include "sharedmem/windows.h"

namespace tube::proxy {

struct Driver;
class Gpus;
class Registrations;

inline constexpr uint64_t kBlockBytes = 2u << 20;  // granularity of the address windows

// Of a region of a window: a block's own address, one of place(), or a reservation (device -1).
struct Owner {
  uint64_t session = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;
  int device = -1;
};

// A new block at its address.
struct Placed {
  BlockId block = BlockId::kNone;
  uint64_t address = 0;
};

class MemoryMap {
 public:
  MemoryMap(const Driver& driver, const Gpus& gpus)
      : driver_(driver),
        gpus_(gpus),
        promised_(driver, gpus, [this](uint32_t gpu) { return budgets_.charged_bytes(gpu); }),
        shares_(*this) {
    budgets_.ask_room(
        [this](uint32_t gpu, uint64_t uncounted) { return promised_.has_room(gpu, uncounted); });
  }
  ~MemoryMap();

  // Reserves the window if it is not ours yet. False: something is in the way in this process.
  bool take_window(uint32_t candidate);
  // Addresses of the window that are taken.
  uint64_t used_addresses(uint32_t window) const;
  // Addresses only, for a client's own cuMemAddressReserve. 0 when there is no room in the part of
  // the window that they may lie in (policies/memory/address_windows.h); a hint that is free there
  // is honoured. Nothing may be mapped there any more when they come back.
  uint64_t reserve(uint32_t window, uint64_t session, uint64_t bytes, uint64_t alignment,
                   uint64_t hint);
  void unreserve(uint32_t window, uint64_t address, uint64_t bytes);

  // What a thread without sessions does first: the driver wants some context to be current.
  void enter_context(uint32_t device);
  CUcontext context(uint32_t device) const;
  Registrations& registrations() const;
  uint32_t gpus() const;
  CUuuid uuid(uint32_t gpu) const;
  // Whether one GPU reaches the other's memory.
  bool peers(uint32_t one, uint32_t other) const;

  // ---- making a block; the caller holds its first reference ----

  // Mapped, of at least `bytes`, rounded up to 2 MiB, and charged to `account` for as long as the
  // block lives. CUDA_ERROR_OUT_OF_MEMORY and the driver's own errors.
  CUresult allocate(uint32_t window, uint64_t session, int device, uint64_t bytes,
                    MemoryAccount& account, Placed* placed);
  // The same for memory that nobody has asked for yet (MemoryAccount::charge_ahead).
  CUresult allocate_ahead(uint32_t window, uint64_t session, int device, uint64_t bytes,
                          MemoryAccount& account, Placed* placed);
  // The same, but with nothing behind the address before back(): *promised. Where that could not be
  // promised, the block is made at once. The caller sees to it that nothing reaches the memory.
  // Before and behind a promised block so many addresses are nobody's.
  CUresult promise(uint32_t window, uint64_t session, int device, uint64_t bytes,
                   uint64_t gap_bytes, MemoryAccount& account, Placed* placed, bool* promised);
  // The same for memory of another proxy: of `bytes` bytes, on `device`. The fd stays the caller's;
  // the memory is charged to nobody, its maker has it on his account.
  CUresult import_placed(uint32_t window, uint64_t session, int device, int fd, uint64_t bytes,
                         Placed* placed);
  // Not mapped, charged like the first. The caller has checked the properties. The driver's errors.
  CUresult create(const CUmemAllocationProp& prop, uint64_t bytes, uint64_t flags,
                  MemoryAccount& account, BlockId* block);
  CUresult import_fd(int fd, BlockId* block);

  // ---- references ----

  // False: there is no such block (any more).
  [[nodiscard]] bool retain(BlockId block);
  // Behind all work that uses the memory when it may be the last one: then this unmaps and frees.
  void release(BlockId block);

  // Held ready for its client, which has no use for it now: it counts as free.
  void set_idle(BlockId block, bool idle);

  // ---- mappings beside the block's own address ----

  // The whole block once more, at an address of `window`. CUDA_ERROR_NOT_SUPPORTED: it is in parts,
  // as for the other questions about its handle.
  CUresult place(BlockId block, uint32_t window, uint64_t session, uint64_t* address);
  // A part of the block at an address that a client has reserved; without access at first. The
  // caller has checked that the client owns the addresses.
  CUresult map(BlockId block, uint64_t address, uint64_t bytes, uint64_t offset, uint64_t flags);
  CUresult set_access(uint64_t address, uint64_t bytes, std::span<const CUmemAccessDesc> access);
  // Of place() and map(). The GPU must be done with it. An error leaves everything as it was.
  CUresult unmap(uint64_t address);
  // The same for a caller that goes: whatever the driver says, the mapping's reference goes back.
  void drop_mapping(uint64_t address);
  // Memory behind parts of sparse arrays; `blocks` has one per entry, kNone where memory goes.
  CUresult map_arrays(std::span<CUarrayMapInfo> list, std::span<const BlockId> blocks,
                      CUstream stream);

  // ---- blocks that are away (memory_moves.cc) ----
  //
  // Their bytes are in host memory, or nowhere when nobody needs them any more; the driver has
  // nothing of them. Address, references and the charge to their maker stay. Who moves a block is
  // the session that holds the only reference on it, so that nobody else names its memory
  // meanwhile; none of the functions above may be asked about a block that is away, but release().
  //
  // A large block is one piece of the driver's memory until it leaves for the first time. It comes
  // back in parts (policies::part_bytes), each a piece of its own at its place in the block, and
  // from then on each part goes and comes alone: what one function needs can come while what the
  // other does not is still leaving. A part is on the GPU with its bytes, or away with them.

  struct Movable {
    BlockId block = BlockId::kNone;
    uint64_t address = 0;  // of the part
    uint64_t bytes = 0;
    uint32_t part = 0;
    bool whole = true;  // not divided yet
  };
  using Copies = std::vector<std::unique_ptr<HostCopy>>;
  // Of a session's blocks on a GPU the parts that can go: at an address of their own, used by
  // nobody else, on the GPU or promised, and not idle. *stay: the bytes of what is there and cannot
  // go.
  std::vector<Movable> movable(uint64_t session, int device, uint64_t* stay = nullptr) const;
  // Those that are away and have to come back before the function works again. An idle block is
  // away only if the client has just taken it, or has yet to make its offer ready: others without
  // memory are withdrawn before. In the latter case the pool may take it back at any moment.
  std::vector<Movable> away(uint64_t session, int device) const;
  // The memory behind the part goes back to the driver; `copies` have its bytes: one, or of a whole
  // block as many as it has parts afterwards. None: its host copy still has them, or it is a
  // promised block, which has none. False: it cannot go, or the driver refuses, and stays as it
  // was.
  bool send_away(const Movable& part, Copies copies);
  // Memory behind the part again, whose content the caller brings from host_copy().
  // CUDA_ERROR_OUT_OF_MEMORY: neither the driver nor, unless `beyond_limit`, the workflow's limit
  // has room, and the part is as it was. A block that is gone meanwhile needs nothing: success.
  CUresult bring_back(const Movable& part, bool beyond_limit);
  // nullptr: nobody needs its bytes. Until drop_host_copy().
  const HostCopy* host_copy(const Movable& part) const;
  void drop_host_copy(const Movable& part);
  // Of all parts: nobody needs the bytes of the block any more.
  void drop_host_copies(BlockId block);
  bool divided(BlockId block) const;
  // A block whose parts are all away, with their bytes, comes back undivided. False: it is none.
  bool unite(BlockId block);
  // All of it: neither away nor promised.
  bool has_memory(BlockId block) const;

  // ---- blocks that are promised (memory_moves.cc) ----

  enum class Backing : uint8_t { kDone, kGone, kFailed };
  // Memory behind a promised block. *error: the driver's; the block is as it was. Of its session's
  // thread.
  Backing back(BlockId block, CUresult* error);
  bool is_promised(BlockId block) const;
  // A block that is away without bytes is promised again, instead of made. False: it is as it was,
  // or gone.
  bool promise_again(BlockId block);
  // Away or promised.
  bool lacks_memory(BlockId block) const;
  PromisedMemory& promised() { return promised_; }
  const PromisedMemory& promised() const { return promised_; }
  // Of a session's blocks on a GPU.
  uint64_t promised_bytes(uint64_t session, int device) const;

  // ---- questions ----

  std::optional<BlockPlace> find(BlockId block) const;
  CUresult properties(BlockId block, CUmemAllocationProp* prop);
  // A new POSIX fd, which is the caller's.
  CUresult export_fd(BlockId block, UniqueFd* fd);
  // Whether other programs may have the memory of a client's mapping, too.
  bool mapping_is_shared(uint64_t base) const;

  std::optional<Owner> owner(uint64_t address) const;
  uint64_t used_bytes(int device) const;
  // Addresses that are taken for a session: by its blocks, its reservations and what it opened.
  uint64_t reserved_bytes(uint64_t session) const;
  // For leak tests: live blocks, and regions of the windows that are taken.
  uint32_t blocks() const;
  uint32_t regions() const;
  // What of it other processes may open.
  MemoryShares& shares() { return shares_; }
  // To whom it is charged.
  MemoryBudgets& budgets() { return budgets_; }

 private:
  struct Window {
    bool ours = false;
    bool refused = false;
    Mapping pinned_half;
    AddressSpace device;
  };
  struct Part {
    CUmemGenericAllocationHandle handle = 0;
    bool away = false;  // without a handle, as one that is promised
    std::unique_ptr<HostCopy> copy;
  };
  struct Block {
    Part whole;  // where it is not divided
    BlockPlace place;
    uint32_t references = 0;  // 0: the slot is free
    uint32_t generation = 0;
    MemoryCharge charge;  // empty: another process made the memory
    bool promised = false;
    bool shared = false;      // an fd of it was given out, or it came by one
    std::vector<Part> parts;  // of policies::part_bytes(place.bytes), the last one of what is left
    std::span<Part> all_parts() { return parts.empty() ? std::span(&whole, 1) : std::span(parts); }
    std::span<const Part> all_parts() const {
      return parts.empty() ? std::span(&whole, 1) : std::span(parts);
    }
    uint64_t away_bytes() const;
  };
  static BlockPlace place_of(const Block& block, uint32_t part);
  struct Second {  // a mapping that is not the block's own
    BlockId block = BlockId::kNone;
    uint64_t bytes = 0;
    std::optional<uint32_t> window;  // whose address it takes; none: in a client's reservation
  };

  // mutex_ held.
  Block* live(BlockId block);
  const Block* live(BlockId block) const;
  Part* live(const Movable& part);
  BlockId enter(CUmemGenericAllocationHandle handle, const BlockPlace& place, MemoryCharge charge);

  CUresult allocate_charged(uint32_t window, uint64_t session, int device, uint64_t bytes,
                            MemoryCharge charge, Placed* placed);
  uint64_t in_blocks(int device, uint64_t bytes) const;
  CUresult create_handle(int device, uint64_t bytes, CUmemGenericAllocationHandle* handle) const;
  template <class Take>
  void each_of(uint64_t session, int device, Take take) const;
  CUresult take_handle(BlockId block, CUmemGenericAllocationHandle* handle, BlockPlace* place);
  CUresult place_handle(CUmemGenericAllocationHandle handle, uint64_t session, BlockPlace* place);
  CUresult map_at(CUmemGenericAllocationHandle handle, const BlockPlace& place);
  CUresult make_at(const BlockPlace& place, CUmemGenericAllocationHandle* handle);
  CUresult adopt(CUmemGenericAllocationHandle handle, uint64_t session, BlockPlace place,
                 MemoryCharge charge, Placed* placed);
  bool unmap_own(const BlockPlace& place);
  bool end_mapping(uint64_t address, bool address_is_free);

  const Driver& driver_;
  const Gpus& gpus_;
  MemoryBudgets budgets_;  // outlives the blocks
  PromisedMemory promised_;
  mutable std::mutex mutex_;
  std::array<Window, windows::kCandidates> windows_;
  std::map<uint64_t, Owner> regions_;
  std::deque<Block> blocks_;  // by slot
  std::vector<uint32_t> free_slots_;
  std::map<uint64_t, Second> mappings_;  // by address
  MemoryShares shares_;
};

}  // namespace tube::proxy

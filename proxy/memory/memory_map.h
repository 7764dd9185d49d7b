// Who owns which device address, in every window; and the memory behind it.
//
// A window's device half is reserved with the driver when the first client needs that window.
// Memory is cuMemCreate memory with a POSIX-fd handle type, one handle per block,
// mapped at an address from the window and reachable from every GPU of the proxy. The pinned half
// is only held, each client's slot is mapped over it (pinned.h).
//
// Any thread. `mutex_` (rank 20) guards windows and the owner table and is never held across a
// driver call, except while a new window is reserved (a few us, once).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "base/cuda_api.h"
#include "base/mapping.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/block.h"
#include "proxy/memory/memory_shares.h"
#include "sharedmem/windows.h"

namespace tube::proxy {

struct Driver;
class Gpus;

inline constexpr uint64_t kBlockBytes = 2u << 20;  // granularity of the address windows

struct Owner {
  uint64_t session = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;
  int device = 0;
  uint32_t holders = 1;  // references on the block
};

class MemoryMap {
 public:
  MemoryMap(const Driver& driver, const Gpus& gpus)
      : driver_(driver), gpus_(gpus), shares_(*this) {}
  ~MemoryMap();

  // Reserves the window if it is not ours yet. False: something is in the way in this process.
  bool take_window(uint32_t candidate);

  // A mapped block of at least `bytes`, rounded up to 2 MiB. CUDA_ERROR_OUT_OF_MEMORY and the
  // driver's own errors.
  CUresult allocate(uint32_t window, uint64_t session, int device, uint64_t bytes, Block* block);
  // The same for memory that exists: maps `handle`, which the block owns on success.
  CUresult place(uint32_t window, uint64_t session, int device, CUmemGenericAllocationHandle handle,
                 uint64_t bytes, Block* block);
  // One reference more, or less; without any the memory goes.
  void retain(const Block& block);
  void release(const Block& block);

  // Addresses only, for a client's own cuMemAddressReserve. 0 when there is no room; a hint that is
  // free is honoured.
  uint64_t reserve(uint32_t window, uint64_t session, uint64_t bytes, uint64_t alignment,
                   uint64_t hint);
  void unreserve(uint32_t window, uint64_t address, uint64_t bytes);

  std::optional<Owner> owner(uint64_t address) const;
  uint64_t used_bytes(int device) const;
  // The address blocks in use, for leak tests.
  uint32_t blocks() const;
  // What of it other processes may open.
  MemoryShares& shares() { return shares_; }

 private:
  struct Window {
    bool ours = false;
    bool refused = false;
    Mapping pinned_half;
    AddressSpace device;
  };
  CUresult map_block(const Block& block);

  const Driver& driver_;
  const Gpus& gpus_;
  mutable std::mutex mutex_;
  std::array<Window, windows::kCandidates> windows_;
  std::map<uint64_t, Owner> owners_;
  MemoryShares shares_;
};

}  // namespace tube::proxy

// One client's pinned host memory: its slot of the window, a sparse memory file at the same address
// in both processes.
//
// A request takes addresses from the slot, gets its pages (fallocate, then touched: the first touch
// is what costs, 1.4 GB/s) and is registered with the driver. Requests of up to 64 KiB share
// registered blocks of 2 MiB. Freed blocks stay registered for the next request of that size up to
// limits::kPinnedReuseBytes, because registering on a request path costs milliseconds; beyond that
// their pages go back. Session thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/cuda_api.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "proxy/memory/address_space.h"
#include "proxy/memory/ranges.h"

namespace tube::proxy {

struct Driver;

// What a slot leaves behind: registered memory, whose unregistering would make all other functions
// stand still (docs/decisions/0009-context-gate.md). Its addresses stay taken until it goes. Its
// end waits for the whole context: the janitor's to bring about (janitor.h).
class PinnedRemains {
 public:
  PinnedRemains(const Driver& driver, uint64_t base, std::map<uint64_t, uint64_t> registered);
  ~PinnedRemains();  // in the current context: gives the memory back and leaves a plain reservation
  PinnedRemains(const PinnedRemains&) = delete;
  PinnedRemains& operator=(const PinnedRemains&) = delete;
  uint64_t bytes() const { return bytes_; }

 private:
  const Driver& driver_;
  const uint64_t base_;
  const std::map<uint64_t, uint64_t> registered_;
  uint64_t bytes_ = 0;
};

class PinnedSlot {
 public:
  PinnedSlot(const Driver& driver, Ranges& ranges);
  ~PinnedSlot();
  PinnedSlot(const PinnedSlot&) = delete;
  PinnedSlot& operator=(const PinnedSlot&) = delete;

  // Makes the file and maps it over the window's reservation.
  Status open(uint32_t window, uint32_t client_slot);
  int fd() const { return fd_.get(); }

  CUresult allocate(uint32_t context, uint64_t untrusted_bytes, uint64_t* address);
  CUresult free(uint64_t untrusted_address);
  void free_all(uint32_t context);
  // Unregisters and unmaps everything.
  void close();
  // The same but for what must be unregistered: that is the caller's to end. nullptr when nothing
  // is left.
  std::unique_ptr<PinnedRemains> retire();

  // Leaves everything as it is for good: the GPU may still use it.
  void abandon() { base_ = 0; }

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  CUresult take_block(uint64_t bytes, uint64_t* address);
  void give_block(uint64_t address, uint64_t bytes);
  void drop_block(uint64_t address, uint64_t bytes);
  CUresult populate(uint64_t address, uint64_t bytes);

  const Driver& driver_;
  Ranges& ranges_;
  UniqueFd fd_;
  uint64_t base_ = 0;
  AddressSpace space_;
  std::map<uint64_t, AddressSpace> shared_blocks_;  // 2 MiB blocks that small requests share
  std::map<uint64_t, uint64_t> registered_;         // address -> bytes, in use or waiting for reuse
  std::multimap<uint64_t, uint64_t> reuse_;         // bytes -> address
  uint64_t reuse_bytes_ = 0;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace tube::proxy

// Taking the address windows of windows.h in this process.
//
// Client: WindowReservation::take_all() before the handshake (each candidate as an inaccessible
// mapping: 64 TiB of addresses, no memory), free_mask() into the Hello, keep_only() the chosen one
// afterwards. Proxy: take one candidate's pinned half; its device half goes to the driver
// (cuMemAddressReserve), which must find it free (range_is_free).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/mapping.h"
#include "base/result.h"
#include "sharedmem/windows.h"

namespace tube::shared {

class WindowReservation {
 public:
  // Reserves every candidate that is free. Never fails: a taken candidate is simply not in the
  // mask.
  static WindowReservation take_all();

  uint32_t free_mask() const;
  // Gives the others back. False when `candidate` is not ours.
  bool keep_only(uint32_t candidate);
  // Maps the client's pinned file over its slot of the kept window (the reservation gives way
  // there). Code: errno.
  Status map_pinned(uint32_t candidate, uint32_t client_slot, int pinned_fd);
  // Keeps the addresses for the life of the process (the hook never unmaps).
  void leak();

 private:
  std::array<Mapping, windows::kCandidates> windows_;
};

// Maps the file of a pinned slot over the caller's own reservation of its addresses. Like pinned
// memory natively it is in no core dump: one would make the file's holes pages, gigabytes of them,
// while everybody waits for the process that ends. False: errno says why.
bool map_pinned_slot(uint64_t base, int pinned_fd);

// Why no candidate is left: names the mapping in the way of each candidate outside `free_mask`, or
// the address-space limit. One line.
std::string describe_taken_windows(uint32_t free_mask);
// The first line of /proc/thread-self/maps that overlaps: "7f00..-7f10.. r-xp /usr/lib/x.so", or ""
// when the range is free.
std::string mapping_in_the_way(uint64_t address, uint64_t size_bytes);
bool range_is_free(uint64_t address, uint64_t size_bytes);

}  // namespace tube::shared

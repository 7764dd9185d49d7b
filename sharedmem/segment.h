// The shared segment of one connection (abi.h), made and sealed by the proxy, verified and mapped
// by the client.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/mapping.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "sharedmem/abi.h"

namespace tube::shared {

enum class Fill : uint32_t {
  kSparse,     // pages come when touched (pinned: most of the 64 GiB slot is never used)
  kAllocated,  // pages are taken now: running out of memory is an error here instead of SIGBUS
               // later
};

// A memory file of `size_bytes`, sealed against shrinking and growing. The error says in words what
// ran out. Code: errno.
Result<UniqueFd> create_memory_file(const char* name, uint64_t size_bytes, Fill fill);
// A memory file with pages, sealed against shrinking and growing; the caller may add seals.
Result<UniqueFd> create_index_file(const char* name, uint64_t size_bytes);
// A sealed, read-only memory file with these bytes (the info file).
Result<UniqueFd> create_constant_file(const char* name, const void* data, uint64_t size_bytes);
// Client side: the file is a memory file, of exactly this size, sealed against shrinking and
// growing (and, when `constant`, against writing): what we map now cannot turn into SIGBUS.
Status verify_memory_file(int fd, uint64_t size_bytes, bool constant);

class Segment {
 public:
  Segment() = default;
  Segment(Segment&&) = default;
  Segment& operator=(Segment&&) = default;

  // Proxy: makes, fills the constant header fields (state kStarting), seals; pages for all but the
  // later chunks.
  static Result<Segment> create(uint64_t session_id);
  // Proxy: the constant header fields, of a new segment or a wiped one.
  void begin(uint64_t session_id);
  // Proxy: everything zero, as in a new segment. No other process may have it mapped.
  void wipe(bool more_chunks);
  // Proxy: pages for the later chunks. ENOMEM, ENOSPC.
  Status allocate_more_chunks();
  // Client: verifies and maps. Takes the fd and closes it once mapped.
  static Result<Segment> attach(UniqueFd fd);

  bool valid() const { return memory_.valid(); }
  int fd() const { return fd_.get(); }  // proxy's side only; -1 after attach()

  abi::SegmentHeader& header() const {
    return *reinterpret_cast<abi::SegmentHeader*>(memory_.data());
  }
  abi::WaitCounters& wait_counters() const {
    return *reinterpret_cast<abi::WaitCounters*>(memory_.data() + abi::kWaitCountersOffset);
  }
  char* fault_text() const {
    return reinterpret_cast<char*>(memory_.data() + abi::kFaultTextOffset);
  }
  // Precondition: index < abi::kOffers.
  abi::MemoryOffer& offer(uint32_t index) const {
    return reinterpret_cast<abi::MemoryOffer*>(memory_.data() + abi::kOffersOffset)[index];
  }
  // kRingBytes, mapped twice in a row.
  std::byte* ring() const { return ring_.data(); }
  // Precondition of all below: index < the abi count. The proxy checks an untrusted index before it
  // asks.
  abi::ReplyHeader& reply(uint32_t slot) const;
  std::byte* reply_payload(uint32_t slot) const;
  uint64_t& word(uint32_t index) const;
  uint64_t& chunk_state(uint32_t index) const;
  std::byte* chunk(uint32_t index) const;
  // The range to register with the driver: kRegisteredBytes.
  std::byte* registered() const { return memory_.data() + abi::kWordsOffset; }

 private:
  UniqueFd fd_;
  Mapping memory_;
  Mapping ring_;
};

// The page-aligned device address of a word or chunk, given the device address of registered().
constexpr uint64_t word_offset(uint32_t index) { return uint64_t{index} * 8; }
constexpr uint64_t chunk_state_offset(uint32_t index) {
  return abi::kChunkStatesOffset - abi::kWordsOffset + uint64_t{index} * 8;
}
constexpr uint64_t chunk_offset(uint32_t index) {
  return abi::kChunksOffset - abi::kWordsOffset + abi::chunk_place(index);
}

}  // namespace tube::shared

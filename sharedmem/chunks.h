// Staging chunks for pageable copies (abi.h: kChunkFree). Client side, any thread; waits go through
// the Waiter.
//
// All but one may stand behind streams that wait for what another thread does next, and that thread
// may need one first. So the last one, the reserve, is only for copies that have nothing in front
// of them: it always comes back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sharedmem/segment.h"
#include "sharedmem/wait.h"

namespace tube::shared {

class ChunkPool {
 public:
  void attach(const Segment& segment, Waiter& waiter, const Peer& peer);
  // The proxy has made pages for all chunks (tubeMoreChunks); until then the first kFirstChunks are
  // used.
  void grow() { usable_.store(abi::kChunkCount, std::memory_order_release); }
  bool grown() const { return usable_.load(std::memory_order_acquire) == abi::kChunkCount; }

  // The size of the largest chunk that can be claimed now or later.
  uint32_t largest() const { return abi::chunk_bytes(usable_.load(std::memory_order_acquire) - 1); }

  // A claimed chunk of at least `bytes`, which are at most largest(). try_claim: false when none is
  // free now. claim: waits for one, or until enough(), *chunk is kNoChunk then; two threads that
  // each hold chunks and wait for more can block each other, so post what is filled (the GPU then
  // frees it) before claiming the next.
  static constexpr uint32_t kNoChunk = ~uint32_t{0}, kReserve = abi::kFirstChunks - 1;
  bool try_claim(uint32_t* chunk, uint64_t bytes = abi::kChunkBytes);
  template <class Enough>
  WaitResult claim(uint32_t* chunk, const Probe& probe, uint64_t bytes, Enough enough) {
    return waiter_->until_polled(WaitReason::kChunk, peer_, probe, [&] {
      if (try_claim(chunk, bytes)) return true;
      *chunk = kNoChunk;
      return enough();
    });
  }
  // The reserve, for a copy of kChunkBytes at most that nothing stands in front of. False: another
  // thread's copy has it now.
  bool try_claim_reserve(uint32_t* chunk);
  std::byte* data(uint32_t chunk) const { return segment_->chunk(chunk); }
  // Before posting a copy from it: what was written to it comes before what its next owner writes.
  // The ring and the GPU see to that; this tells ThreadSanitizer.
  void hand_over(uint32_t chunk);
  // Until the GPU has filled it (device to host).
  WaitResult wait_filled(uint32_t chunk, const Probe& probe = {});
  bool filled(uint32_t chunk) const;
  // Until the GPU has taken it (host to device; the client no longer owns it then).
  WaitResult wait_free(uint32_t chunk, const Probe& probe = {});
  // The client emptied it, or gives it back unused. Not after posting a copy from it: the GPU does
  // it then, or the proxy when the copy is refused.
  void release(uint32_t chunk);

 private:
  bool try_claim_one(uint32_t chunk);

  std::atomic<uint32_t> usable_{abi::kFirstChunks};
  const Segment* segment_ = nullptr;
  Waiter* waiter_ = nullptr;
  Peer peer_;
};

// Proxy: the checks of an untrusted chunk range; `chunks` of them have their pages.
constexpr bool valid_chunk_range(uint32_t chunks, uint32_t untrusted_chunk,
                                 uint64_t untrusted_offset, uint64_t untrusted_bytes) {
  return untrusted_chunk < chunks && untrusted_offset <= abi::chunk_bytes(untrusted_chunk) &&
         untrusted_bytes <= abi::chunk_bytes(untrusted_chunk) - untrusted_offset;
}

}  // namespace tube::shared

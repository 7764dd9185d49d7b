#include "sharedmem/chunks.h"

#include "base/sanitizer.h"
#include "sharedmem/accessors.h"

namespace tube::shared {

void ChunkPool::attach(const Segment& segment, Waiter& waiter, const Peer& peer) {
  segment_ = &segment;
  waiter_ = &waiter;
  peer_ = peer;
}

bool ChunkPool::try_claim_one(uint32_t chunk) {
  uint64_t& state = segment_->chunk_state(chunk);
  if (load_word(state) != abi::kChunkFree || !client_claims_chunk(state)) return false;
  acquire_order(&state);
  return true;
}

bool ChunkPool::try_claim(uint32_t* chunk, uint64_t bytes) {
  const uint32_t usable = usable_.load(std::memory_order_acquire);
  // The lowest free one: a program that copies little uses the same few chunks, whose pages both
  // processes have touched and whose bytes are warm. Taking turns cost 5.8x native for the first
  // copies of 1 MiB (H200), all of it page faults.
  for (uint32_t candidate = bytes <= abi::kChunkBytes ? 0 : abi::kFirstChunks; candidate < usable;
       ++candidate) {
    if (candidate == kReserve || !try_claim_one(candidate)) continue;
    *chunk = candidate;
    return true;
  }
  return false;
}

bool ChunkPool::try_claim_reserve(uint32_t* chunk) {
  *chunk = kReserve;
  return try_claim_one(kReserve);
}

void ChunkPool::hand_over(uint32_t chunk) { release_order(&segment_->chunk_state(chunk)); }

bool ChunkPool::filled(uint32_t chunk) const {
  return load_word(segment_->chunk_state(chunk)) == abi::kChunkFilled;
}

WaitResult ChunkPool::wait_filled(uint32_t chunk, const Probe& probe) {
  return waiter_->until_polled(WaitReason::kChunk, peer_, probe,
                               [this, chunk] { return filled(chunk); });
}

WaitResult ChunkPool::wait_free(uint32_t chunk, const Probe& probe) {
  return waiter_->until_polled(WaitReason::kChunk, peer_, probe, [this, chunk] {
    return load_word(segment_->chunk_state(chunk)) == abi::kChunkFree;
  });
}

void ChunkPool::release(uint32_t chunk) {
  store_word(segment_->chunk_state(chunk), abi::kChunkFree);
}

}  // namespace tube::shared

#include "sharedmem/chunks.h"

#include "sharedmem/accessors.h"

namespace tube::shared {

void ChunkPool::attach(const Segment& segment, Waiter& waiter, const Peer& peer) {
  segment_ = &segment;
  waiter_ = &waiter;
  peer_ = peer;
}

bool ChunkPool::try_claim(uint32_t* chunk) {
  // Round robin: the chunk after the last one claimed was freed longest ago.
  const uint32_t start = cursor_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < abi::kChunkCount; ++i) {
    const uint32_t candidate = (start + i) % abi::kChunkCount;
    uint64_t& state = segment_->chunk_state(candidate);
    if (load_word(state) != abi::kChunkFree || !client_claims_chunk(state)) continue;
    cursor_.store((candidate + 1) % abi::kChunkCount, std::memory_order_relaxed);
    *chunk = candidate;
    return true;
  }
  return false;
}

WaitResult ChunkPool::claim(uint32_t* chunk, const Probe& probe) {
  return waiter_->until_polled(WaitReason::kChunk, peer_, probe, [this, chunk] { return try_claim(chunk); });
}

bool ChunkPool::filled(uint32_t chunk) const { return load_word(segment_->chunk_state(chunk)) == abi::kChunkFilled; }

WaitResult ChunkPool::wait_filled(uint32_t chunk, const Probe& probe) {
  return waiter_->until_polled(WaitReason::kChunk, peer_, probe, [this, chunk] { return filled(chunk); });
}

WaitResult ChunkPool::wait_free(uint32_t chunk, const Probe& probe) {
  return waiter_->until_polled(WaitReason::kChunk, peer_, probe,
                               [this, chunk] { return load_word(segment_->chunk_state(chunk)) == abi::kChunkFree; });
}

void ChunkPool::release(uint32_t chunk) { store_word(segment_->chunk_state(chunk), abi::kChunkFree); }

}  // namespace tube::shared

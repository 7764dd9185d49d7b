// The last word that a client waits for, as far as its session knows: whether work of it is
// outstanding that it wants to hear the end of. That is a stream's progress word, or the state of
// the staging chunk that a download to pageable memory fills. One writer, its session; any thread
// may ask, and be wrong for a moment.
#pragma once

#include <atomic>
#include <cstdint>

#include "sharedmem/accessors.h"

namespace tube::proxy {

class AskedWord {
 public:
  // The GPU writes `value` to `word`, which never falls and outlives every reader.
  void asked(uint64_t* word, uint64_t value) {
    value_.store(value, std::memory_order_relaxed);
    word_.store(word, std::memory_order_release);
    asks_.store(asks_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The GPU writes kChunkFilled to `state`, which is kChunkClaimed until then; the client uses the
  // chunk again afterwards. Outlives every reader.
  void asked_chunk(uint64_t* state) { asked(state, kChunk); }
  // How often it was asked for one. Who sees a new number sees what was asked, too.
  uint64_t asks() const { return asks_.load(std::memory_order_acquire); }
  bool outstanding() const {
    uint64_t* const word = word_.load(std::memory_order_acquire);
    if (word == nullptr) return false;
    const uint64_t value = value_.load(std::memory_order_relaxed);
    const uint64_t now = shared::load_word(*word);
    return value == kChunk ? now == abi::kChunkClaimed : now < value;
  }
  // What stands in the word now; 0: nothing was asked yet.
  uint64_t seen() const {
    uint64_t* const word = word_.load(std::memory_order_acquire);
    return word == nullptr ? 0 : shared::load_word(*word);
  }

 private:
  static constexpr uint64_t kChunk = ~uint64_t{0};  // no progress word's value
  std::atomic<uint64_t*> word_{nullptr};
  std::atomic<uint64_t> value_{0};
  std::atomic<uint64_t> asks_{0};
};

}  // namespace tube::proxy

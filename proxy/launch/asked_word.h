// The last progress word that a client asked for: whether work of it is outstanding that it wants
// to hear the end of. One writer, its session; any thread may ask, and be wrong for a moment.
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
  }
  bool outstanding() const {
    uint64_t* const word = word_.load(std::memory_order_acquire);
    return word != nullptr && shared::load_word(*word) < value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t*> word_{nullptr};
  std::atomic<uint64_t> value_{0};
};

}  // namespace tube::proxy

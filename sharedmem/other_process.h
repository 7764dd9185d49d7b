// What the other process orders, as ThreadSanitizer has to be told.
//
// A host function's effects reach a waiting thread of the program through the GPU: the hook stores
// one word, the GPU and the proxy go on, and the waiting thread reads another word or a reply. What
// lies between is another process, which ThreadSanitizer cannot see; so in its builds there is one
// more atomic in between. In all others this is nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/sanitizer.h"

namespace tube::shared {

inline std::atomic<uint64_t> passed_for_sanitizer{0};

// Before this process stores something that lets the other one go on.
inline void passed_to_other_process() {
  if constexpr (kThreadSanitizer) passed_for_sanitizer.fetch_add(1, std::memory_order_acq_rel);
}
// After something was seen that the other process stored.
inline void seen_of_other_process() {
  if constexpr (kThreadSanitizer) (void)passed_for_sanitizer.load(std::memory_order_acquire);
}

}  // namespace tube::shared

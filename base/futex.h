// Sleeping on a shared 32-bit word.
//
// FUTEX_WAIT without the private flag: the word lies in memory of two processes. Each function is
// one system call.
#pragma once

#include <cstdint>

namespace tube {

inline constexpr uint64_t kNoTimeout = ~uint64_t{0};

// Sleeps while *word == expected, until woken, until the timeout, or for no reason: the caller
// checks its condition again.
void futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns);
// Wakes up to `count` sleepers; returns how many.
int futex_wake(uint32_t* word, int count);

}  // namespace tube

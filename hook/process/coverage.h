// Which entry points this process called: one byte each, for the test that every implemented call
// is called by a test.
//
// Every generated entry stores 1 into its byte, with one plain store and nothing else. At the first
// one, when TUBE_COVERAGE names a file of kCalledBytes bytes, a shared mapping of it takes the
// array's place, so that the runner reads what several processes called, also those that ended by a
// signal. Any thread; two first calls at once map the same file twice, which loses nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace tube::hook {

inline constexpr uint32_t kCalledBytes = 4096;

// Byte 0: the file was looked for. Byte i + 1: the exported name i, in the order of
// hook_exports.gen.map.
extern std::atomic<uint8_t> g_called[kCalledBytes];

void open_called();
inline void mark_called(uint32_t index) {
  if (g_called[0].load(std::memory_order_relaxed) == 0) [[unlikely]]
    open_called();
  g_called[index + 1].store(1, std::memory_order_relaxed);
}

}  // namespace tube::hook

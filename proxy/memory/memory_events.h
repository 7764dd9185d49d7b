// What happened to GPU memory lately, for `tubectl mem`: idle blocks and code that went back to the
// driver, requests that a limit refused. Moves to the host and back are in the evictor's own list.
//
// The last 256; one that is like the one before it and comes within a second is added to it, so
// that a burst is one entry. Any thread; the lock is a leaf.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace tube::proxy {

struct MemoryEvent {
  const char* what = "";  // "pool", "code", "refused"
  std::string name;       // of the function that it is about; empty: of none
  int pid = 0;
  uint32_t gpu = 0;
  uint64_t bytes = 0;
  std::string why;
  uint64_t at_ns = 0;  // the last time
  uint64_t times = 1;
};

class MemoryEvents {
 public:
  static constexpr size_t kMost = 256;
  void note(MemoryEvent event, uint64_t now_ns);
  void note(MemoryEvent event);  // now
  std::vector<MemoryEvent> list() const;

 private:
  mutable std::mutex mutex_;
  std::deque<MemoryEvent> events_;  // the newest last
};

}  // namespace tube::proxy

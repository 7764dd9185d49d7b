// A barrier between processes, in a file that all of them map: whoever comes last lets the others
// go. It spins, offering its core, because what is measured begins at once behind it. Gives up
// after a minute: somebody died.
#pragma once

#include <atomic>
#include <cstdint>

namespace bench {

class Barrier {
 public:
  // Maps the first bytes of `path`, which must hold at least 4096 zero bytes at the beginning of
  // the run.
  explicit Barrier(const char* path);
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  // Returns when `count` threads or processes have come.
  void arrive(uint32_t count);

 private:
  struct Shared {
    std::atomic<uint32_t> arrived;
    std::atomic<uint32_t> generation;
  };
  Shared* shared_;
};

}  // namespace bench

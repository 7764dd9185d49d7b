// When the kernels of one GPU end, if each block takes the same time and a multiprocessor holds
// one.
//
// As measured on an H200 (docs/scheduling.md): all blocks of a kernel are dealt out before those of
// a kernel that became ready later, on whatever stream. So while several streams always hold a
// kernel of many blocks, each kernel of another stream waits for all of them; with one such stream
// only until its kernel's last blocks are dealt out, because its next one is not ready before these
// have ended.
//
// Plain values: no clock, no lock, no GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

namespace tube::sim {

class BlockOrder {
 public:
  BlockOrder(uint64_t multiprocessors, uint64_t block_ns)
      : free_(multiprocessors), block_ns_(block_ns) {}

  // The kernel can begin: all before it in its stream is done.
  void add(uint64_t number, uint64_t blocks, uint64_t now_ns);
  // When blocks end next; nullopt: none run.
  std::optional<uint64_t> next_ns() const;
  // Lets these blocks end. The kernel whose last ones they were, if so.
  std::optional<uint64_t> end_next();

  size_t kernels() const { return kernels_.size(); }

 private:
  struct Kernel {
    uint64_t undealt;
    uint64_t running = 0;
  };
  struct Blocks {
    uint64_t kernel;
    uint64_t count;
  };
  void deal(uint64_t now_ns);

  uint64_t free_;
  const uint64_t block_ns_;
  std::unordered_map<uint64_t, Kernel> kernels_;
  std::deque<uint64_t> waiting_;             // with undealt blocks, as they became ready
  std::multimap<uint64_t, Blocks> running_;  // by their end
};

}  // namespace tube::sim

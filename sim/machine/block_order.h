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
#include <vector>

namespace tube::sim {

// Multiprocessors beside each other; more than there are: up to the last one.
struct SmRange {
  uint64_t first = 0;
  uint64_t count = UINT64_MAX;
};

// A kernel, as far as the dealing of its blocks has to know it.
struct DealtKernel {
  uint64_t blocks = 1;
  SmRange sms = {};
  int priority = 0;  // as a stream's: the lower the number, the sooner
};

class BlockOrder {
 public:
  BlockOrder(uint64_t multiprocessors, uint64_t block_ns)
      : free_(multiprocessors, true), free_count_(multiprocessors), block_ns_(block_ns) {}

  // The kernel can begin: all before it in its stream is done.
  void add(uint64_t number, const DealtKernel& kernel, uint64_t now_ns);
  // When blocks end next; nullopt: none run.
  std::optional<uint64_t> next_ns() const;
  // Lets these blocks end. The kernel whose last ones they were, if so.
  std::optional<uint64_t> end_next();

  size_t kernels() const { return kernels_.size(); }

 private:
  struct Kernel {
    uint64_t undealt;
    SmRange sms;
    int priority;
    uint64_t running = 0;
  };
  struct Blocks {
    uint64_t kernel;
    std::vector<uint64_t> sms;  // one block on each
  };
  void deal(uint64_t now_ns);
  void deal(uint64_t number, Kernel& kernel, uint64_t now_ns);

  std::vector<bool> free_;  // by multiprocessor
  uint64_t free_count_;
  const uint64_t block_ns_;
  std::unordered_map<uint64_t, Kernel> kernels_;
  std::deque<uint64_t> waiting_;  // with undealt blocks, by priority and as they became ready
  std::multimap<uint64_t, Blocks> running_;  // by their end
};

}  // namespace tube::sim

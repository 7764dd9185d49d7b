// Memory on each GPU through which pieces of other GPUs' copies pass (copy_path.h): a few buffers
// in one block, made when one is first wanted and given back when nothing has used them for a
// while. Making a block beside copies takes the driver a millisecond (docs/decisions/0032),
// whatever its size.
//
// The memory is the memory map's, so every GPU that has peer access to this one reaches it, and
// giving it back waits for nobody (docs/decisions/0009-context-gate.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/cuda_api.h"
#include "proxy/memory/block.h"

namespace tube::proxy {

class MemoryAccount;
class MemoryMap;

class RelayBuffers {
 public:
  static constexpr uint64_t kBytes = 8u << 20;  // the largest piece
  static constexpr uint32_t kMost = 4;          // of a GPU

  // `memory` outlives it.
  RelayBuffers(MemoryMap& memory, uint32_t gpus);
  // Nothing uses them any more.
  ~RelayBuffers() { drop_idle(); }
  RelayBuffers(const RelayBuffers&) = delete;
  RelayBuffers& operator=(const RelayBuffers&) = delete;

  // ---- the pacing thread
  // 0: all are in use, or there is no memory (refused()).
  CUdeviceptr take(uint32_t gpu);
  void give(uint32_t gpu, CUdeviceptr buffer);
  // The GPU had no memory for them a moment ago.
  bool refused(uint32_t gpu) const;
  // Idle memory had to go for somebody since they were made.
  bool wanted_back() const;
  // Gives back what nobody uses.
  void drop_idle();

  // Any thread.
  uint64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

 private:
  struct Pool {
    BlockId block = BlockId::kNone;
    CUdeviceptr address = 0;
    bool used[kMost] = {};
    uint64_t refused_ns = 0;  // 0: never
  };
  bool make(uint32_t gpu);

  MemoryMap& memory_;
  const std::shared_ptr<MemoryAccount> account_;  // counts in the workflow's memory
  std::vector<Pool> pools_;
  std::atomic<uint64_t> held_{0};
  uint64_t given_back_ = 0;  // MemoryBudgets::times_given_back() when a block was made last
};

}  // namespace tube::proxy

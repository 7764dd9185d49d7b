// Memory on each GPU through which pieces of other GPUs' copies pass (copy_path.h): a few buffers,
// made when they are first wanted and given back when nothing has used them for a while.
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
  // The GPU had no memory for even one buffer; asked again after drop_idle().
  bool refused(uint32_t gpu) const { return pools_[gpu].refused && pools_[gpu].buffers.empty(); }
  // Gives back what nobody uses.
  void drop_idle();

  // Any thread.
  uint64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

 private:
  struct Buffer {
    BlockId block = BlockId::kNone;
    CUdeviceptr address = 0;
    bool used = false;
  };
  struct Pool {
    std::vector<Buffer> buffers;
    bool refused = false;
  };
  bool grow(uint32_t gpu);

  MemoryMap& memory_;
  const std::shared_ptr<MemoryAccount> account_;  // counts in the workflow's memory
  std::vector<Pool> pools_;
  std::atomic<uint64_t> held_{0};
};

}  // namespace tube::proxy

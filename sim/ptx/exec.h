// The machine that runs a grid: launch, block, warp, fragment.
//
// A warp executes 32 lanes at once. Lanes that agree on program counter and call frame form a
// fragment; a divergent branch splits the fragment. The deepest call, then the lowest program
// counter runs first, so that lanes meet again where compilers lay out their join points; two
// fragments that meet are merged. Reconvergence is only an optimisation: an operation with a member
// mask (.sync) waits until all live members stand at it, whatever the order they arrive in, so any
// interleaving is right. A fragment that spins on memory (an atomic or volatile access in each turn
// of a loop) gives way to the others of its warp, then to other warps, so locks between lanes make
// progress. Blocks run one after another; those of a cluster, or the whole grid of a cooperative
// launch, run together. One thread runs a launch; nothing here is shared except device memory
// itself, where atomics are host atomics.
#pragma once

#include <bit>
#include <cstring>
#include <memory>

#include "sim/ptx/ir.h"

namespace tube::sim::ptx {

struct Frame {
  Frame* parent = nullptr;
  const Function* function = nullptr;
  const CallSite* site = nullptr;
  uint32_t* regs = nullptr;
  const uint32_t* consts = nullptr;
  uint32_t return_pc = 0;
  uint32_t local_base = 0;
  uint32_t depth = 0;
  uint32_t refs = 0;  // fragments in it and frames called from it
};

enum class Wait : uint8_t { kNone, kSync, kBarrier, kCluster };

struct Fragment {
  uint32_t pc = 0;
  uint32_t mask = 0;
  Frame* frame = nullptr;
  Wait wait = Wait::kNone;
  uint8_t barrier = 0;
  const Inst* inst = nullptr;  // kBarrier: receives the result of bar.red
  uint64_t stamp = 0;          // when it last ran
};

struct Barrier {
  uint32_t arrived = 0;
  uint32_t expected = 0;  // 0: all live threads
  uint32_t trues = 0;     // bar.red
  uint32_t voters = 0;
};

struct Block;
struct Launch;

struct Warp {
  // The fragment that runs
  uint32_t* regs = nullptr;
  const uint32_t* consts = nullptr;
  const Inst* code = nullptr;
  uint32_t pc = 0;
  uint32_t mask = 0;
  uint32_t limit = 0;  // reaching this program counter asks the scheduler; 0 asks at once
  uint32_t local_base = 0;
  Frame* frame = nullptr;

  Block* block = nullptr;
  Launch* launch = nullptr;
  std::byte* local = nullptr;
  uint32_t local_stride = 0;
  uint32_t index = 0;    // %warpid
  uint32_t live = 0;     // lanes not exited
  uint32_t carry = 0;    // CC.CF of each lane
  uint32_t spins = 0;    // turns of a loop with a synchronising access
  uint32_t quantum = 0;  // backward branches left
  bool touched_sync = false;
  bool yield = false;
  bool forced = false;  // runs although the order of program counters says otherwise
  uint32_t cluster_arrived = 0;
  uint64_t cluster_phase[kLanes] = {};
  uint32_t tid[3][kLanes] = {};
  uint64_t stamp = 0;
  std::vector<Fragment> others;

  // Control, called by handlers
  void ask() { limit = 0; }
  void branch(uint32_t target, uint32_t taken);
  void leave(uint32_t lanes, uint32_t target);  // lanes of the running fragment continue at target
  void exit(uint32_t lanes);
  void call(const Inst& in, uint32_t lanes, uint32_t function);
  void ret(uint32_t lanes);
  // Parks lanes at this instruction (kSync: pc of `in`, runs it again) or behind it.
  void park(const Inst& in, uint32_t lanes, Wait wait, uint8_t barrier);
  void wake(Wait wait, uint8_t barrier);
  void fault(Fault::Kind kind, const Inst& in, uint64_t address, std::string message);
  bool runnable() const;
  // Runs until nothing in this warp can run, it gave way, or the launch stopped.
  void run();

 private:
  bool reschedule();
  void merge();
  void resume(const Fragment& fragment);
  bool resolve_split_sync();
};

struct Block {
  Launch* launch = nullptr;
  uint32_t id[3] = {};
  uint32_t cluster_rank = 0;
  uint32_t cluster_first = 0;  // index of the cluster's first block among the launch's running ones
  uint32_t live = 0;
  std::vector<std::byte> shared;
  Barrier barriers[16];
  std::vector<std::unique_ptr<Warp>> warps;

  void arrive(uint32_t id, uint32_t threads, uint32_t expected);
  void check_barriers();
  void release(uint32_t id);
};

struct Cluster {
  uint32_t arrived = 0;
  uint64_t phase = 0;
  uint32_t live = 0;
};

struct Range {
  uint64_t begin = 0;
  uint64_t length = 0;
  std::byte* host = nullptr;
};

struct Launch {
  const ModuleImpl& module;
  const Kernel& kernel;
  const KernelInfo& info;
  const LaunchConfig& config;
  Memory& memory;
  uint32_t shared_bytes = 0;
  uint32_t block_threads = 0;
  uint64_t instructions = 0;
  bool stopped = false;
  bool all_spinning = false;
  Fault result;
  std::vector<std::unique_ptr<Block>> blocks;  // running together
  std::vector<Cluster> clusters;
  Range last[2];  // [write]
  Range cache[2][8];
  unsigned victim[2] = {};
  std::vector<std::vector<uint32_t>>
      patched;  // constant pools with this launch's addresses, by function
  std::vector<const uint32_t*> pools;
  std::vector<std::vector<uint32_t*>> free_regs;  // by function
  std::vector<std::unique_ptr<uint32_t[]>> reg_memory;
  std::vector<Frame*> free_frames;
  std::vector<std::unique_ptr<Frame>> frame_memory;
  std::vector<std::byte> workspace;
  std::vector<std::pair<uint64_t, std::shared_ptr<const Texture>>>
      textures;  // asked for, by handle; a few

  Launch(const ModuleImpl& m, const Kernel& k, const LaunchConfig& c, Memory& mem);
  bool prepare();
  void run_grid();
  Frame* new_frame(const Function& function);
  void release(Frame* frame);
  bool cancelled() const {
    return config.cancel != nullptr && config.cancel->load(std::memory_order_relaxed);
  }

  // What a texture or surface handle means, nullptr when it names none.
  const Texture* texture(uint64_t handle);

  // Host memory behind a global address, nullptr when there is none.
  std::byte* global(uint64_t address, uint32_t size, bool write) {
    const Range& range = last[write];
    const uint64_t at = address - range.begin;
    if (at < range.length && range.length - at >= size) [[likely]]
      return range.host + at;
    return global_slow(address, size, write);
  }

 private:
  std::byte* global_slow(uint64_t address, uint32_t size, bool write);
  void start_block(Block& block, uint64_t index);
  bool run_blocks();
};

inline std::byte* shared_memory(Warp& warp, uint64_t address, uint32_t size) {
  Block* block = warp.block;
  if (address >> kClusterShift != 0) [[unlikely]] {
    const uint64_t rank = (address >> kClusterShift) - 1;
    const auto& cluster = warp.launch->config.cluster;
    if (rank >= uint64_t{cluster[0]} * cluster[1] * cluster[2]) return nullptr;
    block = warp.launch->blocks[block->cluster_first + rank].get();
    address &= (uint64_t{1} << kClusterShift) - 1;
  }
  if (address >= block->shared.size() || block->shared.size() - address < size) return nullptr;
  return block->shared.data() + address;
}

inline std::byte* local_memory(Warp& warp, uint64_t offset, uint32_t size, unsigned lane) {
  if (offset >= warp.local_stride || warp.local_stride - offset < size) return nullptr;
  return warp.local + size_t{lane} * warp.local_stride + offset;
}

// Host memory behind an address of the given space; kGlobal and kConst share one address range.
template <Space S>
inline std::byte* resolve(Warp& warp, uint64_t address, uint32_t size, unsigned lane, bool write) {
  if constexpr (S == Space::kShared) return shared_memory(warp, address, size);
  if constexpr (S == Space::kLocal) return local_memory(warp, address, size, lane);
  if constexpr (S == Space::kGlobal) return warp.launch->global(address, size, write);
  if constexpr (S == Space::kParam) {
    const LaunchConfig& config = warp.launch->config;
    if (write || address >= config.params_size || config.params_size - address < size)
      return nullptr;
    return const_cast<std::byte*>(config.params) + address;
  }
  const uint64_t offset = address & ~kWindowMask;
  switch (address & kWindowMask) {
    case kSharedWindow: return shared_memory(warp, offset, size);
    case kLocalWindow: return local_memory(warp, offset, size, lane);
    case kParamWindow: return resolve<Space::kParam>(warp, offset, size, lane, write);
    default: return warp.launch->global(address, size, write);
  }
}

inline uint32_t* slot32(const Warp& warp, int32_t slot) {
  return slot >= 0
             ? warp.regs + size_t{static_cast<uint32_t>(slot)} * kLanes
             : const_cast<uint32_t*>(warp.consts) + size_t{static_cast<uint32_t>(~slot)} * kLanes;
}
inline uint64_t* slot64(const Warp& warp, int32_t slot) {
  return reinterpret_cast<uint64_t*>(slot32(warp, slot));
}
inline uint32_t predicate(const Warp& warp, int32_t slot) { return *slot32(warp, slot); }
inline void set_predicate(Warp& warp, int32_t slot, uint32_t mask, uint32_t value) {
  if (slot == kNoSlot) return;
  uint32_t& word = *slot32(warp, slot);
  word = (word & ~mask) | (value & mask);
}

// Calls f(lane) for each lane in mask, in order. With all 32 present the loop can be vectorised: f
// may touch only its own lane of any register.
template <class F>
inline __attribute__((always_inline)) void for_lanes(uint32_t mask, F&& f) {
  if (mask == UINT32_MAX) {
#if !defined(__clang__)
#pragma GCC ivdep
#endif
    for (unsigned lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
      f(static_cast<unsigned>(std::countr_zero(rest)));
  }
}

}  // namespace tube::sim::ptx

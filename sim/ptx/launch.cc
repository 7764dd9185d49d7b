// Grids and blocks: constant pools with this launch's addresses, block scheduling, barriers, the
// memory cache.
#include <sched.h>
#include <cfenv>

#include <algorithm>

#include "sim/ptx/exec.h"

namespace tube::sim::ptx {

Launch::Launch(const ModuleImpl& m, const Kernel& k, const LaunchConfig& c, Memory& mem)
    : module(m), kernel(k), info(m.infos[k.index]), config(c), memory(mem) {
  pools.resize(m.functions.size());
  free_regs.resize(m.functions.size());
}

bool Launch::prepare() {
  const auto bad = [&](const char* what) {
    result.kind = Fault::Kind::kIllegalInstruction;
    result.message = what;
    return false;
  };
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (config.grid[i] == 0 || config.block[i] == 0 || config.cluster[i] == 0)
      return bad("a dimension is zero");
    if (config.grid[i] % config.cluster[i] != 0)
      return bad("the grid is not a multiple of the cluster");
    threads *= config.block[i];
  }
  if (threads > 1024) return bad("more than 1024 threads in a block");
  if (config.params_size < kernel.param_bytes) return bad("parameter buffer too short");
  block_threads = static_cast<uint32_t>(threads);
  shared_bytes = info.static_shared + config.dynamic_shared_bytes;
  // Dynamic shared memory starts where the compiler of the module aligned it.
  for (size_t i = 0; i < module.shared.size(); ++i)
    if (module.shared[i].dynamic && info.shared_offset[i] != UINT64_MAX)
      shared_bytes = std::max<uint32_t>(
          shared_bytes, static_cast<uint32_t>(info.shared_offset[i]) + config.dynamic_shared_bytes);
  for (const uint32_t index : info.reachable) {
    const Function& function = module.functions[index];
    if (function.relocs.empty()) {
      pools[index] = function.consts.data();
      continue;
    }
    std::vector<uint32_t> pool = function.consts;
    for (const ConstReloc& reloc : function.relocs) {
      const uint64_t base = reloc.kind == ConstReloc::Kind::kVariable
                                ? config.variable_addresses[reloc.index]
                                : info.shared_offset[reloc.index];
      const uint64_t value = base + reloc.addend;
      auto* const lanes = reinterpret_cast<uint64_t*>(pool.data() + size_t{reloc.unit} * kLanes);
      std::fill(lanes, lanes + kLanes, value);
    }
    patched.push_back(std::move(pool));
    pools[index] = patched.back().data();
  }
  return true;
}

Frame* Launch::new_frame(const Function& function) {
  if (free_frames.empty()) {
    frame_memory.push_back(std::make_unique<Frame>());
    free_frames.push_back(frame_memory.back().get());
  }
  Frame* const frame = free_frames.back();
  free_frames.pop_back();
  *frame = Frame{};
  frame->function = &function;
  frame->refs = 1;
  frame->consts = pools[function.index];
  auto& pool = free_regs[function.index];
  if (pool.empty()) {
    reg_memory.push_back(std::make_unique<uint32_t[]>(size_t{function.reg_units} * kLanes + 1));
    pool.push_back(reg_memory.back().get());
  }
  frame->regs = pool.back();
  pool.pop_back();
  return frame;
}

void Launch::release(Frame* frame) {
  while (frame != nullptr && --frame->refs == 0) {
    Frame* const parent = frame->parent;
    free_regs[frame->function->index].push_back(frame->regs);
    free_frames.push_back(frame);
    frame = parent;
  }
}

std::byte* Launch::global_slow(uint64_t address, uint32_t size, bool write) {
  for (const Range& range : cache[write]) {
    const uint64_t at = address - range.begin;
    if (at < range.length && range.length - at >= size) {
      last[write] = range;
      return range.host + at;
    }
  }
  if ((address & kWindowMask) == kWorkspaceWindow) {
    const uint64_t at = address - kWorkspaceWindow;
    return at < workspace.size() && workspace.size() - at >= size ? workspace.data() + at : nullptr;
  }
  if ((address & kWindowMask) != 0) return nullptr;
  uint64_t begin = 0, end = 0;
  std::byte* const host = memory.translate(address, size, write, &begin, &end);
  if (host == nullptr) return nullptr;
  const Range range{begin, end - begin, host - (address - begin)};
  last[write] = range;
  cache[write][victim[write]++ % std::size(cache[write])] = range;
  return host;
}

void Block::arrive(uint32_t barrier, uint32_t threads, uint32_t expected) {
  barriers[barrier].arrived += threads;
  barriers[barrier].expected = expected;
  check_barriers();
}

void Block::check_barriers() {
  for (uint32_t i = 0; i < std::size(barriers); ++i) {
    const Barrier& barrier = barriers[i];
    if (barrier.arrived != 0 &&
        barrier.arrived >= (barrier.expected != 0 ? barrier.expected : live))
      release(i);
  }
}

// Lets everyone through; bar.red (mode 1 popc, 2 and, 3 or) gets its result now.
void Block::release(uint32_t index) {
  Barrier& barrier = barriers[index];
  for (const auto& warp : warps) {
    for (Fragment& fragment : warp->others) {
      if (fragment.wait != Wait::kBarrier || fragment.barrier != index) continue;
      fragment.wait = Wait::kNone;
      const Inst& in = *fragment.inst;
      if (in.d == kNoSlot) continue;
      uint32_t* const d = fragment.frame->regs + size_t{static_cast<uint32_t>(in.d)} * kLanes;
      if (in.mode == 1) {
        for_lanes(fragment.mask, [&](unsigned lane) { d[lane] = barrier.trues; });
      } else {
        const bool value = in.mode == 2 ? barrier.trues == barrier.voters : barrier.trues != 0;
        *d = (*d & ~fragment.mask) | (value ? fragment.mask : 0);
      }
    }
  }
  barrier = Barrier{};
}

void Launch::start_block(Block& block, uint64_t index) {
  const auto& cluster = config.cluster;
  const uint32_t cluster_size = cluster[0] * cluster[1] * cluster[2];
  const uint64_t cluster_index = index / cluster_size;
  const auto rank = static_cast<uint32_t>(index % cluster_size);
  const uint64_t cx = config.grid[0] / cluster[0], cy = config.grid[1] / cluster[1];
  block.launch = this;
  block.id[0] = static_cast<uint32_t>(cluster_index % cx * cluster[0] + rank % cluster[0]);
  block.id[1] =
      static_cast<uint32_t>(cluster_index / cx % cy * cluster[1] + rank / cluster[0] % cluster[1]);
  block.id[2] =
      static_cast<uint32_t>(cluster_index / cx / cy * cluster[2] + rank / cluster[0] / cluster[1]);
  block.cluster_rank = rank;
  block.live = block_threads;
  block.shared.assign(shared_bytes, std::byte{0});
  std::fill(std::begin(block.barriers), std::end(block.barriers), Barrier{});
  const Function& function = module.functions[info.function];
  const uint32_t warps = (block_threads + kLanes - 1) / kLanes;
  while (block.warps.size() < warps) {
    auto warp = std::make_unique<Warp>();
    warp->index = static_cast<uint32_t>(block.warps.size());
    warp->launch = this;
    warp->local_stride = info.local_capacity;
    if (info.local_capacity != 0) {
      reg_memory.push_back(
          std::make_unique<uint32_t[]>(size_t{info.local_capacity} * kLanes / sizeof(uint32_t)));
      warp->local = reinterpret_cast<std::byte*>(reg_memory.back().get());
    }
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t thread = warp->index * kLanes + lane;
      warp->tid[0][lane] = thread % config.block[0];
      warp->tid[1][lane] = thread / config.block[0] % config.block[1];
      warp->tid[2][lane] = thread / config.block[0] / config.block[1];
    }
    block.warps.push_back(std::move(warp));
  }
  for (const auto& warp : block.warps) {
    const uint32_t threads = std::min(kLanes, block_threads - warp->index * kLanes);
    warp->block = &block;
    warp->live = threads == kLanes ? UINT32_MAX : (1u << threads) - 1;
    warp->quantum = 1u << 16;
    warp->spins = warp->carry = 0;
    warp->touched_sync = warp->yield = warp->forced = false;
    warp->cluster_arrived = 0;
    warp->mask = 0;
    warp->others.clear();
    Fragment fragment;
    fragment.mask = warp->live;
    fragment.frame = new_frame(function);
    warp->others.push_back(fragment);
  }
}

bool Launch::run_blocks() {
  for (;;) {
    bool progress = false, alive = false, only_spins = true;
    for (const auto& block : blocks) {
      if (block->live == 0) continue;
      for (const auto& warp : block->warps) {
        if (warp->live == 0) continue;
        alive = true;
        if (!warp->runnable()) continue;
        progress = true;
        warp->run();
        only_spins &= warp->forced;
        if (stopped) return false;
      }
    }
    if (!alive) return true;
    if (cancelled()) {
      result.kind = Fault::Kind::kCancelled;
      return false;
    }
    if (!progress) {
      result.kind = Fault::Kind::kBarrierDeadlock;
      result.message = "all threads of a block wait for threads that will not come";
      return false;
    }
    if (only_spins)
      sched_yield();  // everyone waits for memory that someone else writes: the host, or another
                      // launch
  }
}

void Launch::run_grid() {
  if (!prepare()) return;
  const uint64_t total = uint64_t{config.grid[0]} * config.grid[1] * config.grid[2];
  const uint32_t cluster_size = config.cluster[0] * config.cluster[1] * config.cluster[2];
  const uint64_t together = config.cooperative ? total : cluster_size;
  if (config.cooperative) workspace.resize(256);
  for (uint64_t i = 0; i < together; ++i) {
    blocks.push_back(std::make_unique<Block>());
    blocks.back()->cluster_first = static_cast<uint32_t>(i / cluster_size * cluster_size);
  }
  clusters.resize(together);
  for (uint64_t first = 0; first < total; first += together) {
    for (Cluster& cluster : clusters) cluster = Cluster{0, 0, cluster_size * block_threads};
    for (uint64_t i = 0; i < together; ++i) start_block(*blocks[i], first + i);
    if (!run_blocks()) return;
  }
}

Fault launch(const Module& module, const Kernel& kernel, const LaunchConfig& config,
             Memory& memory) {
  // The caller's thread may flush denormals or round otherwise; device arithmetic must not depend
  // on it.
  std::fenv_t environment;
  std::fegetenv(&environment);
  std::fesetenv(FE_DFL_ENV);
  Fault fault;
  {
    Launch run(static_cast<const ModuleImpl&>(module), kernel, config, memory);
    run.run_grid();
    fault = std::move(run.result);
  }
  std::fesetenv(&environment);
  return fault;
}

}  // namespace tube::sim::ptx

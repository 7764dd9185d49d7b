// Warps: the instruction loop, splitting and merging of fragments, calls, waiting. See exec.h for
// the idea.
#include "sim/ptx/exec.h"

#include <algorithm>

namespace tube::sim::ptx {
namespace {

// Turns of a spinning loop before a fragment gives way, and of any loop before the launch looks at
// `cancel`.
constexpr uint32_t kSpinTurns = 16;
constexpr uint32_t kQuantum = 1u << 16;

void copy_value(Warp& warp, uint32_t lanes, const Frame& from, const Actual& source,
                const Frame& to, const Formal& target) {
  const uint32_t size = std::min(source.size, target.size);
  for_lanes(lanes, [&](unsigned lane) {
    uint64_t value = 0;
    std::byte* const base = warp.local + size_t{lane} * warp.local_stride;
    if (source.in_param && target.in_param) {
      std::memmove(base + to.local_base + target.offset, base + from.local_base + source.offset,
                   size);
      return;
    }
    const auto words = [&](const Frame& frame, int32_t slot) {
      return slot >= 0 ? frame.regs + size_t{static_cast<uint32_t>(slot)} * kLanes
                       : const_cast<uint32_t*>(frame.consts) +
                             size_t{static_cast<uint32_t>(~slot)} * kLanes;
    };
    if (source.in_param)
      std::memcpy(&value, base + from.local_base + source.offset, std::min(size, 8u));
    else if (source.cls == Class::k64)
      value = reinterpret_cast<uint64_t*>(words(from, source.slot))[lane];
    else if (source.cls == Class::k32) value = words(from, source.slot)[lane];
    else value = words(from, source.slot)[0] >> lane & 1;
    if (target.in_param) {
      std::memcpy(base + to.local_base + target.offset, &value, std::min(size, 8u));
    } else if (target.cls == Class::k64) {
      reinterpret_cast<uint64_t*>(words(to, target.slot))[lane] = value;
    } else if (target.cls == Class::k32) {
      words(to, target.slot)[lane] = static_cast<uint32_t>(value);
    } else {
      uint32_t& word = words(to, target.slot)[0];
      word = (word & ~(1u << lane)) | (static_cast<uint32_t>(value & 1) << lane);
    }
  });
}

Formal as_formal(const Actual& actual) {
  return {actual.in_param, actual.offset, actual.slot, actual.cls, actual.size};
}

Actual as_actual(const Formal& formal) {
  return {formal.in_param, formal.offset, formal.slot, formal.cls, formal.size};
}

}  // namespace

void Warp::leave(uint32_t lanes, uint32_t target) {
  if (lanes == 0) return;
  Fragment fragment;
  fragment.pc = target;
  fragment.mask = lanes;
  fragment.frame = frame;
  ++frame->refs;
  others.push_back(fragment);
  mask &= ~lanes;
  ask();
}

void Warp::branch(uint32_t target, uint32_t taken) {
  if (target < pc) {
    if (touched_sync) {
      touched_sync = false;
      if (++spins >= kSpinTurns) {
        spins = 0;
        yield = true;
        ask();
      }
    }
    if (--quantum == 0) {
      quantum = kQuantum;
      yield = true;
      ask();
    }
  }
  if (taken == mask) {
    pc = target;
  } else {
    leave(taken, target);
  }
}

void Warp::exit(uint32_t lanes) {
  live &= ~lanes;
  mask &= ~lanes;
  if (mask == 0) launch->release(frame);
  ask();
  const auto count = static_cast<uint32_t>(std::popcount(lanes));
  block->live -= count;
  wake(Wait::kSync, 0);
  block->check_barriers();
  Cluster& cluster = launch->clusters[block->cluster_first];
  cluster.live -= count;
  if (cluster.arrived != 0 && cluster.arrived >= cluster.live) {
    cluster.arrived = 0;
    ++cluster.phase;
  }
}

void Warp::call(const Inst& in, uint32_t lanes, uint32_t function) {
  leave(mask & ~lanes, pc);
  const Function& callee = launch->module.functions[function];
  const CallSite& site = frame->function->calls[in.target];
  const uint32_t base = local_base + frame->function->frame_bytes;
  if (base + callee.frame_bytes > local_stride)
    return fault(Fault::Kind::kIllegalAddress, in, kLocalWindow + base, "call stack exhausted");
  Frame* const child = launch->new_frame(callee);
  child->parent = frame;  // takes over the fragment's reference
  child->site = &site;
  child->return_pc = pc;
  child->local_base = base;
  child->depth = frame->depth + 1;
  const size_t count = std::min(site.args.size(), callee.params.size());
  for (size_t i = 0; i < count; ++i)
    copy_value(*this, lanes, *frame, site.args[i], *child, callee.params[i]);
  Fragment fragment;
  fragment.mask = lanes;
  fragment.frame = child;
  resume(fragment);
  if (!others.empty()) ask();
  else limit = UINT32_MAX;
}

void Warp::ret(uint32_t lanes) {
  if (frame->parent == nullptr) return exit(lanes);
  leave(mask & ~lanes, pc);
  Frame* const child = frame;
  Frame* const parent = child->parent;
  const std::vector<Formal>& returns = child->function->returns;
  const size_t count = std::min(child->site->returns.size(), returns.size());
  for (size_t i = 0; i < count; ++i)
    copy_value(*this, lanes, *child, as_actual(returns[i]), *parent,
               as_formal(child->site->returns[i]));
  ++parent->refs;
  Fragment fragment;
  fragment.pc = child->return_pc;
  fragment.mask = lanes;
  fragment.frame = parent;
  launch->release(child);
  resume(fragment);
  if (!others.empty()) ask();
  else limit = UINT32_MAX;
}

void Warp::park(const Inst& in, uint32_t lanes, Wait wait, uint8_t barrier) {
  Fragment fragment;
  fragment.pc = wait == Wait::kSync ? static_cast<uint32_t>(&in - code) : pc;
  fragment.mask = lanes;
  fragment.frame = frame;
  fragment.wait = wait;
  fragment.barrier = barrier;
  fragment.inst = &in;
  fragment.stamp = ++stamp;
  mask &= ~lanes;
  if (mask != 0) ++frame->refs;
  others.push_back(fragment);
  ask();
}

void Warp::wake(Wait wait, uint8_t barrier) {
  for (Fragment& fragment : others)
    if (fragment.wait == wait && fragment.barrier == barrier) fragment.wait = Wait::kNone;
}

void Warp::fault(Fault::Kind kind, const Inst& in, uint64_t address, std::string message) {
  ask();
  if (launch->stopped) return;
  launch->stopped = true;
  launch->result.kind = kind;
  launch->result.address = address;
  launch->result.line = in.line;
  launch->result.message = std::move(message);
}

bool Warp::runnable() const {
  if (mask != 0) return true;
  return std::any_of(others.begin(), others.end(),
                     [](const Fragment& f) { return f.wait == Wait::kNone; });
}

void Warp::merge() {
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].wait > Wait::kSync) continue;
    for (size_t j = i + 1; j < others.size();) {
      const Fragment& other = others[j];
      if (other.wait > Wait::kSync || other.pc != others[i].pc || other.frame != others[i].frame) {
        ++j;
        continue;
      }
      others[i].mask |= other.mask;
      others[i].wait = Wait::kNone;
      launch->release(other.frame);
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

void Warp::resume(const Fragment& fragment) {
  pc = fragment.pc;
  mask = fragment.mask;
  frame = fragment.frame;
  regs = frame->regs;
  consts = frame->consts;
  code = frame->function->code.data();
  local_base = frame->local_base;
}

bool Warp::reschedule() {
  if (launch->stopped) return false;
  const bool gave_way = yield;
  yield = false;
  forced = false;
  if (mask != 0) {
    Fragment fragment;
    fragment.pc = pc;
    fragment.mask = mask;
    fragment.frame = frame;
    fragment.stamp = ++stamp;
    others.push_back(fragment);
    mask = 0;
  }
  if (others.size() > 1) merge();
  size_t best = others.size();
  for (size_t i = 0; i < others.size(); ++i) {
    const Fragment& candidate = others[i];
    if (candidate.wait != Wait::kNone) continue;
    if (best == others.size()) {
      best = i;
      continue;
    }
    const Fragment& chosen = others[best];
    if (gave_way ? candidate.stamp < chosen.stamp
        : candidate.frame->depth != chosen.frame->depth
            ? candidate.frame->depth > chosen.frame->depth
            : candidate.pc < chosen.pc)
      best = i;
  }
  if (best == others.size()) return resolve_split_sync() && reschedule();
  const Fragment chosen = others[best];
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(best));
  resume(chosen);
  limit = UINT32_MAX;
  if (gave_way) {
    forced = true;
    return false;
  }
  for (const Fragment& other : others)
    if (other.wait <= Wait::kSync && other.frame->depth == frame->depth)
      limit = std::min(limit, other.pc);
  return true;
}

// Lanes wait for each other with the same kind of operation at different places (a compiler
// duplicated the code). Where no data is exchanged (bar.warp.sync: mode 1) they may simply go on
// together.
bool Warp::resolve_split_sync() {
  uint32_t waiting = 0;
  for (const Fragment& fragment : others)
    if (fragment.wait == Wait::kSync && fragment.inst->mode == 1) waiting |= fragment.mask;
  if (waiting == 0) return false;
  bool any = false;
  for (Fragment& fragment : others) {
    if (fragment.wait != Wait::kSync || fragment.inst->mode != 1) continue;
    resume(fragment);
    const uint32_t* members = slot32(*this, fragment.inst->a);
    bool complete = true;
    for_lanes(fragment.mask,
              [&](unsigned lane) { complete &= (members[lane] & live & ~waiting) == 0; });
    mask = 0;
    if (!complete) continue;
    ++fragment.pc;
    fragment.wait = Wait::kNone;
    any = true;
  }
  return any;
}

void Warp::run() {
  if (mask == 0 || !forced) {
    if (!reschedule()) return;
  }
  for (;;) {
    const Inst& in = code[pc];
    ++pc;
    uint32_t lanes = mask;
    if (in.guard != kNoSlot) {
      const uint32_t value = predicate(*this, in.guard);
      lanes &= in.guard_not ? ~value : value;
    }
    if (lanes != 0) in.run(*this, in, lanes);
    if (pc >= limit && !reschedule()) return;
  }
}

}  // namespace tube::sim::ptx

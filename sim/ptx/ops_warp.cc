// Operations among the lanes of a warp: shfl, vote, match, redux, elect, activemask, bar.warp.sync,
// cluster barriers.
//
// A .sync operation runs for the lanes whose live members all stand here; the others are parked at
// this very instruction and run it again when more lanes have come (or members have exited). Forms
// without .sync, from before sm_70, work among the lanes that run together.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

// Lanes of `mask` whose members are all here. Parks the rest.
uint32_t gathered(Warp& w, const Inst& in, uint32_t mask, const uint32_t* members) {
  uint32_t ready = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    if ((members[i] & w.live & ~mask) == 0) ready |= 1u << i;
  }
  if (ready != mask) w.park(in, mask & ~ready, Wait::kSync, 0);
  return ready;
}

uint32_t members_of(const Warp& w, const Inst& in, uint32_t mask, unsigned lane) {
  return in.e == kNoSlot ? mask : slot32(w, in.e)[lane] & mask;
}

// mode2: 0 up, 1 down, 2 bfly, 3 idx; e: members, or none
void shfl(Warp& w, const Inst& in, uint32_t mask) {
  if (in.e != kNoSlot) mask = gathered(w, in, mask, slot32(w, in.e));
  if (mask == 0) return;
  uint32_t values[kLanes], out[kLanes];
  std::memcpy(values, slot32(w, in.a), sizeof(values));
  const uint32_t *b = slot32(w, in.b), *c = slot32(w, in.c);
  uint32_t valid = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    const int index = static_cast<int>(b[lane] & 31), clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31), self = static_cast<int>(lane);
    const int most = (self & segment) | (clamp & ~segment), least = self & segment;
    int from;
    bool fine;
    switch (in.mode2) {
      case 0:
        from = self - index;
        fine = from >= most;
        break;
      case 1:
        from = self + index;
        fine = from <= most;
        break;
      case 2:
        from = self ^ index;
        fine = from <= most;
        break;
      default:
        from = least | (index & ~segment);
        fine = from <= most;
        break;
    }
    if (!fine || from < 0 || from > 31) from = self;
    if (fine) valid |= 1u << lane;
    out[lane] = (mask >> from & 1) != 0 ? values[from] : values[lane];
  }
  uint32_t* const d = slot32(w, in.d);
  for_lanes(mask, [&](unsigned i) { d[i] = out[i]; });
  set_predicate(w, in.p, mask, valid);
}

// mode2: 0 all, 1 any, 2 uni, 3 ballot
void vote(Warp& w, const Inst& in, uint32_t mask) {
  if (in.e != kNoSlot) mask = gathered(w, in, mask, slot32(w, in.e));
  if (mask == 0) return;
  const uint32_t p = predicate(w, in.a);
  uint32_t result = 0, ballot[kLanes];
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint32_t members = members_of(w, in, mask, i) | 1u << i, yes = p & members;
    bool out = false;
    if (in.mode2 == 0) out = yes == members;
    if (in.mode2 == 1) out = yes != 0;
    if (in.mode2 == 2) out = yes == members || yes == 0;
    ballot[i] = yes;
    result |= static_cast<uint32_t>(out) << i;
  }
  if (in.mode2 != 3) return set_predicate(w, in.d, mask, result);
  uint32_t* const d = slot32(w, in.d);
  for_lanes(mask, [&](unsigned i) { d[i] = ballot[i]; });
}

// mode2: 0 any, 1 all
template <class T>
void match(Warp& w, const Inst& in, uint32_t mask) {
  mask = gathered(w, in, mask, slot32(w, in.e));
  if (mask == 0) return;
  WordOf<T> values[kLanes];
  std::memcpy(values, words<T>(w, in.a), sizeof(values));
  uint32_t out[kLanes], all = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint32_t members = members_of(w, in, mask, i);
    uint32_t same = 0;
    for (uint32_t others = members; others != 0; others &= others - 1) {
      const auto k = static_cast<unsigned>(std::countr_zero(others));
      if (values[k] == values[i]) same |= 1u << k;
    }
    const bool complete = same == members;
    if (complete) all |= 1u << i;
    out[i] = in.mode2 == 0 ? same : complete ? members : 0;
  }
  uint32_t* const d = slot32(w, in.d);
  for_lanes(mask, [&](unsigned i) { d[i] = out[i]; });
  set_predicate(w, in.p, mask, all);
}

enum class Reduce : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };

// mode2: Reduce; count: 1 signed
void redux(Warp& w, const Inst& in, uint32_t mask) {
  mask = gathered(w, in, mask, slot32(w, in.e));
  if (mask == 0) return;
  uint32_t values[kLanes], out[kLanes];
  std::memcpy(values, slot32(w, in.a), sizeof(values));
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    uint32_t members = members_of(w, in, mask, i);
    uint32_t sum = values[i];
    for (members &= ~(1u << i); members != 0; members &= members - 1) {
      const uint32_t v = values[std::countr_zero(members)];
      const bool less =
          in.count != 0 ? static_cast<int32_t>(v) < static_cast<int32_t>(sum) : v < sum;
      switch (static_cast<Reduce>(in.mode2)) {
        case Reduce::kAdd: sum += v; break;
        case Reduce::kMin: sum = less ? v : sum; break;
        case Reduce::kMax: sum = less ? sum : v; break;
        case Reduce::kAnd: sum &= v; break;
        case Reduce::kOr: sum |= v; break;
        case Reduce::kXor: sum ^= v; break;
      }
    }
    out[i] = sum;
  }
  uint32_t* const d = slot32(w, in.d);
  for_lanes(mask, [&](unsigned i) { d[i] = out[i]; });
}

void elect(Warp& w, const Inst& in, uint32_t mask) {
  mask = gathered(w, in, mask, slot32(w, in.e));
  if (mask == 0) return;
  uint32_t* const d = slot32(w, in.d);
  uint32_t elected = 0;
  for_lanes(mask, [&](unsigned i) {
    const uint32_t members = members_of(w, in, mask, i);
    const auto leader = static_cast<uint32_t>(std::countr_zero(members));
    d[i] = leader;
    elected |= static_cast<uint32_t>(leader == i) << i;
  });
  set_predicate(w, in.p, mask, elected);
}

void activemask(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  for_lanes(mask, [=](unsigned i) { d[i] = mask; });
}

void warp_barrier(Warp& w, const Inst& in, uint32_t mask) {
  gathered(w, in, mask, slot32(w, in.a));
}

void cluster_arrive(Warp& w, const Inst&, uint32_t mask) {
  Cluster& cluster = w.launch->clusters[w.block->cluster_first];
  for_lanes(mask, [&](unsigned i) { w.cluster_phase[i] = cluster.phase; });
  cluster.arrived += static_cast<uint32_t>(std::popcount(mask));
  if (cluster.arrived < cluster.live) return;
  cluster.arrived = 0;
  ++cluster.phase;
}

void cluster_wait(Warp& w, const Inst& in, uint32_t mask) {
  const Cluster& cluster = w.launch->clusters[w.block->cluster_first];
  uint32_t early = 0;
  for_lanes(mask, [&](unsigned i) {
    early |= static_cast<uint32_t>(w.cluster_phase[i] == cluster.phase) << i;
  });
  if (early == 0) return;
  // Looks again when the other warps have had their turn.
  w.leave(mask & ~early, w.pc);
  w.pc = static_cast<uint32_t>(&in - w.code);
  w.yield = true;
  w.ask();
}

void split_pair(Builder& b, const Operand& out, Type first, int32_t* d, int32_t* p) {
  if (out.kind == Operand::Kind::kPair) {
    *d = b.target(out.elements[0], first);
    *p = b.target(out.elements[1], Type::kPred);
  } else {
    *d = b.target(out, first);
  }
}

void build_shfl(Builder& b) {
  const bool sync = b.has("sync");
  const uint8_t mode = b.has("up")     ? 0
                       : b.has("down") ? 1
                       : b.has("bfly") ? 2
                       : b.has("idx")  ? 3
                                       : 9;
  if (mode == 9) b.fail("expected .up, .down, .bfly or .idx");
  if (b.type() != Type::kB32) b.fail("expected .b32");
  b.count(sync ? 5 : 4);
  const int32_t x = b.source(1, Type::kB32), y = b.source(2, Type::kU32),
                z = b.source(3, Type::kU32);
  const int32_t e = sync ? b.source(4, Type::kU32) : kNoSlot;
  int32_t d = kNoSlot, p = kNoSlot;
  split_pair(b, b.operand(0), Type::kB32, &d, &p);
  Inst& in = b.emit(shfl, d, x, y, z);
  in.p = p;
  in.e = e;
  in.mode2 = mode;
}

void build_vote(Builder& b) {
  const bool sync = b.has("sync");
  const uint8_t mode = b.has("all")      ? 0
                       : b.has("any")    ? 1
                       : b.has("uni")    ? 2
                       : b.has("ballot") ? 3
                                         : 9;
  if (mode == 9) b.fail("expected .all, .any, .uni or .ballot");
  const Type type = b.type();
  if (type != (mode == 3 ? Type::kB32 : Type::kPred)) b.fail("wrong type");
  b.count(sync ? 3 : 2);
  const int32_t p = b.predicate_source(b.operand(1));
  const int32_t e = sync ? b.source(2, Type::kU32) : kNoSlot;
  Inst& in = b.emit(vote, b.target(0, type), p);
  in.e = e;
  in.mode2 = mode;
}

void build_match(Builder& b) {
  if (!b.has("sync")) b.fail("expected .sync");
  const bool all = b.has("all");
  if (!all && !b.has("any")) b.fail("expected .any or .all");
  const Type type = b.type();
  if (type != Type::kB32 && type != Type::kB64) b.fail("expected .b32 or .b64");
  b.count(3);
  const int32_t x = b.source(1, type), e = b.source(2, Type::kU32);
  int32_t d = kNoSlot, p = kNoSlot;
  split_pair(b, b.operand(0), Type::kB32, &d, &p);
  Inst& in = b.emit(type == Type::kB64 ? match<uint64_t> : match<uint32_t>, d, x);
  in.p = p;
  in.e = e;
  in.mode2 = all;
}

void build_redux(Builder& b) {
  static constexpr std::pair<std::string_view, Reduce> kNames[] = {
      {"add", Reduce::kAdd}, {"min", Reduce::kMin}, {"max", Reduce::kMax},
      {"and", Reduce::kAnd}, {"or", Reduce::kOr},   {"xor", Reduce::kXor}};
  if (!b.has("sync")) b.fail("expected .sync");
  for (const auto& [name, op] : kNames) {
    if (!b.has(name)) continue;
    const Type type = b.type();
    if (type_bits(type) != 32 || !is_integer(type)) b.fail("expected a 32-bit integer type");
    b.count(3);
    const int32_t x = b.source(1, type), e = b.source(2, Type::kU32);
    Inst& in = b.emit(redux, b.target(0, type), x);
    in.e = e;
    in.mode2 = static_cast<uint8_t>(op);
    in.count = is_signed(type);
    return;
  }
  b.fail("unknown reduction");
}

void build_elect(Builder& b) {
  if (!b.has("sync")) b.fail("expected .sync");
  b.count(2);
  const int32_t e = b.source(1, Type::kU32);
  int32_t d = kNoSlot, p = kNoSlot;
  split_pair(b, b.operand(0), Type::kB32, &d, &p);
  Inst& in = b.emit(elect, d);
  in.p = p;
  in.e = e;
}

void build_activemask(Builder& b) {
  b.type();
  b.count(1);
  b.emit(activemask, b.target(0, Type::kB32));
}

}  // namespace

void build_warp_barrier(Builder& b) {
  b.count(1);
  const int32_t members = b.source(0, Type::kU32);
  b.emit(warp_barrier, kNoSlot, members).mode = 1;
}

void build_cluster_barrier(Builder& b) {
  b.has("aligned");
  b.any("release", "relaxed", "acquire");
  b.count(0);
  if (b.has("arrive")) b.emit(cluster_arrive);
  else if (b.has("wait")) b.emit(cluster_wait);
  else b.fail("expected .arrive or .wait");
}

void register_warp(BuildTable& table) {
  table["shfl"] = build_shfl;
  table["vote"] = build_vote;
  table["match"] = build_match;
  table["redux"] = build_redux;
  table["elect"] = build_elect;
  table["activemask"] = build_activemask;
}

}  // namespace tube::sim::ptx

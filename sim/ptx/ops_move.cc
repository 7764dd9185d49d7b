// mov with packing and unpacking, address-of, storage class changes, special registers.
#include <ctime>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {

void move32(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const uint32_t* const a = slot32(w, in.a);
  for_lanes(mask, [=](unsigned i) { d[i] = a[i]; });
}
void move64(Warp& w, const Inst& in, uint32_t mask) {
  uint64_t* const d = slot64(w, in.d);
  const uint64_t* const a = slot64(w, in.a);
  for_lanes(mask, [=](unsigned i) { d[i] = a[i]; });
}
void move_predicate(Warp& w, const Inst& in, uint32_t mask) {
  set_predicate(w, in.d, mask, predicate(w, in.a));
}
void not_predicate(Warp& w, const Inst& in, uint32_t mask) {
  set_predicate(w, in.d, mask, ~predicate(w, in.a));
}

void frame_address(Warp& w, const Inst& in, uint32_t mask) {
  uint64_t* const d = slot64(w, in.d);
  const uint64_t value = w.local_base + in.imm;
  for_lanes(mask, [=](unsigned i) { d[i] = value; });
}

namespace {

// An operation a line.
// clang-format off
struct Zero { static uint64_t op(uint32_t a) { return a; } };
struct Sign { static int64_t op(int32_t a) { return a; } };
struct Low { static uint32_t op(uint64_t a) { return static_cast<uint32_t>(a); } };
// clang-format on

enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kZero,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kMaskEq,
  kMaskLt,
  kMaskLe,
  kMaskGt,
  kMaskGe,
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kDynamicShared,
  kTotalShared,
  kAggrShared,
  kEnvreg1,
  kEnvreg2,
  kWorkspace,
};

struct Name {
  const char* text;
  Special special;
  Type type;
};
constexpr Name kNames[] = {
    {"%laneid", Special::kLaneid, Type::kU32},
    {"%warpid", Special::kWarpid, Type::kU32},
    {"%nwarpid", Special::kNwarpid, Type::kU32},
    {"%smid", Special::kSmid, Type::kU32},
    {"%nsmid", Special::kNsmid, Type::kU32},
    {"%gridid", Special::kGridid, Type::kU64},
    {"%lanemask_eq", Special::kMaskEq, Type::kU32},
    {"%lanemask_lt", Special::kMaskLt, Type::kU32},
    {"%lanemask_le", Special::kMaskLe, Type::kU32},
    {"%lanemask_gt", Special::kMaskGt, Type::kU32},
    {"%lanemask_ge", Special::kMaskGe, Type::kU32},
    {"%clock", Special::kClock, Type::kU32},
    {"%clock_hi", Special::kClockHi, Type::kU32},
    {"%clock64", Special::kClock64, Type::kU64},
    {"%globaltimer", Special::kGlobaltimer, Type::kU64},
    {"%globaltimer_lo", Special::kGlobaltimerLo, Type::kU32},
    {"%globaltimer_hi", Special::kGlobaltimerHi, Type::kU32},
    {"%dynamic_smem_size", Special::kDynamicShared, Type::kU32},
    {"%total_smem_size", Special::kTotalShared, Type::kU32},
    {"%aggr_smem_size", Special::kAggrShared, Type::kU32},
    {"%cluster_ctarank", Special::kClusterCtarank, Type::kU32},
    {"%cluster_nctarank", Special::kClusterNctarank, Type::kU32},
    {"%is_explicit_cluster", Special::kIsExplicitCluster, Type::kPred},
    {"%reserved_smem_offset_begin", Special::kZero, Type::kU32},
    {"%reserved_smem_offset_end", Special::kZero, Type::kU32},
    {"%reserved_smem_offset_cap", Special::kZero, Type::kU32},
};
struct VectorName {
  const char* text;
  Special first;
};
constexpr VectorName kVectors[] = {
    {"%tid", Special::kTidX},
    {"%ntid", Special::kNtidX},
    {"%ctaid", Special::kCtaidX},
    {"%nctaid", Special::kNctaidX},
    {"%clusterid", Special::kClusteridX},
    {"%nclusterid", Special::kNclusteridX},
    {"%cluster_ctaid", Special::kClusterCtaidX},
    {"%cluster_nctaid", Special::kClusterNctaidX},
};

uint64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Cycles since an arbitrary start: the time at 1 GHz is close enough for programs that measure or
// wait.
uint64_t cycles() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Values that are the same for all lanes of the warp.
uint64_t uniform(const Warp& w, Special which) {
  const Block& block = *w.block;
  const LaunchConfig& config = w.launch->config;
  const auto at = static_cast<unsigned>(which);
  const auto axis = [&](Special first) { return at - static_cast<unsigned>(first); };
  const auto in = [&](Special first) {
    return at >= static_cast<unsigned>(first) && axis(first) < 3;
  };
  if (in(Special::kNtidX)) return config.block[axis(Special::kNtidX)];
  if (in(Special::kCtaidX)) return block.id[axis(Special::kCtaidX)];
  if (in(Special::kNctaidX)) return config.grid[axis(Special::kNctaidX)];
  if (in(Special::kClusteridX))
    return block.id[axis(Special::kClusteridX)] / config.cluster[axis(Special::kClusteridX)];
  if (in(Special::kNclusteridX))
    return config.grid[axis(Special::kNclusteridX)] / config.cluster[axis(Special::kNclusteridX)];
  if (in(Special::kClusterCtaidX))
    return block.id[axis(Special::kClusterCtaidX)] % config.cluster[axis(Special::kClusterCtaidX)];
  if (in(Special::kClusterNctaidX)) return config.cluster[axis(Special::kClusterNctaidX)];
  const uint64_t cluster_size = uint64_t{config.cluster[0]} * config.cluster[1] * config.cluster[2];
  switch (which) {
    case Special::kClusterCtarank: return block.cluster_rank;
    case Special::kClusterNctarank: return cluster_size;
    case Special::kIsExplicitCluster: return cluster_size > 1 ? UINT32_MAX : 0;
    case Special::kWarpid: return w.index;
    case Special::kNwarpid: return 64;
    case Special::kSmid:
      return (block.id[0] + uint64_t{block.id[1]} * config.grid[0]) %
             (config.sm_count != 0 ? config.sm_count : 1);
    case Special::kNsmid: return config.sm_count;
    case Special::kGridid: return config.grid_id;
    case Special::kClock:
    case Special::kClock64: return cycles();
    case Special::kClockHi: return cycles() >> 32;
    case Special::kGlobaltimer:
    case Special::kGlobaltimerLo: return nanoseconds();
    case Special::kGlobaltimerHi: return nanoseconds() >> 32;
    case Special::kDynamicShared: return config.dynamic_shared_bytes;
    case Special::kTotalShared:
    case Special::kAggrShared: return w.launch->shared_bytes;
    // The address of the workspace of a cooperative launch, in two halves.
    case Special::kEnvreg1: return config.cooperative ? kWorkspaceWindow >> 32 : 0;
    case Special::kEnvreg2: return config.cooperative ? kWorkspaceWindow & UINT32_MAX : 0;
    default: return 0;
  }
}

}  // namespace

Handler widen_handler(Class from, Class to, bool sign) {
  if (from == Class::k64) return unary<Low, uint32_t, uint64_t>;
  if (to == Class::k64)
    return sign ? static_cast<Handler>(unary<Sign, int64_t, int32_t>)
                : unary<Zero, uint64_t, uint32_t>;
  return move32;
}

bool special_register(std::string_view name, std::string_view component, uint8_t* mode,
                      Type* type) {
  *type = Type::kU32;
  for (const VectorName& vector : kVectors) {
    if (name != vector.text) continue;
    static constexpr std::string_view kAxes = "xyz";
    if (component == "w") {
      *mode = static_cast<uint8_t>(Special::kZero);
      return true;
    }
    const size_t axis = component.size() == 1 ? kAxes.find(component[0]) : std::string_view::npos;
    if (axis == std::string_view::npos) return false;
    *mode = static_cast<uint8_t>(static_cast<size_t>(vector.first) + axis);
    return true;
  }
  if (!component.empty()) return false;
  for (const Name& row : kNames) {
    if (name != row.text) continue;
    *mode = static_cast<uint8_t>(row.special);
    *type = row.type;
    return true;
  }
  const bool counter = name.starts_with("%envreg") || name.starts_with("%pm") ||
                       name.starts_with("%reserved_smem_offset_");
  if (!counter) return false;
  *mode = static_cast<uint8_t>(name == "%envreg1"   ? Special::kEnvreg1
                               : name == "%envreg2" ? Special::kEnvreg2
                                                    : Special::kZero);
  if (name.ends_with("_64")) *type = Type::kU64;
  return true;
}

void read_special(Warp& w, const Inst& in, uint32_t mask) {
  const auto which = static_cast<Special>(in.mode);
  uint32_t* const d = slot32(w, in.d);
  const auto lanes = [&](auto f) { for_lanes(mask, [&](unsigned i) { d[i] = f(i); }); };
  switch (which) {
    case Special::kTidX:
    case Special::kTidY:
    case Special::kTidZ: return lanes([&](unsigned i) { return w.tid[in.mode][i]; });
    case Special::kLaneid: return lanes([](unsigned i) { return i; });
    case Special::kMaskEq: return lanes([](unsigned i) { return 1u << i; });
    case Special::kMaskLt: return lanes([](unsigned i) { return (1u << i) - 1; });
    case Special::kMaskLe: return lanes([](unsigned i) { return (1u << i) | ((1u << i) - 1); });
    case Special::kMaskGt: return lanes([](unsigned i) { return ~((1u << i) | ((1u << i) - 1)); });
    case Special::kMaskGe: return lanes([](unsigned i) { return ~((1u << i) - 1); });
    case Special::kIsExplicitCluster:
      return set_predicate(w, in.d, mask, static_cast<uint32_t>(uniform(w, which)));
    default: break;
  }
  const uint64_t value = uniform(w, which);
  const bool wide =
      which == Special::kGridid || which == Special::kClock64 || which == Special::kGlobaltimer;
  if (which == Special::kClock || which == Special::kClock64 || which == Special::kGlobaltimer ||
      which == Special::kGlobaltimerLo)
    w.touched_sync =
        true;  // loops that wait for time to pass give way like loops that wait for memory
  if (wide) {
    uint64_t* const d64 = slot64(w, in.d);
    for_lanes(mask, [=](unsigned i) { d64[i] = value; });
  } else {
    lanes([=](unsigned) { return static_cast<uint32_t>(value); });
  }
}

namespace {

// d = the elements in the list at `target`, `mode` bits each, lowest first
void pack(Warp& w, const Inst& in, uint32_t mask) {
  const int32_t* const list = w.frame->function->lists.data() + in.target;
  for_lanes(mask, [&](unsigned i) {
    uint64_t value = 0;
    for (unsigned k = 0; k < in.count; ++k) {
      const uint64_t part = in.mode == 64   ? slot64(w, list[k])[i]
                            : in.mode == 32 ? slot32(w, list[k])[i]
                                            : slot32(w, list[k])[i] & ((1u << in.mode) - 1);
      value |= part << (k * in.mode);
    }
    if (in.mode2 != 0) slot64(w, in.d)[i] = value;
    else slot32(w, in.d)[i] = static_cast<uint32_t>(value);
  });
}

void unpack(Warp& w, const Inst& in, uint32_t mask) {
  const int32_t* const list = w.frame->function->lists.data() + in.target;
  for_lanes(mask, [&](unsigned i) {
    const uint64_t value = in.mode2 != 0 ? slot64(w, in.a)[i] : slot32(w, in.a)[i];
    for (unsigned k = 0; k < in.count; ++k) {
      const uint64_t part = value >> (k * in.mode);
      slot32(w, list[k])[i] =
          static_cast<uint32_t>(in.mode == 32 ? part : part & ((1u << in.mode) - 1));
    }
  });
}

Type part_type(Builder& b, Type type, size_t parts) {
  const uint32_t bits = type_bits(type);
  if (parts == 2 && bits == 64) return Type::kB32;
  if ((parts == 2 && bits == 32) || (parts == 4 && bits == 64)) return Type::kB16;
  if ((parts == 2 && bits == 16) || (parts == 4 && bits == 32) || (parts == 8 && bits == 64))
    return Type::kB8;
  b.fail("vector does not match the type");
}

void build_mov(Builder& b) {
  const Type type = b.type();
  b.count(2);
  const Operand &to = b.operand(0), &from = b.operand(1);
  const bool wide = type_class(type) == Class::k64;
  if (type_bits(type) > 64) b.fail("128-bit mov is not supported");
  if (from.kind == Operand::Kind::kVector) {
    const Type part = part_type(b, type, from.elements.size());
    std::vector<int32_t> slots;
    for (const Operand& element : from.elements) slots.push_back(b.source(element, part));
    Inst& in = b.emit(pack, b.target(to, type));
    in.target = b.list(slots);
    in.count = static_cast<uint8_t>(slots.size());
    in.mode = static_cast<uint8_t>(type_bits(part));
    in.mode2 = wide;
    return;
  }
  if (to.kind == Operand::Kind::kVector) {
    const Type part = part_type(b, type, to.elements.size());
    const int32_t a = b.source(from, type);
    std::vector<int32_t> slots;
    for (const Operand& element : to.elements) slots.push_back(b.target(element, part));
    Inst& in = b.emit(unpack, kNoSlot, a);
    in.target = b.list(slots);
    in.count = static_cast<uint8_t>(slots.size());
    in.mode = static_cast<uint8_t>(type_bits(part));
    in.mode2 = wide;
    return;
  }
  const int32_t a = b.source(from, type);
  b.emit(type == Type::kPred ? move_predicate : wide ? move64 : move32, b.target(to, type), a);
}

}  // namespace

void register_move(BuildTable& table) { table["mov"] = build_mov; }

}  // namespace tube::sim::ptx

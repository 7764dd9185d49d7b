// set, setp, selp, slct: comparisons of all types, ordered and unordered, combined with a
// predicate.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

enum class Cmp : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};
enum class Combine : uint8_t { kNone, kAnd, kOr, kXor };

template <class F>
inline __attribute__((always_inline)) uint32_t collect(uint32_t mask, F&& f) {
  uint32_t out = 0;
  if (mask == UINT32_MAX) {
    for (unsigned i = 0; i < kLanes; ++i) out |= static_cast<uint32_t>(f(i)) << i;
  } else {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(rest));
      out |= static_cast<uint32_t>(f(i)) << i;
    }
  }
  return out;
}

// A(i), B(i) give the operands of lane i; with NaN every ordered comparison is false.
template <class A, class B>
uint32_t compare(Cmp op, uint32_t mask, A a, B b) {
  const auto ordered = [&](unsigned i) { return a(i) == a(i) && b(i) == b(i); };
  switch (op) {
    case Cmp::kEq: return collect(mask, [&](unsigned i) { return a(i) == b(i); });
    case Cmp::kNe: return collect(mask, [&](unsigned i) { return a(i) != b(i) && ordered(i); });
    case Cmp::kLt: return collect(mask, [&](unsigned i) { return a(i) < b(i); });
    case Cmp::kLe: return collect(mask, [&](unsigned i) { return a(i) <= b(i); });
    case Cmp::kGt: return collect(mask, [&](unsigned i) { return a(i) > b(i); });
    case Cmp::kGe: return collect(mask, [&](unsigned i) { return a(i) >= b(i); });
    case Cmp::kEqu: return collect(mask, [&](unsigned i) { return a(i) == b(i) || !ordered(i); });
    case Cmp::kNeu: return collect(mask, [&](unsigned i) { return a(i) != b(i); });
    case Cmp::kLtu: return collect(mask, [&](unsigned i) { return !(a(i) >= b(i)); });
    case Cmp::kLeu: return collect(mask, [&](unsigned i) { return !(a(i) > b(i)); });
    case Cmp::kGtu: return collect(mask, [&](unsigned i) { return !(a(i) <= b(i)); });
    case Cmp::kGeu: return collect(mask, [&](unsigned i) { return !(a(i) < b(i)); });
    case Cmp::kNum: return collect(mask, ordered);
    case Cmp::kNan: return collect(mask, [&](unsigned i) { return !ordered(i); });
  }
  return 0;
}

float half_at(uint32_t word, bool bf, bool high, bool ftz) {
  auto bits = static_cast<uint16_t>(high ? word >> 16 : word);
  if (ftz && (bits & (bf ? 0x7f80 : 0x7c00)) == 0) bits &= 0x8000;
  return bf ? bfloat_to_float(bits) : half_to_float(bits);
}

// mode: Cmp. mode2: bits 0-1 Combine, bit 2 ftz. imm: Type of the operands. `high` picks the upper
// half of a pair.
uint32_t compare_operands(Warp& w, const Inst& in, uint32_t mask, bool high) {
  const Cmp op = static_cast<Cmp>(in.mode);
  const bool ftz = (in.mode2 & 4) != 0;
  const auto as = [&]<class T>(T) {
    const auto *a = words<T>(w, in.a), *b = words<T>(w, in.b);
    return compare(
        op, mask, [=](unsigned i) { return from_word<T>(a[i]); },
        [=](unsigned i) { return from_word<T>(b[i]); });
  };
  switch (static_cast<Type>(in.imm)) {
    case Type::kB16:
    case Type::kU16: return as(uint16_t{});
    case Type::kS16: return as(int16_t{});
    case Type::kB32:
    case Type::kU32: return as(uint32_t{});
    case Type::kS32: return as(int32_t{});
    case Type::kB64:
    case Type::kU64: return as(uint64_t{});
    case Type::kS64: return as(int64_t{});
    case Type::kF64: return as(double{});
    case Type::kF32: {
      if (!ftz) return as(float{});
      const auto *a = slot32(w, in.a), *b = slot32(w, in.b);
      return compare(
          op, mask, [=](unsigned i) { return flush(std::bit_cast<float>(a[i])); },
          [=](unsigned i) { return flush(std::bit_cast<float>(b[i])); });
    }
    default: {
      const auto type = static_cast<Type>(in.imm);
      const bool bf = type == Type::kBf16 || type == Type::kBf16x2;
      const auto *a = slot32(w, in.a), *b = slot32(w, in.b);
      return compare(
          op, mask, [=](unsigned i) { return half_at(a[i], bf, high, ftz); },
          [=](unsigned i) { return half_at(b[i], bf, high, ftz); });
    }
  }
}

uint32_t combine(Warp& w, const Inst& in, uint32_t value) {
  switch (static_cast<Combine>(in.mode2 & 3)) {
    case Combine::kNone: return value;
    case Combine::kAnd: return value & predicate(w, in.e);
    case Combine::kOr: return value | predicate(w, in.e);
    case Combine::kXor: return value ^ predicate(w, in.e);
  }
  return value;
}

bool is_pair(Type type) { return type == Type::kF16x2 || type == Type::kBf16x2; }

void setp(Warp& w, const Inst& in, uint32_t mask) {
  const uint32_t value = compare_operands(w, in, mask, false);
  uint32_t second = 0;
  if (in.p != kNoSlot) {
    const uint32_t other =
        is_pair(static_cast<Type>(in.imm)) ? compare_operands(w, in, mask, true) : ~value;
    second = combine(w, in, other);
  }
  set_predicate(w, in.d, mask, combine(w, in, value));
  set_predicate(w, in.p, mask, second);
}

// target holds the bits of "true"; the result of a pair has them per half.
void set_value(Warp& w, const Inst& in, uint32_t mask) {
  const uint32_t value = combine(w, in, compare_operands(w, in, mask, false));
  const bool pair = is_pair(static_cast<Type>(in.imm));
  const uint32_t high = pair ? combine(w, in, compare_operands(w, in, mask, true)) : 0;
  uint32_t* const d = slot32(w, in.d);
  for_lanes(mask, [&](unsigned i) {
    uint32_t out = (value >> i & 1) != 0 ? in.target : 0;
    if (pair) out |= (high >> i & 1) != 0 ? in.target << 16 : 0;
    d[i] = out;
  });
}

template <class T>
void selp(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<T>(w, in.d);
  const auto *a = words<T>(w, in.a), *b = words<T>(w, in.b);
  const uint32_t p = predicate(w, in.c);
  for_lanes(mask, [=](unsigned i) { d[i] = (p >> i & 1) != 0 ? a[i] : b[i]; });
}

// mode: 0 s32, 1 f32, 2 f32 with ftz
template <class T>
void slct(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<T>(w, in.d);
  const auto *a = words<T>(w, in.a), *b = words<T>(w, in.b);
  const uint32_t* const c = slot32(w, in.c);
  for_lanes(mask, [=, &in](unsigned i) {
    bool first = static_cast<int32_t>(c[i]) >= 0;
    if (in.mode != 0) {
      const float x = std::bit_cast<float>(c[i]);
      first = (in.mode == 2 ? flush(x) : x) >= 0;
    }
    d[i] = first ? a[i] : b[i];
  });
}

Cmp take_comparison(Builder& b) {
  static constexpr std::pair<std::string_view, Cmp> kNames[] = {
      {"eq", Cmp::kEq},   {"ne", Cmp::kNe},   {"lt", Cmp::kLt},   {"le", Cmp::kLe},
      {"gt", Cmp::kGt},   {"ge", Cmp::kGe},   {"lo", Cmp::kLt},   {"ls", Cmp::kLe},
      {"hi", Cmp::kGt},   {"hs", Cmp::kGe},   {"equ", Cmp::kEqu}, {"neu", Cmp::kNeu},
      {"ltu", Cmp::kLtu}, {"leu", Cmp::kLeu}, {"gtu", Cmp::kGtu}, {"geu", Cmp::kGeu},
      {"num", Cmp::kNum}, {"nan", Cmp::kNan}};
  for (const auto& [name, op] : kNames)
    if (b.has(name)) return op;
  b.fail("expected a comparison");
}

Combine take_combine(Builder& b) {
  if (b.has("and")) return Combine::kAnd;
  if (b.has("or")) return Combine::kOr;
  if (b.has("xor")) return Combine::kXor;
  return Combine::kNone;
}

// For ordered comparisons of integers "ne" must not look at NaN: compare() treats a == a as true
// there anyway.
void check_type(Builder& b, Type type, Cmp op) {
  const bool known = is_float(type) || is_pair(type) ||
                     (is_integer(type) && type_bits(type) >= 16 && type_bits(type) <= 64);
  if (!known) b.fail("type ." + std::string(type_name(type)) + " cannot be compared");
  if (is_integer(type) && op >= Cmp::kEqu) b.fail("unordered comparison of integers");
}

void build_setp(Builder& b) {
  const Cmp op = take_comparison(b);
  const Combine with = take_combine(b);
  const bool ftz = b.has("ftz");
  const Type type = b.type();
  check_type(b, type, op);
  b.count(with == Combine::kNone ? 3 : 4);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  const int32_t e = with == Combine::kNone ? kNoSlot : b.predicate_source(b.operand(3));
  int32_t d = kNoSlot, p = kNoSlot;
  const Operand& out = b.operand(0);
  if (out.kind == Operand::Kind::kPair) {
    d = b.target(out.elements[0], Type::kPred);
    p = b.target(out.elements[1], Type::kPred);
  } else {
    d = b.target(out, Type::kPred);
  }
  Inst& in = b.emit(setp, d, x, y);
  in.p = p;
  in.e = e;
  in.mode = static_cast<uint8_t>(op);
  in.mode2 = static_cast<uint8_t>(static_cast<int>(with) | (ftz ? 4 : 0));
  in.imm = static_cast<uint64_t>(type);
}

void build_set(Builder& b) {
  const Cmp op = take_comparison(b);
  const Combine with = take_combine(b);
  const bool ftz = b.has("ftz");
  const Type result = b.type();
  const Type type = b.type();
  check_type(b, type, op);
  b.count(with == Combine::kNone ? 3 : 4);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  const int32_t e = with == Combine::kNone ? kNoSlot : b.predicate_source(b.operand(3));
  Inst& in = b.emit(set_value, b.target(0, result), x, y);
  in.e = e;
  in.mode = static_cast<uint8_t>(op);
  in.mode2 = static_cast<uint8_t>(static_cast<int>(with) | (ftz ? 4 : 0));
  in.imm = static_cast<uint64_t>(type);
  switch (result) {
    case Type::kF32: in.target = 0x3f800000; break;
    case Type::kF16:
    case Type::kF16x2: in.target = 0x3c00; break;
    case Type::kBf16:
    case Type::kBf16x2: in.target = 0x3f80; break;
    case Type::kU32:
    case Type::kS32:
    case Type::kB32: in.target = is_pair(type) ? 0xffff : UINT32_MAX; break;
    case Type::kU16:
    case Type::kS16:
    case Type::kB16: in.target = 0xffff; break;
    default: b.fail("type ." + std::string(type_name(result)) + " cannot hold a comparison");
  }
}

void build_selp(Builder& b) {
  const Type type = b.type();
  b.count(4);
  const int32_t x = b.source(1, type), y = b.source(2, type), p = b.predicate_source(b.operand(3));
  b.emit(type_class(type) == Class::k64 ? selp<uint64_t> : selp<uint32_t>, b.target(0, type), x, y,
         p);
}

void build_slct(Builder& b) {
  const bool ftz = b.has("ftz");
  const Type type = b.type();
  const Type by = b.type();
  if (by != Type::kS32 && by != Type::kF32) b.fail("expected .s32 or .f32");
  b.count(4);
  const int32_t x = b.source(1, type), y = b.source(2, type), z = b.source(3, by);
  b.emit(type_class(type) == Class::k64 ? slct<uint64_t> : slct<uint32_t>, b.target(0, type), x, y,
         z)
      .mode = by == Type::kS32 ? 0
              : ftz            ? 2
                               : 1;
}

}  // namespace

void register_compare(BuildTable& table) {
  table["setp"] = build_setp;
  table["set"] = build_set;
  table["selp"] = build_selp;
  table["slct"] = build_slct;
}

}  // namespace tube::sim::ptx

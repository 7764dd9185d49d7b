// atom and red. Lanes act one after another, each with one host atomic, so kernels of other
// launches and the host itself see whole updates.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

enum class Op : uint8_t { kAnd, kOr, kXor, kExch, kCas, kAdd, kInc, kDec, kMin, kMax };

template <class T>
T minimum(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  return a < b ? b : a;
}

uint16_t half_update(Op op, bool bf, uint16_t old, uint16_t b) {
  const Arith arith = op == Op::kAdd ? Arith::kAdd : op == Op::kMin ? Arith::kMin : Arith::kMax;
  return half_arith(arith, bf, old, b, 0);
}

// The new value; T is the unsigned word that memory holds.
template <class T>
T update(Op op, Type type, T old, T b, T c) {
  using S = std::make_signed_t<T>;
  switch (op) {
    case Op::kAnd: return old & b;
    case Op::kOr: return old | b;
    case Op::kXor: return old ^ b;
    case Op::kExch: return b;
    case Op::kCas: return old == b ? c : old;
    case Op::kInc: return old >= b ? T{0} : static_cast<T>(old + 1);
    case Op::kDec: return old == 0 || old > b ? b : static_cast<T>(old - 1);
    case Op::kAdd:
    case Op::kMin:
    case Op::kMax: break;
  }
  const bool bf = type == Type::kBf16 || type == Type::kBf16x2;
  if constexpr (sizeof(T) == 2) {
    if (is_half(type)) return half_update(op, bf, old, b);
  }
  if constexpr (sizeof(T) == 4) {
    if (type == Type::kF32) {
      const float x = std::bit_cast<float>(old), y = std::bit_cast<float>(b);
      return std::bit_cast<uint32_t>(canonical(op == Op::kAdd   ? x + y
                                               : op == Op::kMin ? float_min(x, y)
                                                                : float_max(x, y)));
    }
    if (is_half(type))
      return static_cast<uint32_t>(
                 half_update(op, bf, static_cast<uint16_t>(old), static_cast<uint16_t>(b))) |
             static_cast<uint32_t>(half_update(op, bf, static_cast<uint16_t>(old >> 16),
                                               static_cast<uint16_t>(b >> 16)))
                 << 16;
  }
  if constexpr (sizeof(T) == 8) {
    if (type == Type::kF64) {
      const double x = std::bit_cast<double>(old), y = std::bit_cast<double>(b);
      return std::bit_cast<uint64_t>(op == Op::kAdd   ? x + y
                                     : op == Op::kMin ? float_min(x, y)
                                                      : float_max(x, y));
    }
  }
  if (op == Op::kAdd) return static_cast<T>(old + b);
  const bool sign = is_signed(type);
  if (op == Op::kMin)
    return sign ? static_cast<T>(minimum(static_cast<S>(old), static_cast<S>(b))) : minimum(old, b);
  return sign ? static_cast<T>(maximum(static_cast<S>(old), static_cast<S>(b))) : maximum(old, b);
}

// mode: Op; mode2: bit 0 frame-relative; count: Type
template <class T, Space S>
void atomic(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const base = in.a == kNoSlot ? nullptr : slot64(w, in.a);
  const auto* const b = words<T>(w, in.b);
  const auto* const c = in.c == kNoSlot ? nullptr : words<T>(w, in.c);
  auto* const d = in.d == kNoSlot ? nullptr : words<T>(w, in.d);
  const auto op = static_cast<Op>(in.mode);
  const auto type = static_cast<Type>(in.count);
  w.touched_sync = true;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint64_t address =
        (base != nullptr ? base[i] : 0) + in.imm + ((in.mode2 & 1) != 0 ? w.local_base : 0);
    if (address % sizeof(T) != 0)
      return w.fault(Fault::Kind::kMisalignedAddress, in, address, "misaligned atomic");
    std::byte* const at = resolve<S>(w, address, sizeof(T), i, true);
    if (at == nullptr)
      return w.fault(Fault::Kind::kIllegalAddress, in, address, "illegal address in atomic");
    T* const word = reinterpret_cast<T*>(at);
    const T x = static_cast<T>(b[i]), y = c != nullptr ? static_cast<T>(c[i]) : T{0};
    T old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(word, &old, update<T>(op, type, old, x, y), true,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    if (d != nullptr) d[i] = old;
  }
}

template <class T>
Handler for_space(Space space) {
  switch (space) {
    case Space::kGlobal: return atomic<T, Space::kGlobal>;
    case Space::kShared: return atomic<T, Space::kShared>;
    default: return atomic<T, Space::kGeneric>;
  }
}

Op take_op(Builder& b) {
  static constexpr std::pair<std::string_view, Op> kNames[] = {
      {"and", Op::kAnd}, {"or", Op::kOr},   {"xor", Op::kXor}, {"exch", Op::kExch},
      {"cas", Op::kCas}, {"add", Op::kAdd}, {"inc", Op::kInc}, {"dec", Op::kDec},
      {"min", Op::kMin}, {"max", Op::kMax}};
  for (const auto& [name, op] : kNames)
    if (b.has(name)) return op;
  b.fail("unknown atomic operation");
}

void check(Builder& b, Op op, Type type) {
  const uint32_t bits = type_bits(type);
  bool fine = bits == 32 || bits == 64;
  if (op == Op::kCas || op == Op::kExch) fine = fine || (bits == 16 && type == Type::kB16);
  if (op == Op::kAdd || op == Op::kMin || op == Op::kMax) fine = fine || is_half(type);
  if (op == Op::kInc || op == Op::kDec) fine = type == Type::kU32;
  if (op == Op::kAnd || op == Op::kOr || op == Op::kXor) fine = fine && is_integer(type);
  if (!fine) b.fail("type ." + std::string(type_name(type)) + " is not supported for this atomic");
}

template <bool Reduce>
void build(Builder& b) {
  if (Reduce && b.has("async")) b.fail("red.async is not supported");
  b.any("relaxed", "acquire", "release", "acq_rel", "noftz");
  b.any("cta", "cluster", "gpu", "sys");
  const bool hint = b.has("L2::cache_hint");
  Space space = Space::kGeneric;
  if (b.has("global")) space = Space::kGlobal;
  else if (b.any("shared", "shared::cta", "shared::cluster")) space = Space::kShared;
  const Op op = take_op(b);
  const Type type = b.type();
  check(b, op, type);
  if (Reduce && (op == Op::kCas || op == Op::kExch)) b.fail("red has no such operation");
  const size_t first = Reduce ? 0 : 1;
  const size_t exact = first + 2 + (op == Op::kCas ? 1 : 0);
  b.count(exact, exact + (hint ? 1 : 0));
  const Address address = b.address(b.operand(first), space);
  const int32_t x = b.source(first + 1, type);
  const int32_t y = op == Op::kCas ? b.source(first + 2, type) : kNoSlot;
  const int32_t d = Reduce ? kNoSlot : b.target(0, type);
  const uint32_t bytes = type_bytes(type);
  Inst& in = b.emit(bytes == 8   ? for_space<uint64_t>(space)
                    : bytes == 4 ? for_space<uint32_t>(space)
                                 : for_space<uint16_t>(space),
                    d, address.base, x, y);
  in.imm = address.offset;
  in.mode = static_cast<uint8_t>(op);
  in.mode2 = address.frame;
  in.count = static_cast<uint8_t>(type);
}

}  // namespace

void register_atomic(BuildTable& table) {
  table["atom"] = build<false>;
  table["red"] = build<true>;
}

}  // namespace tube::sim::ptx

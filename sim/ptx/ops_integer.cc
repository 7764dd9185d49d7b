// Integer arithmetic of all widths. Division by zero answers all ones (remainder: the dividend), as
// the hardware does.
#include <algorithm>
#include <limits>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

// An operation a line.
// clang-format off
struct Add { template <class T> static T op(T a, T b) { return static_cast<T>(Wrap<T>(a) + Wrap<T>(b)); } };
struct Sub { template <class T> static T op(T a, T b) { return static_cast<T>(Wrap<T>(a) - Wrap<T>(b)); } };
struct AddSat {
  static int32_t op(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
  }
};
struct SubSat {
  static int32_t op(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} - b, INT32_MIN, INT32_MAX));
  }
};
struct MulLo { template <class T> static T op(T a, T b) { return static_cast<T>(Wrap<T>(a) * Wrap<T>(b)); } };

template <class T>
T high(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> 64);
  } else {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (sizeof(T) * 8));
  }
}

struct MulHi { template <class T> static T op(T a, T b) { return high(a, b); } };
struct MadLo {
  template <class T> static T op(T a, T b, T c) { return static_cast<T>(Wrap<T>(a) * Wrap<T>(b) + Wrap<T>(c)); }
};
struct MadHi {
  template <class T> static T op(T a, T b, T c) { return static_cast<T>(Wrap<T>(high(a, b)) + Wrap<T>(c)); }
};
struct MadHiSat {
  static int32_t op(int32_t a, int32_t b, int32_t c) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{high(a, b)} + c, INT32_MIN, INT32_MAX));
  }
};
template <class W> struct MulWide { template <class T> static W op(T a, T b) { return static_cast<W>(W(a) * W(b)); } };
template <class W> struct MadWide {
  template <class T> static W op(T a, T b, W c) {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(U(W(a)) * U(W(b)) + U(c));
  }
};
struct Div {
  template <class T> static T op(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) if (b == -1) return static_cast<T>(Wrap<T>(0) - Wrap<T>(a));
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T> static T op(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min { template <class T> static T op(T a, T b) { return a < b ? a : b; } };
struct Max { template <class T> static T op(T a, T b) { return a < b ? b : a; } };
struct Abs { template <class T> static T op(T a) { return a < 0 ? static_cast<T>(Wrap<T>(0) - Wrap<T>(a)) : a; } };
struct Neg { template <class T> static T op(T a) { return static_cast<T>(Wrap<T>(0) - Wrap<T>(a)); } };
struct Sad {
  template <class T> static T op(T a, T b, T c) {
    const Wrap<T> difference = a < b ? Wrap<T>(b) - Wrap<T>(a) : Wrap<T>(a) - Wrap<T>(b);
    return static_cast<T>(Wrap<T>(c) + difference);
  }
};
template <class T> T low24(uint32_t v) { return std::is_signed_v<T> ? static_cast<T>(v << 8) >> 8 : static_cast<T>(v & 0xffffff); }
template <class T, bool High> T product24(T a, T b) {
  using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  const W wide = W(low24<T>(static_cast<uint32_t>(a))) * W(low24<T>(static_cast<uint32_t>(b)));
  return static_cast<T>(High ? wide >> 16 : wide);
}
template <bool High> struct Mul24 { template <class T> static T op(T a, T b) { return product24<T, High>(a, b); } };
template <bool High> struct Mad24 {
  template <class T> static T op(T a, T b, T c) { return static_cast<T>(Wrap<T>(product24<T, High>(a, b)) + Wrap<T>(c)); }
  // clang-format on
};

// dp4a, dp2a: mode bit 0: a signed, bit 1: b signed, bit 2: dp2a.hi
int64_t piece(uint32_t value, unsigned bits, unsigned index, bool sign) {
  const uint32_t raw = value >> (index * bits) & ((1u << bits) - 1);
  return sign && (raw >> (bits - 1)) != 0 ? int64_t{raw} - (int64_t{1} << bits) : int64_t{raw};
}
template <unsigned Parts>
void dot(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const uint32_t *a = slot32(w, in.a), *b = slot32(w, in.b), *c = slot32(w, in.c);
  for_lanes(mask, [&](unsigned i) {
    int64_t sum = c[i];
    for (unsigned k = 0; k < Parts; ++k)
      sum += piece(a[i], Parts == 4 ? 8 : 16, k, in.mode & 1) *
             piece(b[i], 8, Parts == 2 && (in.mode & 4) != 0 ? k + 2 : k, in.mode & 2);
    d[i] = static_cast<uint32_t>(sum);
  });
}

// Two 16-bit integers in one register. F works on the halves.
template <class F, class T>
struct Pair {
  static uint32_t op(uint32_t a, uint32_t b) {
    const auto low = static_cast<uint16_t>(F::op(static_cast<T>(a), static_cast<T>(b)));
    const auto top = static_cast<uint16_t>(F::op(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return static_cast<uint32_t>(top) << 16 | low;
  }
};
template <class F>
Handler pair_handler(Type type) {
  if (type == Type::kU16x2) return binary<Pair<F, uint16_t>, uint32_t, uint32_t, uint32_t>;
  if (type == Type::kS16x2) return binary<Pair<F, int16_t>, uint32_t, uint32_t, uint32_t>;
  return nullptr;
}

void emit2(Builder& b, Handler handler, Type type) {
  if (handler == nullptr)
    b.fail("type ." + std::string(type_name(type)) + " is not supported here");
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  const int32_t d = b.target(0, type);
  b.emit(handler, d, x, y);
}

void emit1(Builder& b, Handler handler, Type type) {
  if (handler == nullptr)
    b.fail("type ." + std::string(type_name(type)) + " is not supported here");
  b.count(2);
  const int32_t x = b.source(1, type);
  b.emit(handler, b.target(0, type), x);
}

void emit3(Builder& b, Handler handler, Type type) {
  if (handler == nullptr)
    b.fail("type ." + std::string(type_name(type)) + " is not supported here");
  b.count(4);
  const int32_t x = b.source(1, type), y = b.source(2, type), z = b.source(3, type);
  b.emit(handler, b.target(0, type), x, y, z);
}

// Float forms share the mnemonic. True when they took it.
bool as_float(Builder& b, Arith op, Type type) {
  if (is_half(type)) build_half(b, op, type);
  else if (type == Type::kF32 || type == Type::kF64) build_float(b, op, type);
  else return false;
  return true;
}

template <class F, class FSat>
void add_sub(Builder& b, Arith op) {
  const Type type = b.type();
  if (as_float(b, op, type)) return;
  if (type == Type::kU16x2 || type == Type::kS16x2) return emit2(b, pair_handler<F>(type), type);
  if (b.has("sat"))
    return emit2(b, type == Type::kS32 ? binary<FSat, int32_t, int32_t, int32_t> : nullptr, type);
  emit2(b, binary_integer<F>(type), type);
}

Type doubled(Builder& b, Type type) {
  switch (type) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    case Type::kS32: return Type::kS64;
    default: b.fail(".wide needs a 16- or 32-bit integer type");
  }
}

void build_mul(Builder& b) {
  const Type type = b.type();
  if (as_float(b, Arith::kMul, type)) return;
  if (b.has("hi")) return emit2(b, binary_integer<MulHi>(type), type);
  if (b.has("lo")) return emit2(b, binary_integer<MulLo>(type), type);
  if (!b.has("wide")) b.fail("expected .hi, .lo or .wide");
  const Type wide = doubled(b, type);
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  const int32_t d = b.target(0, wide);
  Handler handler = binary<MulWide<int64_t>, int64_t, int32_t, int32_t>;
  if (type == Type::kU32) handler = binary<MulWide<uint64_t>, uint64_t, uint32_t, uint32_t>;
  if (type == Type::kU16) handler = binary<MulWide<uint32_t>, uint32_t, uint16_t, uint16_t>;
  if (type == Type::kS16) handler = binary<MulWide<int32_t>, int32_t, int16_t, int16_t>;
  b.emit(handler, d, x, y);
}

void build_mad(Builder& b) {
  const Type type = b.type();
  if (as_float(b, Arith::kFma, type)) return;
  if (b.has("hi")) {
    if (b.has("sat"))
      return emit3(
          b, type == Type::kS32 ? ternary<MadHiSat, int32_t, int32_t, int32_t, int32_t> : nullptr,
          type);
    return emit3(b, ternary_integer<MadHi>(type), type);
  }
  if (b.has("lo")) return emit3(b, ternary_integer<MadLo>(type), type);
  if (!b.has("wide")) b.fail("expected .hi, .lo or .wide");
  const Type wide = doubled(b, type);
  b.count(4);
  const int32_t x = b.source(1, type), y = b.source(2, type), z = b.source(3, wide);
  const int32_t d = b.target(0, wide);
  Handler handler = ternary<MadWide<int64_t>, int64_t, int32_t, int32_t, int64_t>;
  if (type == Type::kU32)
    handler = ternary<MadWide<uint64_t>, uint64_t, uint32_t, uint32_t, uint64_t>;
  if (type == Type::kU16)
    handler = ternary<MadWide<uint32_t>, uint32_t, uint16_t, uint16_t, uint32_t>;
  if (type == Type::kS16) handler = ternary<MadWide<int32_t>, int32_t, int16_t, int16_t, int32_t>;
  b.emit(handler, d, x, y, z);
}

template <template <bool> class F, bool Mad>
void build_24(Builder& b) {
  const Type type = b.type();
  const bool hi = b.has("hi");
  if (!hi && !b.has("lo")) b.fail("expected .hi or .lo");
  if (type != Type::kU32 && type != Type::kS32) b.fail("expected .u32 or .s32");
  if constexpr (Mad)
    emit3(b, hi ? ternary_integer<F<true>>(type) : ternary_integer<F<false>>(type), type);
  else emit2(b, hi ? binary_integer<F<true>>(type) : binary_integer<F<false>>(type), type);
}

template <class F, int ArithOp>
void build_simple2(Builder& b) {
  const Type type = b.type();
  if constexpr (ArithOp >= 0) {
    if (as_float(b, static_cast<Arith>(ArithOp), type)) return;
  }
  if (type == Type::kU16x2 || type == Type::kS16x2) return emit2(b, pair_handler<F>(type), type);
  emit2(b, binary_integer<F>(type), type);
}

template <class F, int ArithOp>
void build_simple1(Builder& b) {
  const Type type = b.type();
  if (as_float(b, static_cast<Arith>(ArithOp), type)) return;
  emit1(b, is_signed(type) ? unary_integer<F>(type) : nullptr, type);
}

void build_sad(Builder& b) {
  const Type type = b.type();
  emit3(b, ternary_integer<Sad>(type), type);
}

template <unsigned Parts>
void build_dot(Builder& b) {
  uint8_t mode = 0;
  if (Parts == 2 && b.has("hi")) mode |= 4;
  else if (Parts == 2 && !b.has("lo")) b.fail("expected .lo or .hi");
  const Type first = b.type();
  const Type second = b.type();
  if (type_bits(first) != 32 || type_bits(second) != 32) b.fail("expected .u32 or .s32");
  mode |= static_cast<uint8_t>((is_signed(first) ? 1 : 0) | (is_signed(second) ? 2 : 0));
  b.count(4);
  const int32_t x = b.source(1, Type::kB32), y = b.source(2, Type::kB32),
                z = b.source(3, Type::kB32);
  b.emit(dot<Parts>, b.target(0, Type::kB32), x, y, z).mode = mode;
}

void build_fma(Builder& b) {
  const Type type = b.type();
  if (!as_float(b, Arith::kFma, type)) b.fail("expected a float type");
}

}  // namespace

void register_integer(BuildTable& table) {
  table["mul"] = build_mul;
  table["mad"] = build_mad;
  table["mul24"] = build_24<Mul24, false>;
  table["mad24"] = build_24<Mad24, true>;
  table["div"] = build_simple2<Div, static_cast<int>(Arith::kDiv)>;
  table["rem"] = build_simple2<Rem, -1>;
  table["min"] = build_simple2<Min, static_cast<int>(Arith::kMin)>;
  table["max"] = build_simple2<Max, static_cast<int>(Arith::kMax)>;
  table["abs"] = build_simple1<Abs, static_cast<int>(Arith::kAbs)>;
  table["neg"] = build_simple1<Neg, static_cast<int>(Arith::kNeg)>;
  table["sad"] = build_sad;
  table["dp4a"] = build_dot<4>;
  table["dp2a"] = build_dot<2>;
  table["fma"] = build_fma;
  table["add"] = [](Builder& b) { add_sub<Add, AddSat>(b, Arith::kAdd); };
  table["sub"] = [](Builder& b) { add_sub<Sub, SubSat>(b, Arith::kSub); };
}

}  // namespace tube::sim::ptx

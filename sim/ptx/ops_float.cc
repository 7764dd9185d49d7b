// f32 and f64 arithmetic. IEEE results bit for bit as the hardware gives them: fused multiply-add,
// directed rounding, .ftz, .sat, and NaN as 0x7fffffff for f32. Division .full and .approx is
// computed exactly (the hardware may differ).
#include <cfenv>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {

RoundingScope::RoundingScope(Round round) {
  switch (round) {
    case Round::kNearest:
    case Round::kAway: std::fesetround(FE_TONEAREST); break;
    case Round::kZero: std::fesetround(FE_TOWARDZERO); break;
    case Round::kDown: std::fesetround(FE_DOWNWARD); break;
    case Round::kUp: std::fesetround(FE_UPWARD); break;
  }
}

RoundingScope::~RoundingScope() { std::fesetround(FE_TONEAREST); }

Round take_rounding(Builder& b, bool required) {
  if (b.has("rn")) return Round::kNearest;
  if (b.has("rz")) return Round::kZero;
  if (b.has("rm")) return Round::kDown;
  if (b.has("rp")) return Round::kUp;
  if (required) b.fail("expected a rounding modifier");
  return Round::kNearest;
}

namespace {

template <bool Ftz, bool Sat, class T>
inline T finish(T value) {
  if constexpr (std::is_same_v<T, float> && Ftz) value = flush(value);
  if constexpr (Sat) return saturate(value);
  return canonical(value);
}
template <bool Ftz, class T>
inline T input(T value) {
  if constexpr (std::is_same_v<T, float> && Ftz) return flush(value);
  return value;
}

template <Arith Op, class T>
inline T compute(T a, T b) {
  if constexpr (Op == Arith::kAdd) return a + b;
  if constexpr (Op == Arith::kSub) return a - b;
  if constexpr (Op == Arith::kMul) return a * b;
  if constexpr (Op == Arith::kDiv) return a / b;
}

template <Arith Op, bool Ftz, bool Sat>
struct Two {
  template <class T>
  static T op(T a, T b) {
    return finish<Ftz, Sat>(compute<Op>(input<Ftz>(a), input<Ftz>(b)));
  }
};

// Directed rounding; mode: Round, mode2 bit 0: ftz, bit 1: sat
template <Arith Op, class T>
void directed(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<T>(w, in.d);
  const auto *a = words<T>(w, in.a), *b = words<T>(w, in.b);
  const auto* c = in.c == kNoSlot ? nullptr : words<T>(w, in.c);
  const bool ftz = (in.mode2 & 1) != 0, sat = (in.mode2 & 2) != 0;
  const RoundingScope scope(static_cast<Round>(in.mode));
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    T x = from_word<T>(a[i]), y = from_word<T>(b[i]), z = c != nullptr ? from_word<T>(c[i]) : T{0};
    if (ftz) {
      x = input<true>(x);
      y = input<true>(y);
      z = input<true>(z);
    }
    volatile T vx = x, vy = y, result;
    if constexpr (Op == Arith::kFma) result = std::fma(static_cast<T>(vx), static_cast<T>(vy), z);
    else result = compute<Op>(static_cast<T>(vx), static_cast<T>(vy));
    T out = result;
    if (ftz) out = input<true>(out);
    d[i] = to_word<T>(sat ? saturate(out) : canonical(out));
  }
}

// Fused multiply-add: with the CPU's instruction where it has one, else through the library; same
// results either way.
#define TUBE_FMA_BODY(FMA)                                                           \
  auto* const d = words<T>(w, in.d);                                                 \
  const auto *a = words<T>(w, in.a), *b = words<T>(w, in.b), *c = words<T>(w, in.c); \
  for (unsigned i = 0; i < kLanes; ++i) {                                            \
    if (mask != UINT32_MAX && (mask >> i & 1) == 0) continue;                        \
    const T x = input<Ftz>(from_word<T>(a[i])), y = input<Ftz>(from_word<T>(b[i]));  \
    const T z = input<Ftz>(from_word<T>(c[i]));                                      \
    d[i] = to_word<T>(finish<Ftz, Sat>(FMA));                                        \
  }

template <class T, bool Ftz, bool Sat>
void fma_library(Warp& w, const Inst& in, uint32_t mask) {
  TUBE_FMA_BODY(std::fma(x, y, z))
}

#if defined(__x86_64__)
template <class T, bool Ftz, bool Sat>
__attribute__((target("avx2,fma"))) void fma_instruction(Warp& w, const Inst& in, uint32_t mask) {
  if constexpr (sizeof(T) == 4) {
    TUBE_FMA_BODY(__builtin_fmaf(x, y, z))
  } else {
    TUBE_FMA_BODY(__builtin_fma(x, y, z))
  }
}
#endif
#undef TUBE_FMA_BODY

template <class T, bool Ftz, bool Sat>
Handler fma_handler() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
    return fma_instruction<T, Ftz, Sat>;
#endif
  return fma_library<T, Ftz, Sat>;
}

template <class F, class T>
Handler two() {
  return binary<F, T, T, T>;
}

template <Arith Op>
Handler pick(Type type, bool ftz, bool sat) {
  if (type == Type::kF64) return two<Two<Op, false, false>, double>();
  if (ftz) return sat ? two<Two<Op, true, true>, float>() : two<Two<Op, true, false>, float>();
  return sat ? two<Two<Op, false, true>, float>() : two<Two<Op, false, false>, float>();
}

template <bool Ftz, bool PropagateNan, bool Xorsign, bool Greater>
struct MinMax {
  template <class T>
  static T op(T a, T b) {
    a = input<Ftz>(a);
    b = input<Ftz>(b);
    const bool sign = std::signbit(a) != std::signbit(b);
    if (Xorsign) {
      a = std::fabs(a);
      b = std::fabs(b);
    }
    if (PropagateNan && (a != a || b != b)) return canonical(a != a ? a : b);
    const T out = Greater ? float_max(a, b) : float_min(a, b);
    return Xorsign ? std::copysign(out, sign ? T{-1} : T{1}) : out;
  }
};

template <bool Greater>
Handler min_max(Type type, bool ftz, bool nan, bool xorsign) {
  if (type == Type::kF64) return two<MinMax<false, false, false, Greater>, double>();
  if (xorsign) {
    if (nan)
      return ftz ? two<MinMax<true, true, true, Greater>, float>()
                 : two<MinMax<false, true, true, Greater>, float>();
    return ftz ? two<MinMax<true, false, true, Greater>, float>()
               : two<MinMax<false, false, true, Greater>, float>();
  }
  if (nan)
    return ftz ? two<MinMax<true, true, false, Greater>, float>()
               : two<MinMax<false, true, false, Greater>, float>();
  return ftz ? two<MinMax<true, false, false, Greater>, float>()
             : two<MinMax<false, false, false, Greater>, float>();
}

template <bool Ftz>
struct Abs {
  template <class T>
  static T op(T a) {
    return std::fabs(input<Ftz>(a));
  }
};
template <bool Ftz>
struct Neg {
  template <class T>
  static T op(T a) {
    return -input<Ftz>(a);
  }
};

void build_min_max(Builder& b, bool greater, Type type) {
  const bool ftz = b.has("ftz"), nan = b.has("NaN"), xorsign = b.has("xorsign");
  if (xorsign && !b.has("abs")) b.fail("expected .xorsign.abs");
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  b.emit(greater ? min_max<true>(type, ftz, nan, xorsign) : min_max<false>(type, ftz, nan, xorsign),
         b.target(0, type), x, y);
}

void build_sign(Builder& b, bool negate, Type type) {
  const bool ftz = b.has("ftz");
  b.count(2);
  const int32_t x = b.source(1, type);
  Handler handler = negate ? unary<Neg<false>, double, double> : unary<Abs<false>, double, double>;
  if (type == Type::kF32) {
    if (negate) handler = ftz ? unary<Neg<true>, float, float> : unary<Neg<false>, float, float>;
    else handler = ftz ? unary<Abs<true>, float, float> : unary<Abs<false>, float, float>;
  }
  b.emit(handler, b.target(0, type), x);
}

void build_fma(Builder& b, Type type, Round round, bool ftz, bool sat) {
  b.count(4);
  const int32_t x = b.source(1, type), y = b.source(2, type), z = b.source(3, type);
  const int32_t d = b.target(0, type);
  Handler handler = fma_handler<double, false, false>();
  if (type == Type::kF32) {
    if (ftz) handler = sat ? fma_handler<float, true, true>() : fma_handler<float, true, false>();
    else handler = sat ? fma_handler<float, false, true>() : fma_handler<float, false, false>();
  }
  if (round != Round::kNearest)
    handler = type == Type::kF64 ? directed<Arith::kFma, double> : directed<Arith::kFma, float>;
  Inst& in = b.emit(handler, d, x, y, z);
  in.mode = static_cast<uint8_t>(round);
  in.mode2 = static_cast<uint8_t>((ftz ? 1 : 0) | (sat ? 2 : 0));
}

template <Arith Op>
void build_two(Builder& b, Type type, Round round, bool ftz, bool sat) {
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  Handler handler = pick<Op>(type, ftz, sat);
  if (round != Round::kNearest)
    handler = type == Type::kF64 ? directed<Op, double> : directed<Op, float>;
  Inst& in = b.emit(handler, b.target(0, type), x, y);
  in.mode = static_cast<uint8_t>(round);
  in.mode2 = static_cast<uint8_t>((ftz ? 1 : 0) | (sat ? 2 : 0));
}

}  // namespace

void build_float(Builder& b, Arith op, Type type) {
  switch (op) {
    case Arith::kMin: return build_min_max(b, false, type);
    case Arith::kMax: return build_min_max(b, true, type);
    case Arith::kAbs: return build_sign(b, false, type);
    case Arith::kNeg: return build_sign(b, true, type);
    case Arith::kAdd:
    case Arith::kSub:
    case Arith::kMul:
    case Arith::kFma:
    case Arith::kDiv: break;
  }
  const bool inexact = op == Arith::kDiv && type == Type::kF32 && b.any("approx", "full");
  const Round round = inexact ? Round::kNearest : take_rounding(b, op == Arith::kDiv);
  const bool ftz = type == Type::kF32 && b.has("ftz");
  const bool sat = type == Type::kF32 && op != Arith::kDiv && b.has("sat");
  switch (op) {
    case Arith::kAdd: return build_two<Arith::kAdd>(b, type, round, ftz, sat);
    case Arith::kSub: return build_two<Arith::kSub>(b, type, round, ftz, sat);
    case Arith::kMul: return build_two<Arith::kMul>(b, type, round, ftz, sat);
    case Arith::kDiv: return build_two<Arith::kDiv>(b, type, round, ftz, sat);
    case Arith::kFma: return build_fma(b, type, round, ftz, sat);
    case Arith::kMin:
    case Arith::kMax:
    case Arith::kAbs:
    case Arith::kNeg: return;
  }
}

void register_float(BuildTable&) {}  // all mnemonics are shared with integers: ops_integer.cc

}  // namespace tube::sim::ptx

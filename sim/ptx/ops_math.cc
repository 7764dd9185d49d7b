// rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, testp, copysign. The .approx forms are computed in
// double and rounded once, which is closer than the hardware; .rn and the directed forms are exact.
#include <cfenv>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

enum class Math : uint8_t { kRcp, kSqrt, kRsqrt, kSin, kCos, kLg2, kEx2, kTanh };

double evaluate(Math op, double x) {
  switch (op) {
    case Math::kRcp: return 1.0 / x;
    case Math::kSqrt: return std::sqrt(x);
    case Math::kRsqrt: return 1.0 / std::sqrt(x);
    case Math::kSin: return std::sin(x);
    case Math::kCos: return std::cos(x);
    case Math::kLg2: return std::log2(x);
    case Math::kEx2: return std::exp2(x);
    case Math::kTanh: return std::tanh(x);
  }
  return 0.0;
}

template <Math Op>
void approx32(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<float>(w, in.d);
  const auto* const a = words<float>(w, in.a);
  const bool ftz = in.mode2 != 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    float x = from_word<float>(a[i]);
    if (ftz) x = flush(x);
    float y = static_cast<float>(evaluate(Op, x));
    if (ftz) y = flush(y);
    d[i] = to_word<float>(canonical(y));
  }
}

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 work on the upper 32 bits; the lower ones are zero.
template <Math Op>
void approx64(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<double>(w, in.d);
  const auto* const a = words<double>(w, in.a);
  for_lanes(mask, [&](unsigned i) {
    uint64_t bits = a[i] & ~uint64_t{UINT32_MAX};
    const auto flushed = [](uint64_t v) {
      return (v >> 52 & 0x7ff) == 0 ? v & uint64_t{1} << 63 : v;
    };
    if (in.mode2 != 0) bits = flushed(bits);
    const double y = evaluate(Op, std::bit_cast<double>(bits));
    uint64_t out = std::bit_cast<uint64_t>(y);
    if (y == y) out &= ~uint64_t{UINT32_MAX};
    d[i] = in.mode2 != 0 ? flushed(out) : out;
  });
}

// mode: Round, mode2: ftz
template <Math Op, class T>
void exact(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<T>(w, in.d);
  const auto* const a = words<T>(w, in.a);
  const RoundingScope scope(static_cast<Round>(in.mode));
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    T x = from_word<T>(a[i]);
    if constexpr (sizeof(T) == 4)
      if (in.mode2 != 0) x = flush(x);
    volatile T v = x, result;
    if constexpr (Op == Math::kRcp) result = T{1} / v;
    else result = std::sqrt(static_cast<T>(v));
    T out = result;
    if constexpr (sizeof(T) == 4)
      if (in.mode2 != 0) out = flush(out);
    d[i] = to_word<T>(canonical(out));
  }
}

// tanh, ex2 of f16, bf16 and pairs. mode: Math, mode2: bit 0 bfloat, bit 1 pair
void approx_half(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const uint32_t* const a = slot32(w, in.a);
  const bool bf = (in.mode2 & 1) != 0;
  const auto one = [&](uint32_t bits) -> uint32_t {
    const auto half = static_cast<uint16_t>(bits);
    return narrow(
        evaluate(static_cast<Math>(in.mode), bf ? bfloat_to_float(half) : half_to_float(half)),
        bf ? kBfloatFormat : kHalfFormat, Round::kNearest);
  };
  for_lanes(mask, [&](unsigned i) {
    d[i] = (in.mode2 & 2) != 0 ? one(a[i]) | one(a[i] >> 16) << 16 : one(a[i]);
  });
}

template <Math Op>
void build_approx(Builder& b) {
  const Type type = b.type();
  const bool approx = b.has("approx");
  const bool ftz = b.has("ftz");
  b.count(2);
  const int32_t x = b.source(1, type);
  const int32_t d = b.target(0, type);
  if (is_half(type)) {
    if (Op != Math::kTanh && Op != Math::kEx2) b.fail("type not supported here");
    Inst& in = b.emit(approx_half, d, x);
    in.mode = static_cast<uint8_t>(Op);
    in.mode2 = static_cast<uint8_t>((type == Type::kBf16 || type == Type::kBf16x2 ? 1 : 0) |
                                    (type == Type::kF16x2 || type == Type::kBf16x2 ? 2 : 0));
    return;
  }
  if (!approx) b.fail("expected .approx");
  if (type == Type::kF64 && Op != Math::kRsqrt) b.fail("expected .f32");
  if (type != Type::kF32 && type != Type::kF64) b.fail("expected a float type");
  b.emit(type == Type::kF64 ? approx64<Op> : approx32<Op>, d, x).mode2 = ftz;
}

template <Math Op>
void build_exact(Builder& b) {
  const Type type = b.type();
  if (type != Type::kF32 && type != Type::kF64) b.fail("expected .f32 or .f64");
  const bool approx = b.has("approx");
  const bool ftz = b.has("ftz");
  const Round round = approx ? Round::kNearest : take_rounding(b, true);
  b.count(2);
  const int32_t x = b.source(1, type);
  const int32_t d = b.target(0, type);
  Handler handler = type == Type::kF64 ? exact<Op, double> : exact<Op, float>;
  if (approx && type == Type::kF64) handler = approx64<Op>;
  Inst& in = b.emit(handler, d, x);
  in.mode = static_cast<uint8_t>(round);
  in.mode2 = ftz;
}

enum class Test : uint8_t { kFinite, kInfinite, kNumber, kNan, kNormal, kSubnormal };

template <class T>
void test_property(Warp& w, const Inst& in, uint32_t mask) {
  const auto* const a = words<T>(w, in.a);
  uint32_t out = 0;
  for_lanes(mask, [&](unsigned i) {
    const T x = from_word<T>(a[i]);
    bool yes = false;
    switch (static_cast<Test>(in.mode)) {
      case Test::kFinite: yes = std::isfinite(x); break;
      case Test::kInfinite: yes = std::isinf(x); break;
      case Test::kNumber: yes = !std::isnan(x); break;
      case Test::kNan: yes = std::isnan(x); break;
      case Test::kNormal: yes = std::isnormal(x) || x == 0; break;
      case Test::kSubnormal: yes = std::fpclassify(x) == FP_SUBNORMAL; break;
    }
    out |= static_cast<uint32_t>(yes) << i;
  });
  set_predicate(w, in.d, mask, out);
}

void build_testp(Builder& b) {
  static constexpr std::string_view kNames[] = {"finite",     "infinite", "number",
                                                "notanumber", "normal",   "subnormal"};
  const Type type = b.type();
  if (type != Type::kF32 && type != Type::kF64) b.fail("expected .f32 or .f64");
  b.count(2);
  const int32_t x = b.source(1, type);
  const int32_t d = b.target(0, Type::kPred);
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (!b.has(kNames[i])) continue;
    b.emit(type == Type::kF64 ? test_property<double> : test_property<float>, d, x).mode =
        static_cast<uint8_t>(i);
    return;
  }
  b.fail("expected a property");
}

struct CopySign {
  template <class T>
  static T op(T a, T b) {
    return std::copysign(b, a);
  }
};

void build_copysign(Builder& b) {
  const Type type = b.type();
  if (type != Type::kF32 && type != Type::kF64) b.fail("expected .f32 or .f64");
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  b.emit(type == Type::kF64 ? binary<CopySign, double, double, double>
                            : binary<CopySign, float, float, float>,
         b.target(0, type), x, y);
}

}  // namespace

void register_math(BuildTable& table) {
  table["rcp"] = build_exact<Math::kRcp>;
  table["sqrt"] = build_exact<Math::kSqrt>;
  table["rsqrt"] = build_approx<Math::kRsqrt>;
  table["sin"] = build_approx<Math::kSin>;
  table["cos"] = build_approx<Math::kCos>;
  table["lg2"] = build_approx<Math::kLg2>;
  table["ex2"] = build_approx<Math::kEx2>;
  table["tanh"] = build_approx<Math::kTanh>;
  table["testp"] = build_testp;
  table["copysign"] = build_copysign;
}

}  // namespace tube::sim::ptx

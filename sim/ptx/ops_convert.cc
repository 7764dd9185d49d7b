// cvt between all types. Integer to integer, and the float conversions compilers emit most, have
// their own handlers; the rest goes through one general routine: read exactly, round once, clamp.
#include <algorithm>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

// Flags in Inst::mode2
constexpr uint8_t kSat = 1, kFtz = 2, kRelu = 4, kIntegral = 8;

template <class D>
struct To {
  template <class S>
  static D op(S a) {
    return static_cast<D>(a);
  }
};

template <class D>
Handler from_integer(Type from) {
  switch (from) {
    case Type::kB8:
    case Type::kU8: return unary<To<D>, D, uint8_t>;
    case Type::kS8: return unary<To<D>, D, int8_t>;
    case Type::kB16:
    case Type::kU16: return unary<To<D>, D, uint16_t>;
    case Type::kS16: return unary<To<D>, D, int16_t>;
    case Type::kB32:
    case Type::kU32: return unary<To<D>, D, uint32_t>;
    case Type::kS32: return unary<To<D>, D, int32_t>;
    case Type::kB64:
    case Type::kU64: return unary<To<D>, D, uint64_t>;
    case Type::kS64: return unary<To<D>, D, int64_t>;
    default: return nullptr;
  }
}

Handler integer_to_integer(Type to, Type from) {
  switch (to) {
    case Type::kB8:
    case Type::kU8: return from_integer<uint8_t>(from);
    case Type::kS8: return from_integer<int8_t>(from);
    case Type::kB16:
    case Type::kU16: return from_integer<uint16_t>(from);
    case Type::kS16: return from_integer<int16_t>(from);
    case Type::kB32:
    case Type::kU32: return from_integer<uint32_t>(from);
    case Type::kS32: return from_integer<int32_t>(from);
    case Type::kB64:
    case Type::kU64: return from_integer<uint64_t>(from);
    case Type::kS64: return from_integer<int64_t>(from);
    default: return nullptr;
  }
}

// ---- the general routine

// An integer as sign and magnitude, or a float as double (all our float types fit exactly).
struct Value {
  bool is_float = false;
  bool negative = false;
  uint64_t magnitude = 0;
  double number = 0;
};

Value read(const Warp& w, int32_t slot, Type type, unsigned lane) {
  Value out;
  const uint64_t raw =
      type_class(type) == Class::k64 ? slot64(w, slot)[lane] : slot32(w, slot)[lane];
  out.is_float = true;
  switch (type) {
    case Type::kF64: out.number = std::bit_cast<double>(raw); return out;
    case Type::kF32: out.number = std::bit_cast<float>(static_cast<uint32_t>(raw)); return out;
    case Type::kF16: out.number = half_to_float(static_cast<uint16_t>(raw)); return out;
    case Type::kBf16: out.number = bfloat_to_float(static_cast<uint16_t>(raw)); return out;
    default: break;
  }
  out.is_float = false;
  const unsigned shift = 64 - type_bits(type);
  if (is_signed(type)) {
    const int64_t value = static_cast<int64_t>(raw << shift) >> shift;
    out.negative = value < 0;
    out.magnitude = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  } else {
    out.magnitude = raw << shift >> shift;
  }
  return out;
}

double to_integral(double value, Round round) {
  switch (round) {
    case Round::kNearest: return std::nearbyint(value);
    case Round::kAway: return std::round(value);
    case Round::kZero: return std::trunc(value);
    case Round::kDown: return std::floor(value);
    case Round::kUp: return std::ceil(value);
  }
  return value;
}

// f32 from a double, rounded once. narrow() answers 16 bits, so f32 uses the host's conversion.
float to_float32(double value, Round round) {
  if (round == Round::kNearest) return static_cast<float>(value);
  const RoundingScope scope(round);
  volatile double v = value;
  volatile float out = static_cast<float>(v);
  return out;
}

uint64_t pack_float(double value, Type to, Round round, uint8_t flags) {
  if ((flags & kSat) != 0) value = saturate(value);
  if ((flags & kRelu) != 0 && !(value > 0)) value = std::isnan(value) ? value : 0;
  switch (to) {
    case Type::kF64: return std::bit_cast<uint64_t>(value);
    case Type::kF32: {
      float out = to_float32(value, round);
      if ((flags & kFtz) != 0) out = flush(out);
      return std::bit_cast<uint32_t>(canonical(out));
    }
    case Type::kTf32: {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
      if (std::isnan(value)) return 0x7fffffff;
      if (std::isinf(value)) return bits;
      const uint32_t rest = bits & 0x1fff;
      const bool up = round_up(round, bits >> 31 != 0, (bits >> 13 & 1) != 0, rest, 0x1000);
      return (bits & ~0x1fffu) + (up ? 0x2000 : 0);
    }
    case Type::kBf16: return narrow(value, kBfloatFormat, round);
    default: return narrow(value, kHalfFormat, round);
  }
}

// 64-bit integers above 2^53 reach the small formats through a double whose last bit remembers what
// was cut.
double magnitude_as_double(uint64_t magnitude) {
  if (magnitude >> 53 == 0) return static_cast<double>(magnitude);
  const unsigned cut = 64 - static_cast<unsigned>(std::countl_zero(magnitude)) - 53;
  const uint64_t kept = magnitude >> cut | ((magnitude & ((uint64_t{1} << cut) - 1)) != 0 ? 1 : 0);
  return std::ldexp(static_cast<double>(kept), static_cast<int>(cut));
}

uint64_t integer_to_float(const Value& value, Type to, Round round, uint8_t flags) {
  if (to == Type::kF64 || to == Type::kF32) {
    // Rounding of the signed value: towards an infinity flips with the sign.
    Round magnitude_round = round;
    if (value.negative && round == Round::kDown) magnitude_round = Round::kUp;
    else if (value.negative && round == Round::kUp) magnitude_round = Round::kDown;
    const RoundingScope scope(magnitude_round);
    volatile uint64_t v = value.magnitude;
    if (to == Type::kF64) {
      volatile double out = static_cast<double>(v);
      return std::bit_cast<uint64_t>(value.negative ? -out : static_cast<double>(out));
    }
    volatile float out = static_cast<float>(v);
    float result = value.negative ? -out : static_cast<float>(out);
    if ((flags & kSat) != 0) result = saturate(result);
    return std::bit_cast<uint32_t>(result);
  }
  const double number = magnitude_as_double(value.magnitude);
  return pack_float(value.negative ? -number : number, to, round, flags);
}

// A float clamps to the integer's range; NaN becomes 0, or 1 << (bits - 1) when either side has 64
// bits.
uint64_t float_to_integer(double value, Type from, Type to, Round round) {
  const unsigned bits = type_bits(to);
  if (std::isnan(value)) return from != Type::kF64 && bits != 64 ? 0 : uint64_t{1} << (bits - 1);
  value = to_integral(value, round);
  if (is_signed(to)) {
    const double top = std::ldexp(1.0, static_cast<int>(bits) - 1);
    if (value >= top) return (uint64_t{1} << (bits - 1)) - 1;
    if (value < -top) return ~((uint64_t{1} << (bits - 1)) - 1);
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  if (value >= std::ldexp(1.0, static_cast<int>(bits)))
    return bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  return value <= 0 ? 0 : static_cast<uint64_t>(value);
}

uint64_t clamp_integer(const Value& value, Type to) {
  const unsigned bits = type_bits(to);
  if (is_signed(to)) {
    const uint64_t top = (uint64_t{1} << (bits - 1)) - 1;
    if (value.negative) return value.magnitude > top ? ~top : ~value.magnitude + 1;
    return value.magnitude > top ? top : value.magnitude;
  }
  if (value.negative) return 0;
  const uint64_t top = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  return value.magnitude > top ? top : value.magnitude;
}

// mode: Round; mode2: flags; imm: from | to << 8
void general(Warp& w, const Inst& in, uint32_t mask) {
  const auto from = static_cast<Type>(in.imm & 0xff), to = static_cast<Type>(in.imm >> 8 & 0xff);
  const auto round = static_cast<Round>(in.mode);
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    Value value = read(w, in.a, from, i);
    uint64_t out = 0;
    if (value.is_float) {
      if ((in.mode2 & kFtz) != 0 && from == Type::kF32 && std::fabs(value.number) < 0x1p-126)
        value.number = std::copysign(0.0, value.number);
      if (is_integer(to)) {
        out = float_to_integer(value.number, from, to, round);
      } else {
        if ((in.mode2 & kIntegral) != 0) value.number = to_integral(value.number, round);
        out = pack_float(value.number, to, (in.mode2 & kIntegral) != 0 ? Round::kNearest : round,
                         in.mode2);
      }
    } else if (is_integer(to)) {
      out = clamp_integer(value, to);
    } else {
      out = integer_to_float(value, to, round, in.mode2);
    }
    if (type_class(to) == Class::k64) slot64(w, in.d)[i] = out;
    else slot32(w, in.d)[i] = static_cast<uint32_t>(out);
  }
}

// Pairs: d = {b low, a high}. imm: from | to << 8, to being the element type
void pack_pair(Warp& w, const Inst& in, uint32_t mask) {
  const auto to = static_cast<Type>(in.imm >> 8 & 0xff);
  uint32_t* const d = slot32(w, in.d);
  const uint32_t *a = slot32(w, in.a), *b = slot32(w, in.b);
  for_lanes(mask, [&](unsigned i) {
    const auto one = [&](uint32_t bits) {
      float value = std::bit_cast<float>(bits);
      if ((in.mode2 & kFtz) != 0) value = flush(value);
      return static_cast<uint32_t>(pack_float(value, to, static_cast<Round>(in.mode), in.mode2));
    };
    d[i] = one(b[i]) | one(a[i]) << 16;
  });
}

// ---- fp8 pairs (sm_89): always satfinite

uint8_t narrow8(double value, bool e5m2, bool relu) {
  if (relu && value < 0) value = 0;
  if (std::isnan(value)) return 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double most = e5m2 ? 57344.0 : 448.0;
  if (std::fabs(value) > most) return static_cast<uint8_t>(sign | (e5m2 ? 0x7b : 0x7e));
  const int mantissa_bits = e5m2 ? 2 : 3, lowest = e5m2 ? -14 : -6;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = std::max(std::ilogb(magnitude), lowest);
  double scaled = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  auto field = static_cast<int>(scaled) + ((exponent - lowest) << mantissa_bits);
  return static_cast<uint8_t>(sign | field);
}

double widen8(uint8_t bits, bool e5m2) {
  const int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  double out = 0;
  if (e5m2 && exponent == 31) out = mantissa != 0 ? std::nan("") : INFINITY;
  else if (!e5m2 && (bits & 0x7f) == 0x7f) out = std::nan("");
  else if (exponent == 0) out = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  else out = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return (bits & 0x80) != 0 ? -out : out;
}

// imm: from | to << 8; one side is e4m3x2 or e5m2x2
void convert8(Warp& w, const Inst& in, uint32_t mask) {
  const auto from = static_cast<Type>(in.imm & 0xff), to = static_cast<Type>(in.imm >> 8 & 0xff);
  uint32_t* const d = slot32(w, in.d);
  const uint32_t *a = slot32(w, in.a), *b = in.b == kNoSlot ? a : slot32(w, in.b);
  const bool relu = (in.mode2 & kRelu) != 0;
  for_lanes(mask, [&](unsigned i) {
    double low = 0, high = 0;
    const bool e5m2 = from == Type::kE5m2x2 || to == Type::kE5m2x2;
    if (from == Type::kF32) {
      low = std::bit_cast<float>(b[i]);
      high = std::bit_cast<float>(a[i]);
    } else if (from == Type::kF16x2) {
      low = half_to_float(static_cast<uint16_t>(a[i]));
      high = half_to_float(static_cast<uint16_t>(a[i] >> 16));
    } else {
      low = widen8(static_cast<uint8_t>(a[i]), e5m2);
      high = widen8(static_cast<uint8_t>(a[i] >> 8), e5m2);
      const auto half = [&](double v) -> uint32_t {
        return narrow(relu && v < 0 ? 0 : v, kHalfFormat, Round::kNearest);
      };
      d[i] = half(low) | half(high) << 16;
      return;
    }
    d[i] = static_cast<uint32_t>(narrow8(low, e5m2, relu)) |
           static_cast<uint32_t>(narrow8(high, e5m2, relu)) << 8;
  });
}

// ---- fast paths

// An operation a line.
// clang-format off
struct FloatToHalf { static uint16_t op(float a) { return float_to_half(a); } };
struct HalfToFloat { static float op(uint16_t a) { return canonical(half_to_float(a)); } };
struct BfloatToFloat { static float op(uint16_t a) { return canonical(bfloat_to_float(a)); } };
struct FloatToDouble { static double op(float a) { return a; } };
struct DoubleToFloat { static float op(double a) { return canonical(static_cast<float>(a)); } };
template <class T> struct ToFloat { static float op(T a) { return static_cast<float>(a); } };
template <class T> struct ToDouble { static double op(T a) { return static_cast<double>(a); } };
struct FloatToInt {
  static int32_t op(float a) {
    if (a != a) return 0;
    if (a >= 0x1p31f) return INT32_MAX;
    return a < -0x1p31f ? INT32_MIN : static_cast<int32_t>(a);
  }
};

Handler fast(Type to, Type from, Round round, uint8_t flags) {
  if (flags != 0) return nullptr;
  if (from == Type::kF32 && to == Type::kS32 && round == Round::kZero) return unary<FloatToInt, int32_t, float>;
  if (round != Round::kNearest) return nullptr;
  if (from == Type::kF32 && to == Type::kF16) return unary<FloatToHalf, uint16_t, float>;
  if (from == Type::kF16 && to == Type::kF32) return unary<HalfToFloat, float, uint16_t>;
  if (from == Type::kBf16 && to == Type::kF32) return unary<BfloatToFloat, float, uint16_t>;
  if (from == Type::kF32 && to == Type::kF64) return unary<FloatToDouble, double, float>;
  if (from == Type::kF64 && to == Type::kF32) return unary<DoubleToFloat, float, double>;
  if (to == Type::kF32) {
    if (from == Type::kU32) return unary<ToFloat<uint32_t>, float, uint32_t>;
    if (from == Type::kS32) return unary<ToFloat<int32_t>, float, int32_t>;
    if (from == Type::kU16) return unary<ToFloat<uint16_t>, float, uint16_t>;
    if (from == Type::kS16) return unary<ToFloat<int16_t>, float, int16_t>;
    if (from == Type::kU8) return unary<ToFloat<uint8_t>, float, uint8_t>;
  }
  if (to == Type::kF64) {
    if (from == Type::kU32) return unary<ToDouble<uint32_t>, double, uint32_t>;
    if (from == Type::kS32) return unary<ToDouble<int32_t>, double, int32_t>;
  }
  return nullptr;
}

Round take_any_rounding(Builder& b, bool* integral) {
  static constexpr std::pair<std::string_view, Round> kIntegral_[] = {
      {"rni", Round::kNearest}, {"rzi", Round::kZero}, {"rmi", Round::kDown}, {"rpi", Round::kUp}};
  for (const auto& [name, round] : kIntegral_) {
    if (!b.has(name)) continue;
    *integral = true;
    return round;
  }
  if (b.has("rna")) return Round::kAway;
  return take_rounding(b, false);
}

Type element(Type type) {
  if (type == Type::kF16x2) return Type::kF16;
  if (type == Type::kBf16x2) return Type::kBf16;
  return type;
}

void build_cvt(Builder& b) {
  if (b.has("pack")) b.fail("cvt.pack is not supported");
  bool integral = false;
  const Round round = take_any_rounding(b, &integral);
  uint8_t flags = 0;
  if (b.has("ftz")) flags |= kFtz;
  if (b.has("relu")) flags |= kRelu;
  const bool satfinite = b.has("satfinite");
  if (b.has("sat")) flags |= kSat;
  const Type to = b.type();
  const Type from = b.type();
  const bool small = to == Type::kE4m3x2 || to == Type::kE5m2x2 || from == Type::kE4m3x2 || from == Type::kE5m2x2;
  const bool pair = to == Type::kF16x2 || to == Type::kBf16x2;
  const uint64_t types = static_cast<uint64_t>(from) | static_cast<uint64_t>(small ? to : element(to)) << 8;
  if (satfinite && !small) b.fail("unknown modifier '.satfinite'");
  if (small || pair) {
    const bool two = from == Type::kF32;
    if (pair && !small && !two) b.fail("unsupported conversion");
    b.count(two ? 3 : 2);
    const int32_t x = b.source(1, from), y = two ? b.source(2, from) : kNoSlot;
    Inst& in = b.emit(small ? convert8 : pack_pair, b.target(0, to), x, y);
    in.mode = static_cast<uint8_t>(round);
    in.mode2 = flags;
    in.imm = types;
    return;
  }
  const bool to_float = is_float(to) || to == Type::kTf32;
  if (!(is_integer(to) || to_float) || !(is_integer(from) || is_float(from)) || type_bits(to) > 64 || type_bits(from) > 64)
    b.fail("unsupported conversion");
  if (is_float(from) && is_integer(to) && !integral) b.fail("expected an integer rounding modifier");
  if (integral && to_float) flags |= kIntegral;
  b.count(2);
  Handler handler = fast(to, from, round, flags);
  if (handler == nullptr && is_integer(to) && is_integer(from) && (flags & kSat) == 0)
    handler = integer_to_integer(to, from);
  if (handler == nullptr) handler = general;
  const int32_t x = b.source(1, from);
  Inst& in = b.emit(handler, b.target(0, to), x);
  in.mode = static_cast<uint8_t>(round);
  in.mode2 = flags;
  in.imm = types;
}

struct Cvta { static uint64_t op(uint64_t a, uint64_t window) { return a + window; } };
struct CvtaTo { static uint64_t op(uint64_t a, uint64_t window) { return a - window; } };
// clang-format on

uint64_t window_of(Builder& b) {
  if (b.any("global", "const")) return 0;
  if (b.any("shared", "shared::cta", "shared::cluster")) return kSharedWindow;
  if (b.has("local")) return kLocalWindow;
  // In a function, parameters live in local memory.
  if (b.any("param", "param::entry")) return b.decl().entry ? kParamWindow : kLocalWindow;
  b.has("param::func");
  return kLocalWindow;
}

void build_cvta(Builder& b) {
  const bool to = b.has("to");
  const uint64_t window = window_of(b);
  const Type type = b.type();
  if (type != Type::kU64) b.fail("expected .u64");
  b.count(2);
  const int32_t x = b.source(1, type);
  const int32_t d = b.target(0, type);
  b.emit(to ? binary<CvtaTo, uint64_t, uint64_t, uint64_t>
            : binary<Cvta, uint64_t, uint64_t, uint64_t>,
         d, x, b.constant(window, Class::k64));
}

void isspacep(Warp& w, const Inst& in, uint32_t mask) {
  const uint64_t* const a = slot64(w, in.a);
  uint32_t out = 0;
  for_lanes(mask, [&](unsigned i) {
    const uint64_t window = a[i] & kWindowMask;
    bool yes = window == in.imm;
    if (in.mode == 1) yes &= (a[i] & ~kWindowMask) >> kClusterShift == 0;
    if (in.mode == 2) yes |= window == kWorkspaceWindow;
    out |= static_cast<uint32_t>(yes) << i;
  });
  set_predicate(w, in.d, mask, out);
}

void build_isspacep(Builder& b) {
  uint8_t mode = 0;
  uint64_t window = 0;
  if (b.has("global")) mode = 2;
  else if (b.any("shared", "shared::cta")) {
    mode = 1;
    window = kSharedWindow;
  } else if (b.has("shared::cluster")) window = kSharedWindow;
  else if (b.has("local")) window = kLocalWindow;
  else if (b.any("param", "param::entry")) window = kParamWindow;
  else if (b.has("const"))
    window = UINT64_MAX;  // constants share the global range: never answered as const
  else b.fail("expected a state space");
  b.count(2);
  const int32_t x = b.source(1, Type::kU64);
  Inst& in = b.emit(isspacep, b.target(0, Type::kPred), x);
  in.imm = window;
  in.mode = mode;
}

}  // namespace

void register_convert(BuildTable& table) {
  table["cvt"] = build_cvt;
  table["cvta"] = build_cvta;
  table["isspacep"] = build_isspacep;
}

}  // namespace tube::sim::ptx

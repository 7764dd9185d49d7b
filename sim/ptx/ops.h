// Typed access to register slots for the instruction families, and what the families offer each
// other.
#pragma once

#include <cmath>
#include <type_traits>

#include "sim/ptx/builder.h"
#include "sim/ptx/exec.h"
#include "sim/ptx/half.h"

namespace tube::sim::ptx {

template <class T>
using WordOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline WordOf<T>* words(const Warp& warp, int32_t slot) {
  return reinterpret_cast<WordOf<T>*>(slot32(warp, slot));
}

template <class T>
inline T from_word(WordOf<T> word) {
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<T>(word);
  else return static_cast<T>(word);
}

template <class T>
inline WordOf<T> to_word(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<WordOf<T>>(value);
  else if constexpr (std::is_same_v<T, bool>) return value;
  else return static_cast<std::make_unsigned_t<T>>(value);
}

// F::op(a...) for each lane; F is stateless.
template <class F, class D, class A>
void unary(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<D>(w, in.d);
  const auto* const a = words<A>(w, in.a);
  for_lanes(mask, [=](unsigned i) { d[i] = to_word<D>(F::op(from_word<A>(a[i]))); });
}

template <class F, class D, class A, class B>
void binary(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<D>(w, in.d);
  const auto* const a = words<A>(w, in.a);
  const auto* const b = words<B>(w, in.b);
  for_lanes(mask,
            [=](unsigned i) { d[i] = to_word<D>(F::op(from_word<A>(a[i]), from_word<B>(b[i]))); });
}

template <class F, class D, class A, class B, class C>
void ternary(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<D>(w, in.d);
  const auto* const a = words<A>(w, in.a);
  const auto* const b = words<B>(w, in.b);
  const auto* const c = words<C>(w, in.c);
  for_lanes(mask, [=](unsigned i) {
    d[i] = to_word<D>(F::op(from_word<A>(a[i]), from_word<B>(b[i]), from_word<C>(c[i])));
  });
}

// The handler for an integer type; bit types count as unsigned. Null for other types.
template <class F>
Handler unary_integer(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return unary<F, uint16_t, uint16_t>;
    case Type::kS16: return unary<F, int16_t, int16_t>;
    case Type::kB32:
    case Type::kU32: return unary<F, uint32_t, uint32_t>;
    case Type::kS32: return unary<F, int32_t, int32_t>;
    case Type::kB64:
    case Type::kU64: return unary<F, uint64_t, uint64_t>;
    case Type::kS64: return unary<F, int64_t, int64_t>;
    default: return nullptr;
  }
}

template <class F>
Handler binary_integer(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return binary<F, uint16_t, uint16_t, uint16_t>;
    case Type::kS16: return binary<F, int16_t, int16_t, int16_t>;
    case Type::kB32:
    case Type::kU32: return binary<F, uint32_t, uint32_t, uint32_t>;
    case Type::kS32: return binary<F, int32_t, int32_t, int32_t>;
    case Type::kB64:
    case Type::kU64: return binary<F, uint64_t, uint64_t, uint64_t>;
    case Type::kS64: return binary<F, int64_t, int64_t, int64_t>;
    default: return nullptr;
  }
}

template <class F>
Handler ternary_integer(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return ternary<F, uint16_t, uint16_t, uint16_t, uint16_t>;
    case Type::kS16: return ternary<F, int16_t, int16_t, int16_t, int16_t>;
    case Type::kB32:
    case Type::kU32: return ternary<F, uint32_t, uint32_t, uint32_t, uint32_t>;
    case Type::kS32: return ternary<F, int32_t, int32_t, int32_t, int32_t>;
    case Type::kB64:
    case Type::kU64: return ternary<F, uint64_t, uint64_t, uint64_t, uint64_t>;
    case Type::kS64: return ternary<F, int64_t, int64_t, int64_t, int64_t>;
    default: return nullptr;
  }
}

// Wrap-around arithmetic without the promotions and overflows C++ would make of it.
template <class T>
using Wrap = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

inline float flush(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}
inline float canonical(float value) {
  return value != value ? std::bit_cast<float>(0x7fffffffu) : value;
}
inline double canonical(double value) { return value; }
template <class T>
inline T saturate(T value) {
  return value > 0 ? (value < 1 ? value : T{1}) : T{0};
}  // NaN becomes +0

enum class Arith : uint8_t { kAdd, kSub, kMul, kFma, kDiv, kMin, kMax, kAbs, kNeg };
void build_float(Builder& b, Arith op, Type type);  // ops_float.cc: f32, f64
void build_half(Builder& b, Arith op, Type type);   // ops_half.cc: f16, bf16 and their pairs
inline bool is_half(Type type) {
  return type == Type::kF16 || type == Type::kF16x2 || type == Type::kBf16 || type == Type::kBf16x2;
}

// The rounding direction of arithmetic on the host; restores nearest on leaving. Values that must
// be computed inside go through volatile variables, so that the compiler keeps them there.
class RoundingScope {
 public:
  explicit RoundingScope(Round round);
  ~RoundingScope();
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;
};
Round take_rounding(Builder& b, bool required);  // .rn .rz .rm .rp

// float pairs and comparisons shared by min, max, set, setp, atom
template <class T>
inline T float_min(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
inline T float_max(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// Barriers of warps and clusters: ops_warp.cc; bar and barrier are one mnemonic in ops_control.cc.
void build_warp_barrier(Builder& b);
void build_cluster_barrier(Builder& b);

// One 16-bit float operation, rounded once. `bf` chooses bfloat16.
uint16_t half_arith(Arith op, bool bf, uint16_t a, uint16_t b, uint16_t c);

}  // namespace tube::sim::ptx

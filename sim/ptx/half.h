// IEEE half precision and bfloat16 in software: exact widening, narrowing with every rounding mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tube::sim::ptx {

enum class Round : uint8_t { kNearest, kZero, kDown, kUp, kAway };

// A value rounded to `mantissa` fraction bits and the exponent range of a small float format,
// packed. Overflow goes to infinity, or to the largest finite value where the rounding direction
// says so.
struct SmallFormat {
  int exponent_bits;
  int mantissa_bits;
};
constexpr SmallFormat kHalfFormat{5, 10};
constexpr SmallFormat kBfloatFormat{8, 7};

inline bool round_up(Round round, bool negative, bool odd, uint64_t rest, uint64_t half) {
  switch (round) {
    case Round::kNearest: return rest > half || (rest == half && odd);
    case Round::kAway: return rest >= half;
    case Round::kZero: return false;
    case Round::kDown: return negative && rest != 0;
    case Round::kUp: return !negative && rest != 0;
  }
  return false;
}

// From a double, exactly rounded once. NaN becomes 0x7fff.
inline uint16_t narrow(double value, SmallFormat format, Round round) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const bool negative = bits >> 63 != 0;
  const auto sign = static_cast<uint16_t>(negative ? 0x8000 : 0);
  const uint64_t infinity = ((uint64_t{1} << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return 0x7fff;
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const auto raw = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (raw == 0 && mantissa == 0) return sign;
  int exponent = raw == 0 ? -1022 : raw - 1023;
  if (raw != 0) mantissa |= uint64_t{1} << 52;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int lowest = 1 - bias;
  int drop = 52 - format.mantissa_bits;
  if (exponent < lowest) {
    drop += lowest - exponent;
    exponent = lowest;
  }
  uint64_t kept = 0, rest = mantissa, half = UINT64_MAX;
  if (drop < 63) {
    kept = mantissa >> drop;
    rest = mantissa & ((uint64_t{1} << drop) - 1);
    half = uint64_t{1} << (drop - 1);
  }
  if (round_up(round, negative, (kept & 1) != 0, rest, half)) ++kept;
  // kept holds the hidden bit: adding it to the exponent field carries as it should
  const uint64_t field =
      kept >> format.mantissa_bits != 0
          ? (static_cast<uint64_t>(exponent + bias - 1) << format.mantissa_bits) + kept
          : kept;
  if (field >= infinity) {
    const bool saturates = round == Round::kZero || (round == Round::kDown && !negative) ||
                           (round == Round::kUp && negative);
    return static_cast<uint16_t>(sign | (saturates ? infinity - 1 : infinity));
  }
  return static_cast<uint16_t>(sign | field);
}

inline uint16_t float_to_half(float value, Round round = Round::kNearest) {
  return narrow(value, kHalfFormat, round);
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(tiny) | sign);
}

inline float bfloat_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace tube::sim::ptx

// PTX's scalar and packed types, and the storage class a register of each type needs.
#pragma once

#include <cstdint>
#include <string_view>

namespace tube::sim::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
  kTf32,
  kU16x2,
  kS16x2,
  kE4m3x2,
  kE5m2x2,
};

// A register file slot holds 32 lanes: one lane mask for predicates, 32 bits a lane up to 32-bit
// types, else 64.
enum class Class : uint8_t { kPred, k32, k64 };

Type type_from_name(std::string_view name);  // without the dot; kNone when it is not a type
const char* type_name(Type type);
uint32_t type_bits(Type type);  // kPred answers 1

inline uint32_t type_bytes(Type type) { return (type_bits(type) + 7) / 8; }
inline Class type_class(Type type) {
  if (type == Type::kPred) return Class::kPred;
  return type_bits(type) > 32 ? Class::k64 : Class::k32;
}
inline bool is_signed(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
inline bool is_unsigned(Type type) { return type >= Type::kU8 && type <= Type::kU64; }
inline bool is_bits(Type type) { return type >= Type::kB8 && type <= Type::kB128; }
inline bool is_integer(Type type) { return type >= Type::kB8 && type <= Type::kS64; }
inline bool is_float(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64;
}

}  // namespace tube::sim::ptx

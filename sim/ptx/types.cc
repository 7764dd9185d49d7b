// Names and sizes of PTX types, from one table.
#include "sim/ptx/types.h"

namespace tube::sim::ptx {
namespace {

struct Row {
  Type type;
  const char* name;
  uint32_t bits;
};

constexpr Row kRows[] = {
    {Type::kPred, "pred", 1},      {Type::kB8, "b8", 8},        {Type::kB16, "b16", 16},
    {Type::kB32, "b32", 32},       {Type::kB64, "b64", 64},     {Type::kB128, "b128", 128},
    {Type::kU8, "u8", 8},          {Type::kU16, "u16", 16},     {Type::kU32, "u32", 32},
    {Type::kU64, "u64", 64},       {Type::kS8, "s8", 8},        {Type::kS16, "s16", 16},
    {Type::kS32, "s32", 32},       {Type::kS64, "s64", 64},     {Type::kF16, "f16", 16},
    {Type::kF16x2, "f16x2", 32},   {Type::kBf16, "bf16", 16},   {Type::kBf16x2, "bf16x2", 32},
    {Type::kF32, "f32", 32},       {Type::kF64, "f64", 64},     {Type::kTf32, "tf32", 32},
    {Type::kU16x2, "u16x2", 32},   {Type::kS16x2, "s16x2", 32}, {Type::kE4m3x2, "e4m3x2", 16},
    {Type::kE5m2x2, "e5m2x2", 16},
};

}  // namespace

Type type_from_name(std::string_view name) {
  for (const Row& row : kRows)
    if (name == row.name) return row.type;
  return Type::kNone;
}

const char* type_name(Type type) {
  for (const Row& row : kRows)
    if (type == row.type) return row.name;
  return "none";
}

uint32_t type_bits(Type type) {
  for (const Row& row : kRows)
    if (type == row.type) return row.bits;
  return 0;
}

}  // namespace tube::sim::ptx

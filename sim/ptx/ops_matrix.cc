// Matrix fragments: mma.sync (f16, bf16, tf32, f64, s8/u8), ldmatrix, stmatrix, movmatrix.
//
// All 32 lanes hold a piece of each matrix, laid out as the PTX ISA draws it. A multiplication
// gathers whole matrices, computes every element in order of k, and scatters. Products are exact in
// double; sums of f32 results are rounded to f32 once at the end, where the hardware's order and
// width of accumulation are not specified.
#include <vector>

#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

struct Shape {
  uint32_t m, n, k;
};

// Element `index` of the registers a lane holds for a matrix; registers are slots of 32 bits, or 64
// for f64.
double element(const Warp& w, const int32_t* slots, Type type, unsigned index, unsigned lane) {
  switch (type) {
    case Type::kF64: return std::bit_cast<double>(slot64(w, slots[index])[lane]);
    case Type::kF32: return std::bit_cast<float>(slot32(w, slots[index])[lane]);
    case Type::kTf32: return std::bit_cast<float>(slot32(w, slots[index])[lane] & ~0x1fffu);
    case Type::kS32: return static_cast<int32_t>(slot32(w, slots[index])[lane]);
    case Type::kS8:
      return static_cast<int8_t>(slot32(w, slots[index / 4])[lane] >> (index % 4 * 8));
    case Type::kU8:
      return static_cast<uint8_t>(slot32(w, slots[index / 4])[lane] >> (index % 4 * 8));
    case Type::kBf16:
      return bfloat_to_float(
          static_cast<uint16_t>(slot32(w, slots[index / 2])[lane] >> (index % 2 * 16)));
    default:
      return half_to_float(
          static_cast<uint16_t>(slot32(w, slots[index / 2])[lane] >> (index % 2 * 16)));
  }
}

// Where element `index` of lane's A, B or C piece stands. `per` is elements side by side in one
// register.
struct Place {
  uint32_t row, column;
};
Place place_a(const Shape& s, unsigned per, unsigned index, unsigned lane) {
  const unsigned group = lane / 4, thread = lane % 4;
  if (s.m == 8) return {group, thread + index / per * 4 * per};  // m8n8k4 f64
  const unsigned reg = index / per;
  return {group + (reg % 2) * 8, thread * per + index % per + (reg / 2) * 4 * per};
}
Place place_b(unsigned per, unsigned index, unsigned lane) {
  return {lane % 4 * per + index % per + index / per * 4 * per, lane / 4};
}
Place place_c(unsigned index, unsigned lane) {
  return {lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2};
}

unsigned side_by_side(Type type) {
  switch (type_bits(type)) {
    case 8: return 4;
    case 16: return 2;
    default: return 1;
  }
}

struct MmaPlan {
  Shape shape;
  Type d, a, b, c;
};

// imm: m | n << 8 | k << 16 | types from bit 24; target: slots of d, a, b, c one after another
MmaPlan plan_of(const Inst& in) {
  return {{static_cast<uint32_t>(in.imm & 0xff), static_cast<uint32_t>(in.imm >> 8 & 0xff),
           static_cast<uint32_t>(in.imm >> 16 & 0xff)},
          static_cast<Type>(in.imm >> 24 & 0xff),
          static_cast<Type>(in.imm >> 32 & 0xff),
          static_cast<Type>(in.imm >> 40 & 0xff),
          static_cast<Type>(in.imm >> 48 & 0xff)};
}

unsigned registers(const Shape& s, Type type, uint32_t rows, uint32_t columns) {
  (void)s;
  return rows * columns / kLanes / (type_bits(type) <= 16 ? side_by_side(type) : 1);
}

void mma(Warp& w, const Inst& in, uint32_t mask) {
  if (mask != w.live || mask != UINT32_MAX) {
    if ((w.live & ~mask) != 0) return w.park(in, mask, Wait::kSync, 0);
  }
  const MmaPlan plan = plan_of(in);
  const Shape& s = plan.shape;
  const int32_t* const d = w.frame->function->lists.data() + in.target;
  const int32_t* const a = d + registers(s, plan.d, s.m, s.n);
  const int32_t* const b = a + registers(s, plan.a, s.m, s.k);
  const int32_t* const c = b + registers(s, plan.b, s.k, s.n);
  std::vector<double> left(size_t{s.m} * s.k), right(size_t{s.k} * s.n), sum(size_t{s.m} * s.n);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < s.m * s.k / kLanes; ++i) {
      const Place at = place_a(s, side_by_side(plan.a), i, lane);
      left[size_t{at.row} * s.k + at.column] = element(w, a, plan.a, i, lane);
    }
    for (unsigned i = 0; i < s.k * s.n / kLanes; ++i) {
      const Place at = place_b(side_by_side(plan.b), i, lane);
      right[size_t{at.row} * s.n + at.column] = element(w, b, plan.b, i, lane);
    }
    for (unsigned i = 0; i < s.m * s.n / kLanes; ++i) {
      const Place at = place_c(i, lane);
      sum[size_t{at.row} * s.n + at.column] = element(w, c, plan.c, i, lane);
    }
  }
  for (uint32_t r = 0; r < s.m; ++r)
    for (uint32_t q = 0; q < s.n; ++q) {
      double& total = sum[size_t{r} * s.n + q];
      for (uint32_t k = 0; k < s.k; ++k) {
        const double x = left[size_t{r} * s.k + k], y = right[size_t{k} * s.n + q];
        total = plan.d == Type::kF64 ? std::fma(x, y, total) : total + x * y;
      }
    }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    for (unsigned i = 0; i < s.m * s.n / kLanes; ++i) {
      const Place at = place_c(i, lane);
      const double value = sum[size_t{at.row} * s.n + at.column];
      switch (plan.d) {
        case Type::kF64: slot64(w, d[i])[lane] = std::bit_cast<uint64_t>(value); break;
        case Type::kF32:
          slot32(w, d[i])[lane] = to_word(canonical(static_cast<float>(value)));
          break;
        case Type::kS32: {
          double kept = value;
          if (in.mode2 != 0)
            kept = kept > INT32_MAX ? INT32_MAX : kept < INT32_MIN ? INT32_MIN : kept;
          slot32(w, d[i])[lane] = static_cast<uint32_t>(static_cast<int64_t>(kept));
          break;
        }
        default: {
          uint32_t& word = slot32(w, d[i / 2])[lane];
          const uint32_t half = narrow(value, kHalfFormat, Round::kNearest);
          word = i % 2 == 0 ? (word & 0xffff0000u) | half : (word & 0xffffu) | half << 16;
        }
      }
    }
  }
}

Shape take_shape(Builder& b) {
  static constexpr std::pair<std::string_view, Shape> kShapes[] = {
      {"m16n8k4", {16, 8, 4}},   {"m16n8k8", {16, 8, 8}}, {"m16n8k16", {16, 8, 16}},
      {"m16n8k32", {16, 8, 32}}, {"m8n8k4", {8, 8, 4}},   {"m8n8k16", {8, 8, 16}}};
  for (const auto& [name, shape] : kShapes)
    if (b.has(name)) return shape;
  b.fail("unsupported matrix shape");
}

void take_slots(Builder& b, const Operand& operand, Type type, unsigned count, bool target,
                std::vector<int32_t>* out) {
  const std::vector<Operand> one{operand};
  const std::vector<Operand>& elements =
      operand.kind == Operand::Kind::kVector ? operand.elements : one;
  if (elements.size() != count) b.fail("a fragment needs " + std::to_string(count) + " registers");
  const Type word = type == Type::kF64 ? Type::kF64 : Type::kB32;
  for (const Operand& element : elements)
    out->push_back(target ? b.target(element, word) : b.source(element, word));
}

void build_mma(Builder& b) {
  if (!b.has("sync")) b.fail("expected .sync");
  b.has("aligned");
  const Shape s = take_shape(b);
  if (!b.has("row") || !b.has("col")) b.fail("expected .row.col");
  const bool saturates = b.has("satfinite");
  MmaPlan plan{s, b.type(), b.type(), b.type(), b.type()};
  const bool integer = plan.a == Type::kS8 || plan.a == Type::kU8;
  const bool fine =
      plan.a == Type::kF64    ? plan.b == Type::kF64 && plan.d == Type::kF64 && s.m * s.k >= 32
      : integer               ? plan.d == Type::kS32 && s.k >= 16
      : plan.a == Type::kTf32 ? plan.d == Type::kF32 && s.m == 16 && s.k <= 8
      : plan.a == Type::kBf16 ? plan.d == Type::kF32 && s.m == 16 && (s.k == 8 || s.k == 16)
      : plan.a == Type::kF16  ? s.m == 16 && (s.k == 8 || s.k == 16)
                              : false;
  if (!fine || plan.c != plan.d) b.fail("unsupported matrix types");
  b.count(4);
  std::vector<int32_t> slots;
  take_slots(b, b.operand(0), plan.d, registers(s, plan.d, s.m, s.n), true, &slots);
  take_slots(b, b.operand(1), plan.a, registers(s, plan.a, s.m, s.k), false, &slots);
  take_slots(b, b.operand(2), plan.b, registers(s, plan.b, s.k, s.n), false, &slots);
  take_slots(b, b.operand(3), plan.c, registers(s, plan.c, s.m, s.n), false, &slots);
  Inst& in = b.emit(mma);
  in.mode2 = saturates;
  in.imm = s.m | s.n << 8 | static_cast<uint64_t>(s.k) << 16 | static_cast<uint64_t>(plan.d) << 24 |
           static_cast<uint64_t>(plan.a) << 32 | static_cast<uint64_t>(plan.b) << 40 |
           static_cast<uint64_t>(plan.c) << 48;
  in.target = b.list(slots);
}

// ldmatrix, stmatrix: 8x8 matrices of 16-bit elements; lane 8j+r holds the address of row r of
// matrix j. mode2: bit 0 transposed, bit 1 store; count: matrices
void matrix_rows(Warp& w, const Inst& in, uint32_t mask) {
  if ((w.live & ~mask) != 0) return w.park(in, mask, Wait::kSync, 0);
  const int32_t* const slots = w.frame->function->lists.data() + in.target;
  for (unsigned j = 0; j < in.count; ++j) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      for (unsigned half = 0; half < 2; ++half) {
        unsigned row = lane / 4, column = lane % 4 * 2 + half;
        if ((in.mode2 & 1) != 0) std::swap(row, column);
        const uint64_t base = in.a == kNoSlot ? 0 : slot64(w, in.a)[8 * j + row];
        const uint64_t address = (base & ~kWindowMask) + in.imm + column * 2;
        std::byte* const at =
            (address - column * 2) % 16 == 0 ? shared_memory(w, address, 2) : nullptr;
        if (at == nullptr)
          return w.fault(Fault::Kind::kIllegalAddress, in, address,
                         "illegal address in a matrix access");
        uint32_t& word = slot32(w, slots[j])[lane];
        uint16_t value = 0;
        if ((in.mode2 & 2) != 0) {
          value = static_cast<uint16_t>(word >> (16 * half));
          std::memcpy(at, &value, 2);
        } else {
          std::memcpy(&value, at, 2);
          word = (word & ~(0xffffu << (16 * half))) | static_cast<uint32_t>(value) << (16 * half);
        }
      }
    }
  }
}

template <bool Store>
void build_rows(Builder& b) {
  if (!b.has("sync")) b.fail("expected .sync");
  b.has("aligned");
  if (!b.has("m8n8")) b.fail("unsupported matrix shape");
  const unsigned count = b.has("x1") ? 1 : b.has("x2") ? 2 : b.has("x4") ? 4 : 0;
  if (count == 0) b.fail("expected .x1, .x2 or .x4");
  const bool transposed = b.has("trans");
  b.any("shared", "shared::cta");
  if (type_bits(b.type()) != 16) b.fail("expected .b16");
  b.count(2);
  const Address address = b.address(b.operand(Store ? 0 : 1), Space::kShared);
  std::vector<int32_t> slots;
  take_slots(b, b.operand(Store ? 1 : 0), Type::kB32, count, !Store, &slots);
  Inst& in = b.emit(matrix_rows, kNoSlot, address.base);
  in.imm = address.offset;
  in.count = static_cast<uint8_t>(count);
  in.mode2 = static_cast<uint8_t>((transposed ? 1 : 0) | (Store ? 2 : 0));
  in.target = b.list(slots);
}

}  // namespace

void register_matrix(BuildTable& table) {
  table["mma"] = build_mma;
  table["ldmatrix"] = build_rows<false>;
  table["stmatrix"] = build_rows<true>;
}

}  // namespace tube::sim::ptx

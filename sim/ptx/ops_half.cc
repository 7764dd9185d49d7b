// f16, bf16 and their pairs. Every operation is computed wider and rounded once: in double, where a
// product of two halves is exact; the sum of a fused multiply-add is first rounded to odd, so that
// the second rounding sees what the first one lost.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

float widen(bool bf, uint16_t bits) { return bf ? bfloat_to_float(bits) : half_to_float(bits); }

// x + y rounded to odd: the exact sum's direction stays visible in the last bit.
double add_to_odd(double x, double y) {
  const double sum = x + y;
  if (!std::isfinite(sum)) return sum;
  const double part = sum - x;
  const double error = (x - (sum - part)) + (y - part);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  // towards the exact value, which lies on error's side
  bits += (error > 0) == (sum > 0) ? 1 : uint64_t{0} - 1;
  return std::bit_cast<double>(bits);
}

uint16_t flush_half(uint16_t v, bool bf) {
  const uint16_t exponent = bf ? 0x7f80 : 0x7c00;
  return (v & exponent) == 0 ? static_cast<uint16_t>(v & 0x8000) : v;
}

// mode: Arith. mode2 bits: 0 bfloat, 1 pair, 2 ftz, 3 sat, 4 relu, 5 NaN, 6 xorsign
uint16_t lane(const Inst& in, uint16_t a, uint16_t b, uint16_t c) {
  const bool bf = (in.mode2 & 1) != 0, ftz = (in.mode2 & 4) != 0, xorsign = (in.mode2 & 64) != 0;
  const auto op = static_cast<Arith>(in.mode);
  if (ftz) {
    a = flush_half(a, bf);
    b = flush_half(b, bf);
    c = flush_half(c, bf);
  }
  const auto sign = static_cast<uint16_t>((a ^ b) & 0x8000);
  if (xorsign) {
    a &= 0x7fff;
    b &= 0x7fff;
  }
  uint16_t out = 0;
  if ((in.mode2 & 32) != 0 && (std::isnan(widen(bf, a)) || std::isnan(widen(bf, b)))) out = 0x7fff;
  else out = half_arith(op, bf, a, b, c);
  if (xorsign && !std::isnan(widen(bf, out))) out = static_cast<uint16_t>((out & 0x7fff) | sign);
  if (ftz) out = flush_half(out, bf);
  if ((in.mode2 & 8) != 0)
    out = narrow(saturate(widen(bf, out)), bf ? kBfloatFormat : kHalfFormat, Round::kNearest);
  if ((in.mode2 & 16) != 0 && !std::isnan(widen(bf, out)) && (out & 0x8000) != 0) out = 0;
  return out;
}

void half_operation(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const uint32_t* const a = slot32(w, in.a);
  const uint32_t* const b = in.b == kNoSlot ? a : slot32(w, in.b);
  const uint32_t* const c = in.c == kNoSlot ? a : slot32(w, in.c);
  const bool pair = (in.mode2 & 2) != 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(rest));
    const uint32_t x = a[i], y = b[i], z = c[i];
    uint32_t out =
        lane(in, static_cast<uint16_t>(x), static_cast<uint16_t>(y), static_cast<uint16_t>(z));
    if (pair)
      out |= static_cast<uint32_t>(lane(in, static_cast<uint16_t>(x >> 16),
                                        static_cast<uint16_t>(y >> 16),
                                        static_cast<uint16_t>(z >> 16)))
             << 16;
    d[i] = out;
  }
}

}  // namespace

uint16_t half_arith(Arith op, bool bf, uint16_t a, uint16_t b, uint16_t c) {
  const double x = widen(bf, a), y = widen(bf, b);
  double value = 0;
  switch (op) {
    case Arith::kAdd: value = add_to_odd(x, y); break;
    case Arith::kSub: value = add_to_odd(x, -y); break;
    case Arith::kMul: value = x * y; break;
    case Arith::kDiv: value = x / y; break;
    case Arith::kFma: value = add_to_odd(x * y, widen(bf, c)); break;
    case Arith::kMin: value = float_min(x, y); break;
    case Arith::kMax: value = float_max(x, y); break;
    case Arith::kAbs: return static_cast<uint16_t>(a & 0x7fff);
    case Arith::kNeg: return static_cast<uint16_t>(a ^ 0x8000);
  }
  return narrow(value, bf ? kBfloatFormat : kHalfFormat, Round::kNearest);
}

void build_half(Builder& b, Arith op, Type type) {
  const bool bf = type == Type::kBf16 || type == Type::kBf16x2;
  const bool pair = type == Type::kF16x2 || type == Type::kBf16x2;
  if (op == Arith::kDiv) b.fail("div has no 16-bit form");
  const bool arithmetic =
      op == Arith::kAdd || op == Arith::kSub || op == Arith::kMul || op == Arith::kFma;
  if (arithmetic) b.has("rn");
  uint8_t mode2 = static_cast<uint8_t>((bf ? 1 : 0) | (pair ? 2 : 0));
  if (b.has("ftz")) mode2 |= 4;
  if (arithmetic && b.has("sat")) mode2 |= 8;
  if (op == Arith::kFma && b.has("relu")) mode2 |= 16;
  if (op == Arith::kMin || op == Arith::kMax) {
    if (b.has("NaN")) mode2 |= 32;
    if (b.has("xorsign")) {
      if (!b.has("abs")) b.fail("expected .xorsign.abs");
      mode2 |= 64;
    }
  }
  const bool one = op == Arith::kAbs || op == Arith::kNeg;
  b.count(one ? 2 : op == Arith::kFma ? 4 : 3);
  const int32_t x = b.source(1, type);
  const int32_t y = one ? kNoSlot : b.source(2, type);
  const int32_t z = op == Arith::kFma ? b.source(3, type) : kNoSlot;
  Inst& in = b.emit(half_operation, b.target(0, type), x, y, z);
  in.mode = static_cast<uint8_t>(op);
  in.mode2 = mode2;
}

void register_half(BuildTable&) {}  // all mnemonics are shared with integers: ops_integer.cc

}  // namespace tube::sim::ptx

// Logic, shifts, bit fields, permutation.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

// An operation a line.
// clang-format off
struct And { template <class T> static T op(T a, T b) { return static_cast<T>(a & b); } };
struct Or { template <class T> static T op(T a, T b) { return static_cast<T>(a | b); } };
struct Xor { template <class T> static T op(T a, T b) { return static_cast<T>(a ^ b); } };
struct Not { template <class T> static T op(T a) { return static_cast<T>(~a); } };
struct Cnot { template <class T> static T op(T a) { return a == 0; } };

template <class F>
void predicate_op(Warp& w, const Inst& in, uint32_t mask) {
  set_predicate(w, in.d, mask, F::op(predicate(w, in.a), predicate(w, in.b)));
}

struct Shl {
  template <class T> static T op(T a, uint32_t n) { return n < sizeof(T) * 8 ? static_cast<T>(Wrap<T>(a) << n) : T{0}; }
};
struct Shr {
  template <class T> static T op(T a, uint32_t n) {
    if (n >= sizeof(T) * 8) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> n);
  }
};

template <class F>
Handler shift_handler(Type type) {
  switch (type) {
    case Type::kB16: case Type::kU16: return binary<F, uint16_t, uint16_t, uint32_t>;
    case Type::kS16: return binary<F, int16_t, int16_t, uint32_t>;
    case Type::kB32: case Type::kU32: return binary<F, uint32_t, uint32_t, uint32_t>;
    case Type::kS32: return binary<F, int32_t, int32_t, uint32_t>;
    case Type::kB64: case Type::kU64: return binary<F, uint64_t, uint64_t, uint32_t>;
    case Type::kS64: return binary<F, int64_t, int64_t, uint32_t>;
    default: return nullptr;
  }
}

// shf: mode bit 0: right, bit 1: clamp
void funnel(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const uint32_t *a = slot32(w, in.a), *b = slot32(w, in.b), *c = slot32(w, in.c);
  for_lanes(mask, [&](unsigned i) {
    const uint32_t n = (in.mode & 2) != 0 ? (c[i] < 32 ? c[i] : 32) : c[i] & 31;
    const uint64_t both = static_cast<uint64_t>(b[i]) << 32 | a[i];
    d[i] = (in.mode & 1) != 0 ? static_cast<uint32_t>(both >> n) : static_cast<uint32_t>(both << n >> 32);
  });
}

struct Popc { template <class T> static uint32_t op(T a) { return static_cast<uint32_t>(std::popcount(a)); } };
struct Clz { template <class T> static uint32_t op(T a) { return static_cast<uint32_t>(std::countl_zero(a)); } };
struct Brev {
  template <class T> static T op(T a) {
    T out = 0;
    for (unsigned k = 0; k < sizeof(T) * 8; ++k) out = static_cast<T>(out << 1 | (a >> k & 1));
    return out;
  }
};
template <bool Shift> struct Bfind {
  template <class T> static uint32_t op(T a) {
    using U = std::make_unsigned_t<T>;
    const U bits = std::is_signed_v<T> && a < 0 ? static_cast<U>(~a) : static_cast<U>(a);
    if (bits == 0) return UINT32_MAX;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return Shift ? zeros : sizeof(T) * 8 - 1 - zeros;
  }
};
struct Bfe {
  template <class T> static T op(T a, uint32_t b, uint32_t c) {
    using U = std::make_unsigned_t<T>;
    const uint32_t position = b & 255, length = c & 255, top = sizeof(T) * 8 - 1;
    if (length == 0) return 0;
    const uint32_t sign_at = position + length - 1 < top ? position + length - 1 : top;
    const bool sign = std::is_signed_v<T> && (static_cast<U>(a) >> sign_at & 1) != 0;
    U out = position <= top ? static_cast<U>(static_cast<U>(a) >> position) : U{0};
    const uint32_t valid = sign_at >= position ? sign_at - position + 1 : 0;
    const U keep = valid > top ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << valid) - 1);
    out &= keep;
    if (sign) out |= static_cast<U>(~keep);
    return static_cast<T>(out);
  }
};
template <class T>
void bfi(Warp& w, const Inst& in, uint32_t mask) {
  auto* const d = words<T>(w, in.d);
  const auto *a = words<T>(w, in.a), *b = words<T>(w, in.b);
  const uint32_t *c = slot32(w, in.c), *e = slot32(w, in.e);
  for_lanes(mask, [=](unsigned i) {
    const uint32_t position = c[i] & 255, length = e[i] & 255, bits = sizeof(T) * 8;
    T field = 0;
    if (position < bits && length != 0)
      field = static_cast<T>((length >= bits ? ~T{0} : (T{1} << length) - 1) << position);
    d[i] = (b[i] & ~field) | (position < bits ? static_cast<T>(a[i] << position) & field : T{0});
  });
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t c) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t out = 0;
  for (unsigned k = 0; k < 4; ++k) {
    const uint32_t control = c >> (4 * k) & 15;
    auto byte = static_cast<uint8_t>(both >> (8 * (control & 7)));
    if ((control & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    out |= static_cast<uint32_t>(byte) << (8 * k);
  }
  return out;
}
struct Prmt { static uint32_t op(uint32_t a, uint32_t b, uint32_t c) { return permute(a, b, c); } };
// clang-format on
// The special modes select by the two low bits of c; mode: f4e, b4e, rc8, ecl, ecr, rc16
void prmt_mode(Warp& w, const Inst& in, uint32_t mask) {
  static constexpr uint16_t kControl[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
      {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
      {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
  uint32_t* const d = slot32(w, in.d);
  const uint32_t *a = slot32(w, in.a), *b = slot32(w, in.b), *c = slot32(w, in.c);
  for_lanes(mask, [&](unsigned i) { d[i] = permute(a[i], b[i], kControl[in.mode][c[i] & 3]); });
}

void lop3(Warp& w, const Inst& in, uint32_t mask) {
  uint32_t* const d = slot32(w, in.d);
  const uint32_t *a = slot32(w, in.a), *b = slot32(w, in.b), *c = slot32(w, in.c);
  const uint32_t table = in.mode;
  uint32_t any = 0;
  for_lanes(mask, [&](unsigned i) {
    uint32_t out = 0;
    for (unsigned k = 0; k < 8; ++k) {
      if ((table >> k & 1) == 0) continue;
      out |= ((k & 4) != 0 ? a[i] : ~a[i]) & ((k & 2) != 0 ? b[i] : ~b[i]) &
             ((k & 1) != 0 ? c[i] : ~c[i]);
    }
    d[i] = out;
    if (out != 0) any |= 1u << i;
  });
  if (in.p == kNoSlot) return;
  const uint32_t q = predicate(w, in.e);
  set_predicate(w, in.p, mask, in.mode2 == 1 ? any | q : any & q);
}

struct Fns {
  static uint32_t op(uint32_t mask, uint32_t base, int32_t offset) {
    if (base > 31) return UINT32_MAX;
    int pos = static_cast<int>(base);
    if (offset == 0) return (mask >> base & 1) != 0 ? base : UINT32_MAX;
    const int step = offset > 0 ? 1 : -1;
    int left = offset > 0 ? offset : -offset;
    for (; pos >= 0 && pos < 32; pos += step)
      if ((mask >> pos & 1) != 0 && --left == 0) return static_cast<uint32_t>(pos);
    return UINT32_MAX;
  }
};

struct Bmsk {
  template <bool Clamp>
  static uint32_t make(uint32_t a, uint32_t b) {
    if (!Clamp) {
      a &= 31;
      b &= 31;
    }
    if (a > 31 || b == 0) return 0;
    if (b > 32) b = 32;
    const uint64_t ones = ((uint64_t{1} << b) - 1) << a;
    return static_cast<uint32_t>(ones);
  }
};
template <bool Clamp>
struct BmskOp {
  static uint32_t op(uint32_t a, uint32_t b) { return Bmsk::make<Clamp>(a, b); }
};

template <class F>
void build_logic(Builder& b) {
  const Type type = b.type();
  b.count(3);
  const int32_t x = b.source(1, type), y = b.source(2, type);
  const int32_t d = b.target(0, type);
  if (type == Type::kPred) {
    b.emit(predicate_op<F>, d, x, y);
    return;
  }
  const Handler handler = is_bits(type) ? binary_integer<F>(type) : nullptr;
  if (handler == nullptr) b.fail("expected .pred, .b16, .b32 or .b64");
  b.emit(handler, d, x, y);
}

void build_not(Builder& b) {
  const Type type = b.type();
  b.count(2);
  const int32_t x = b.source(1, type);
  const Handler handler = type == Type::kPred ? not_predicate
                          : is_bits(type)     ? unary_integer<Not>(type)
                                              : nullptr;
  if (handler == nullptr) b.fail("expected .pred, .b16, .b32 or .b64");
  b.emit(handler, b.target(0, type), x);
}

void build_cnot(Builder& b) {
  const Type type = b.type();
  b.count(2);
  const Handler handler = unary_integer<Cnot>(type);
  if (handler == nullptr) b.fail("expected a bit type");
  const int32_t x = b.source(1, type);
  b.emit(handler, b.target(0, type), x);
}

template <class F>
void build_shift(Builder& b) {
  const Type type = b.type();
  b.count(3);
  const Handler handler = shift_handler<F>(type);
  if (handler == nullptr) b.fail("expected a 16-, 32- or 64-bit integer type");
  const int32_t x = b.source(1, type), n = b.source(2, Type::kU32);
  b.emit(handler, b.target(0, type), x, n);
}

void build_shf(Builder& b) {
  uint8_t mode = 0;
  if (b.has("r")) mode |= 1;
  else if (!b.has("l")) b.fail("expected .l or .r");
  if (b.has("clamp")) mode |= 2;
  else if (!b.has("wrap")) b.fail("expected .clamp or .wrap");
  if (b.type() != Type::kB32) b.fail("expected .b32");
  b.count(4);
  const int32_t x = b.source(1, Type::kB32), y = b.source(2, Type::kB32),
                n = b.source(3, Type::kU32);
  b.emit(funnel, b.target(0, Type::kB32), x, y, n).mode = mode;
}

template <class F>
void build_count(Builder& b) {
  const Type type = b.type();
  b.count(2);
  if (type_bits(type) != 32 && type_bits(type) != 64) b.fail("expected a 32- or 64-bit type");
  const int32_t x = b.source(1, type);
  b.emit(type_bits(type) == 64 ? unary<F, uint32_t, uint64_t> : unary<F, uint32_t, uint32_t>,
         b.target(0, Type::kU32), x);
}

void build_brev(Builder& b) {
  const Type type = b.type();
  b.count(2);
  const int32_t x = b.source(1, type);
  b.emit(type_bits(type) == 64 ? unary<Brev, uint64_t, uint64_t> : unary<Brev, uint32_t, uint32_t>,
         b.target(0, type), x);
}

template <bool Shift>
Handler bfind_handler(Type type) {
  switch (type) {
    case Type::kU32: return unary<Bfind<Shift>, uint32_t, uint32_t>;
    case Type::kS32: return unary<Bfind<Shift>, uint32_t, int32_t>;
    case Type::kU64: return unary<Bfind<Shift>, uint32_t, uint64_t>;
    case Type::kS64: return unary<Bfind<Shift>, uint32_t, int64_t>;
    default: return nullptr;
  }
}

void build_bfind(Builder& b) {
  const bool shift = b.has("shiftamt");
  const Type type = b.type();
  b.count(2);
  const Handler handler = shift ? bfind_handler<true>(type) : bfind_handler<false>(type);
  if (handler == nullptr) b.fail("expected a 32- or 64-bit integer type");
  const int32_t x = b.source(1, type);
  b.emit(handler, b.target(0, Type::kU32), x);
}

void build_bfe(Builder& b) {
  const Type type = b.type();
  b.count(4);
  Handler handler = nullptr;
  if (type == Type::kU32) handler = ternary<Bfe, uint32_t, uint32_t, uint32_t, uint32_t>;
  if (type == Type::kS32) handler = ternary<Bfe, int32_t, int32_t, uint32_t, uint32_t>;
  if (type == Type::kU64) handler = ternary<Bfe, uint64_t, uint64_t, uint32_t, uint32_t>;
  if (type == Type::kS64) handler = ternary<Bfe, int64_t, int64_t, uint32_t, uint32_t>;
  if (handler == nullptr) b.fail("expected a 32- or 64-bit integer type");
  const int32_t x = b.source(1, type), y = b.source(2, Type::kU32), z = b.source(3, Type::kU32);
  b.emit(handler, b.target(0, type), x, y, z);
}

void build_bfi(Builder& b) {
  const Type type = b.type();
  b.count(5);
  if (type != Type::kB32 && type != Type::kB64) b.fail("expected .b32 or .b64");
  const int32_t x = b.source(1, type), y = b.source(2, type);
  const int32_t z = b.source(3, Type::kU32), e = b.source(4, Type::kU32);
  b.emit(type == Type::kB64 ? bfi<uint64_t> : bfi<uint32_t>, b.target(0, type), x, y, z).e = e;
}

void build_prmt(Builder& b) {
  if (b.type() != Type::kB32) b.fail("expected .b32");
  static constexpr std::string_view kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  b.count(4);
  const int32_t x = b.source(1, Type::kB32), y = b.source(2, Type::kB32),
                z = b.source(3, Type::kB32);
  const int32_t d = b.target(0, Type::kB32);
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (!b.has(kModes[i])) continue;
    b.emit(prmt_mode, d, x, y, z).mode = static_cast<uint8_t>(i);
    return;
  }
  b.emit(ternary<Prmt, uint32_t, uint32_t, uint32_t, uint32_t>, d, x, y, z);
}

void build_lop3(Builder& b) {
  const uint8_t combine = b.has("or") ? 1 : b.has("and") ? 2 : 0;
  if (b.type() != Type::kB32) b.fail("expected .b32");
  b.count(combine != 0 ? 6 : 5);
  int32_t p = kNoSlot, q = kNoSlot, d = kNoSlot;
  const int32_t x = b.source(1, Type::kB32), y = b.source(2, Type::kB32),
                z = b.source(3, Type::kB32);
  const uint64_t table = b.immediate(b.operand(4));
  if (combine != 0) {
    const Operand& pair = b.operand(0);
    if (pair.kind != Operand::Kind::kPair) b.fail("expected d|p");
    q = b.predicate_source(b.operand(5));
    d = b.target(pair.elements[0], Type::kB32);
    p = b.target(pair.elements[1], Type::kPred);
  } else {
    d = b.target(0, Type::kB32);
  }
  Inst& in = b.emit(lop3, d, x, y, z);
  in.mode = static_cast<uint8_t>(table);
  in.mode2 = combine;
  in.p = p;
  in.e = q;
}

void build_fns(Builder& b) {
  if (b.type() != Type::kB32) b.fail("expected .b32");
  b.count(4);
  const int32_t x = b.source(1, Type::kB32), y = b.source(2, Type::kB32),
                z = b.source(3, Type::kS32);
  b.emit(ternary<Fns, uint32_t, uint32_t, uint32_t, int32_t>, b.target(0, Type::kB32), x, y, z);
}

void build_bmsk(Builder& b) {
  const bool clamp = b.has("clamp");
  if (!clamp && !b.has("wrap")) b.fail("expected .clamp or .wrap");
  if (b.type() != Type::kB32) b.fail("expected .b32");
  b.count(3);
  const int32_t x = b.source(1, Type::kU32), y = b.source(2, Type::kU32);
  b.emit(clamp ? binary<BmskOp<true>, uint32_t, uint32_t, uint32_t>
               : binary<BmskOp<false>, uint32_t, uint32_t, uint32_t>,
         b.target(0, Type::kB32), x, y);
}

}  // namespace

void register_bits(BuildTable& table) {
  table["and"] = build_logic<And>;
  table["or"] = build_logic<Or>;
  table["xor"] = build_logic<Xor>;
  table["not"] = build_not;
  table["cnot"] = build_cnot;
  table["shl"] = build_shift<Shl>;
  table["shr"] = build_shift<Shr>;
  table["shf"] = build_shf;
  table["popc"] = build_count<Popc>;
  table["clz"] = build_count<Clz>;
  table["brev"] = build_brev;
  table["bfind"] = build_bfind;
  table["bfe"] = build_bfe;
  table["bfi"] = build_bfi;
  table["prmt"] = build_prmt;
  table["lop3"] = build_lop3;
  table["fns"] = build_fns;
  table["bmsk"] = build_bmsk;
}

}  // namespace tube::sim::ptx

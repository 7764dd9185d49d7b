// Extended precision: add.cc, addc, sub.cc, subc, mad.cc, madc. The carry flag is one bit a lane in
// the warp.
//
// Registered over add, sub and mad: the .cc modifier decides, everything else goes to the plain
// builders.
#include "sim/ptx/ops.h"

namespace tube::sim::ptx {
namespace {

// mode bit 0: takes the carry in, bit 1: writes it, bit 2: subtracts, bit 3: mad, bit 4: mad.hi
template <class T>
void extended(Warp& w, const Inst& in, uint32_t mask) {
  using Wide = unsigned __int128;
  T* const d = reinterpret_cast<T*>(slot32(w, in.d));
  const T *a = reinterpret_cast<T*>(slot32(w, in.a)), *b = reinterpret_cast<T*>(slot32(w, in.b));
  // Only what is added to a product is in c.
  const T* c = in.c == kNoSlot ? b : reinterpret_cast<T*>(slot32(w, in.c));
  uint32_t carry = w.carry;
  for_lanes(mask, [&](unsigned i) {
    const uint32_t taken = (in.mode & 1) != 0 ? w.carry >> i & 1 : 0;
    T x = a[i], y = b[i];
    if ((in.mode & 8) != 0) {
      if (in.mode2 != 0) {  // signed product
        using S = std::make_signed_t<T>;
        const __int128 product = static_cast<__int128>(static_cast<S>(x)) * static_cast<S>(y);
        x = static_cast<T>((in.mode & 16) != 0 ? product >> (sizeof(T) * 8) : product);
      } else {
        const Wide product = static_cast<Wide>(x) * y;
        x = static_cast<T>((in.mode & 16) != 0 ? product >> (sizeof(T) * 8) : product);
      }
      y = c[i];
    }
    uint32_t out = 0;
    if ((in.mode & 4) != 0) {
      out = static_cast<Wide>(x) < static_cast<Wide>(y) + taken;
      d[i] = static_cast<T>(x - y - taken);
    } else {
      const Wide sum = static_cast<Wide>(x) + y + taken;
      out = static_cast<uint32_t>(sum >> (sizeof(T) * 8));
      d[i] = static_cast<T>(sum);
    }
    carry = (carry & ~(1u << i)) | (out & 1) << i;
  });
  if ((in.mode & 2) != 0) w.carry = carry;
}

void build(Builder& b, uint8_t mode) {
  const Type type = b.type();
  if (!is_integer(type) || type_bits(type) < 32 || type_bits(type) > 64)
    b.fail("expected a 32- or 64-bit integer type");
  const bool mad = (mode & 8) != 0;
  if (mad && b.has("hi")) mode |= 16;
  else if (mad && !b.has("lo")) b.fail("expected .hi or .lo");
  b.count(mad ? 4 : 3);
  const int32_t x = b.source(1, type), y = b.source(2, type), z = mad ? b.source(3, type) : kNoSlot;
  Inst& in = b.emit(type_bits(type) == 64 ? extended<uint64_t> : extended<uint32_t>,
                    b.target(0, type), x, y, z);
  in.mode = mode;
  in.mode2 = is_signed(type);
}

template <uint8_t Mode>
void carry_in(Builder& b) {
  build(b, static_cast<uint8_t>(Mode | 1 | (b.has("cc") ? 2 : 0)));
}

BuildFunction plain_add, plain_sub, plain_mad;

}  // namespace

void register_extended(BuildTable& table) {
  plain_add = table["add"];
  plain_sub = table["sub"];
  plain_mad = table["mad"];
  table["add"] = [](Builder& b) { b.has("cc") ? build(b, 2) : plain_add(b); };
  table["sub"] = [](Builder& b) { b.has("cc") ? build(b, 2 | 4) : plain_sub(b); };
  table["mad"] = [](Builder& b) { b.has("cc") ? build(b, 2 | 8) : plain_mad(b); };
  table["addc"] = carry_in<0>;
  table["subc"] = carry_in<4>;
  table["madc"] = carry_in<8>;
}

}  // namespace tube::sim::ptx

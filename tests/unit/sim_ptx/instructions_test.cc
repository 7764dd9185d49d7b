// Single instructions against values worked out on the host or by hand from the PTX ISA.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/unit/sim_ptx/device.h"

namespace tube::sim::ptx {
namespace {

constexpr const char* kHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

// Runs `body` with a, b, c in %a %b %c (64 bits), %x %y %z (low 32), %hx %hy %hz (low 16); results
// go to %d, %r or %h.
struct Result {
  uint64_t d = 0;
  uint32_t r = 0;
  uint32_t h = 0;
};
Result eval(const std::string& body, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  const std::string text = std::string(kHead) + R"(
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 out) {
.reg .b64 %a, %b, %c, %d, %out, %t64<4>; .reg .b32 %x, %y, %z, %r, %t<8>; .reg .b16 %hx, %hy, %hz, %h, %th<8>;
.reg .pred %p, %q, %s; .shared .align 16 .b8 mem[256]; .local .align 16 .b8 stack[64];
mov.b64 %d, 0; mov.b32 %r, 0; mov.b16 %h, 0;
ld.param.u64 %a, [pa]; ld.param.u64 %b, [pb]; ld.param.u64 %c, [pc]; ld.param.u64 %out, [out];
cvt.u32.u64 %x, %a; cvt.u32.u64 %y, %b; cvt.u32.u64 %z, %c;
cvt.u16.u64 %hx, %a; cvt.u16.u64 %hy, %b; cvt.u16.u64 %hz, %c;
)" + body + R"(
st.global.u64 [%out], %d; st.global.u32 [%out+8], %r; st.global.u16 [%out+12], %h; ret; })";
  Device device(text);
  EXPECT_NE(device.module, nullptr) << body << ": " << device.error.line << ": "
                                    << device.error.message << ": " << device.error.instruction;
  if (device.module == nullptr) return {};
  const uint64_t out = device.alloc(16);
  const Fault fault = device.run("k", {1, 1, 1}, {1, 1, 1}, a, b, c, out);
  EXPECT_EQ(fault.kind, Fault::Kind::kNone) << body << ": " << fault.message;
  Result result;
  std::memcpy(&result, reinterpret_cast<void*>(out), sizeof(result));
  return result;
}
uint32_t eval32(const std::string& body, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  return eval(body, a, b, c).r;
}
uint64_t eval64(const std::string& body, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
  return eval(body, a, b, c).d;
}
uint32_t evalf(const std::string& body, float a = 0, float b = 0, float c = 0) {
  return eval32(body, std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b),
                std::bit_cast<uint32_t>(c));
}
uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t bits(double v) { return std::bit_cast<uint64_t>(v); }
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

TEST(Instructions, IntegerArithmetic) {
  EXPECT_EQ(eval32("add.s32 %r, %x, %y;", 5, 0xffffffff), 4u);
  EXPECT_EQ(eval32("add.sat.s32 %r, %x, %y;", 0x7fffffff, 1), 0x7fffffffu);
  EXPECT_EQ(eval32("sub.sat.s32 %r, %x, %y;", 0x80000000, 1), 0x80000000u);
  EXPECT_EQ(eval32("mul.hi.s32 %r, %x, %y;", 0x80000000, 4), 0xfffffffeu);
  EXPECT_EQ(eval32("mul.hi.u32 %r, %x, %y;", 0x80000000, 4), 2u);
  EXPECT_EQ(eval64("mul.wide.s32 %d, %x, %y;", 0xffffffff, 3), static_cast<uint64_t>(-3));
  EXPECT_EQ(eval32("mul.wide.u16 %r, %hx, %hy;", 0xffff, 0xffff), 0xfffe0001u);
  EXPECT_EQ(eval64("mad.wide.u32 %d, %x, %y, %c;", 0xffffffff, 2, 5), 0x200000003ull);
  EXPECT_EQ(eval64("mul.hi.u64 %d, %a, %b;", ~0ull, ~0ull), ~0ull - 1);
  EXPECT_EQ(eval32("div.s32 %r, %x, %y;", 0xfffffff9, 2), 0xfffffffdu);
  EXPECT_EQ(eval32("div.s32 %r, %x, %y;", 0x80000000, 0xffffffff), 0x80000000u);
  EXPECT_EQ(eval32("rem.s32 %r, %x, %y;", 0xfffffff9, 2), 0xffffffffu);
  EXPECT_EQ(eval32("rem.u32 %r, %x, %y;", 7, 0), 7u);
  EXPECT_EQ(eval32("abs.s32 %r, %x;", 0xfffffff0), 16u);
  EXPECT_EQ(eval32("sad.u32 %r, %x, %y, %z;", 3, 10, 100), 107u);
  EXPECT_EQ(eval32("min.s32 %r, %x, %y;", 0xffffffff, 1), 0xffffffffu);
  EXPECT_EQ(eval32("max.u32 %r, %x, %y;", 0xffffffff, 1), 0xffffffffu);
  EXPECT_EQ(eval("add.s16 %h, %hx, %hy;", 0xffff, 2).h, 1u);
  EXPECT_EQ(eval32("mul24.lo.s32 %r, %x, %y;", 0xffffff, 5), 0xfffffffbu);
  EXPECT_EQ(eval32("dp4a.u32.u32 %r, %x, %y, %z;", 0x04030201, 0x01010101, 7), 17u);
  EXPECT_EQ(eval32("dp4a.s32.s32 %r, %x, %y, %z;", 0xffffffff, 0x01010101, 0), 0xfffffffcu);
  EXPECT_EQ(eval32("dp2a.lo.u32.u32 %r, %x, %y, %z;", 0x00030002, 0x0504, 1), 1u + 2 * 4 + 3 * 5);
}

TEST(Instructions, ExtendedPrecisionCarries) {
  EXPECT_EQ(eval32("add.cc.u32 %t0, %x, %y; addc.u32 %r, 0, 0;", 0xffffffff, 1), 1u);
  EXPECT_EQ(eval32("sub.cc.u32 %t0, %x, %y; subc.u32 %r, %z, 0;", 0, 1, 10), 9u);
  EXPECT_EQ(eval64("add.cc.u64 %t640, %a, %b; addc.u64 %d, %c, 0;", ~0ull, 1, 5), 6u);
  EXPECT_EQ(eval32("mad.lo.cc.u32 %t0, %x, %y, %z; madc.hi.u32 %r, %x, %y, 0;", 0xffffffff, 2, 2),
            2u);
}

TEST(Instructions, BitsAndFields) {
  EXPECT_EQ(eval32("shl.b32 %r, %x, %y;", 1, 32), 0u);
  EXPECT_EQ(eval32("shr.s32 %r, %x, %y;", 0x80000000, 40), 0xffffffffu);
  EXPECT_EQ(eval32("bfe.u32 %r, %x, 8, 8;", 0x12345678), 0x56u);
  EXPECT_EQ(eval32("bfe.s32 %r, %x, 4, 4;", 0x80), 0xfffffff8u);
  EXPECT_EQ(eval64("bfe.s64 %d, %a, 60, 20;", 1ull << 63), ~0ull << 3);
  EXPECT_EQ(eval32("bfi.b32 %r, %x, %y, 8, 8;", 0xab, 0xffffffff), 0xffffabffu);
  EXPECT_EQ(eval32("bfind.s32 %r, %x;", 0xfffffff0), 3u);
  EXPECT_EQ(eval32("bfind.u32 %r, %x;", 0), 0xffffffffu);
  EXPECT_EQ(eval32("bfind.shiftamt.u32 %r, %x;", 1), 31u);
  EXPECT_EQ(eval32("clz.b64 %r, %a;", 1), 63u);
  EXPECT_EQ(eval32("popc.b32 %r, %x;", 0xf0f0), 8u);
  EXPECT_EQ(eval32("brev.b32 %r, %x;", 1), 0x80000000u);
  EXPECT_EQ(eval32("prmt.b32 %r, %x, %y, 0x7531;", 0x33221100, 0x77665544), 0x77553311u);
  EXPECT_EQ(eval32("prmt.b32 %r, %x, %y, 0xb0;", 0x80000012, 0), 0x1212ff12u);
  EXPECT_EQ(eval32("prmt.b32.b4e %r, %x, %y, 1;", 0x33221100, 0x77665544), 0x66770011u);
  EXPECT_EQ(eval32("lop3.b32 %r, %x, %y, %z, 0x96;", 0xff, 0x0f, 0x33), 0xff ^ 0x0f ^ 0x33u);
  EXPECT_EQ(eval32("lop3.b32 %r, %x, %y, %z, 0xe8;", 6, 5, 3), 7u);
  EXPECT_EQ(eval32("shf.l.wrap.b32 %r, %x, %y, 8;", 0xaabbccdd, 0x11223344), 0x223344aau);
  EXPECT_EQ(eval32("shf.r.clamp.b32 %r, %x, %y, 40;", 0xaabbccdd, 0x11223344), 0x11223344u);
  EXPECT_EQ(eval32("fns.b32 %r, %x, 0, 3;", 0b101101), 3u);
  EXPECT_EQ(eval32("cnot.b32 %r, %x;", 0), 1u);
}

TEST(Instructions, FloatRoundingAndSpecialValues) {
  const float a = 1.0f, b = 0x1p-30f;
  EXPECT_EQ(evalf("add.rn.f32 %r, %x, %y;", a, b), bits(1.0f));
  EXPECT_EQ(evalf("add.rp.f32 %r, %x, %y;", a, b), bits(std::nextafter(1.0f, 2.0f)));
  EXPECT_EQ(evalf("add.rm.f32 %r, %x, %y;", -a, -b), bits(std::nextafter(-1.0f, -2.0f)));
  EXPECT_EQ(evalf("sub.rz.f32 %r, %x, %y;", a, b), bits(std::nextafter(1.0f, 0.0f)));
  EXPECT_EQ(evalf("mul.f32 %r, %x, %y;", kInf, 0.0f), 0x7fffffffu);
  EXPECT_EQ(evalf("add.f32 %r, %x, %y;", -kNan, 1.0f), 0x7fffffffu);
  EXPECT_EQ(evalf("fma.rn.f32 %r, %x, %y, %z;", 1 + 0x1p-23f, 1 - 0x1p-23f, -1.0f),
            bits(-0x1p-46f));
  EXPECT_EQ(evalf("fma.rz.f32 %r, %x, %y, %z;", 3.0f, 1.0f / 3.0f, 0x1p-40f),
            bits(std::nextafter(1.0f, 2.0f)) - 1u);
  EXPECT_EQ(evalf("div.rn.f32 %r, %x, %y;", 1.0f, 3.0f), bits(1.0f / 3.0f));
  EXPECT_EQ(evalf("div.rz.f32 %r, %x, %y;", 2.0f, 3.0f), bits(2.0f / 3.0f) - 1);
  EXPECT_EQ(evalf("sqrt.rn.f32 %r, %x;", 2.0f), bits(std::sqrt(2.0f)));
  EXPECT_EQ(evalf("rcp.rn.f32 %r, %x;", 3.0f), bits(1.0f / 3.0f));
  EXPECT_EQ(evalf("mul.ftz.f32 %r, %x, %y;", 0x1p-100f, -0x1p-40f), 0x80000000u);
  EXPECT_EQ(evalf("add.ftz.f32 %r, %x, %y;", 0x1p-127f, 0x1p-127f), 0u);
  EXPECT_EQ(evalf("add.sat.f32 %r, %x, %y;", 0.75f, 0.75f), bits(1.0f));
  EXPECT_EQ(evalf("add.sat.f32 %r, %x, %y;", kNan, 0.75f), 0u);
  EXPECT_EQ(evalf("min.f32 %r, %x, %y;", kNan, 2.0f), bits(2.0f));
  EXPECT_EQ(evalf("min.f32 %r, %x, %y;", 0.0f, -0.0f), bits(-0.0f));
  EXPECT_EQ(evalf("max.NaN.f32 %r, %x, %y;", kNan, 2.0f), 0x7fffffffu);
  EXPECT_EQ(evalf("neg.f32 %r, %x;", 0.0f), bits(-0.0f));
  EXPECT_EQ(evalf("copysign.f32 %r, %x, %y;", -1.0f, 5.0f), bits(-5.0f));
  EXPECT_EQ(eval64("fma.rn.f64 %d, %a, %b, %c;", bits(1 + 0x1p-52), bits(1 - 0x1p-52), bits(-1.0)),
            bits(-0x1p-104));
  EXPECT_EQ(eval64("div.rp.f64 %d, %a, %b;", bits(1.0), bits(3.0)),
            bits(std::nextafter(1.0 / 3.0, 1.0)));
  EXPECT_EQ(evalf("testp.subnormal.f32 %p, %x; selp.b32 %r, 1, 0, %p;", 0x1p-130f), 1u);
  EXPECT_EQ(evalf("ex2.approx.f32 %r, %x;", 3.0f), bits(8.0f));
  EXPECT_EQ(evalf("lg2.approx.f32 %r, %x;", 8.0f), bits(3.0f));
}

TEST(Instructions, Comparisons) {
  const auto truth = [](const std::string& op, float a, float b) {
    return evalf("setp." + op + ".f32 %p, %x, %y; selp.b32 %r, 1, 0, %p;", a, b);
  };
  EXPECT_EQ(truth("lt", 1, 2), 1u);
  EXPECT_EQ(truth("ne", kNan, 1), 0u);
  EXPECT_EQ(truth("neu", kNan, 1), 1u);
  EXPECT_EQ(truth("geu", kNan, 1), 1u);
  EXPECT_EQ(truth("ge", kNan, 1), 0u);
  EXPECT_EQ(truth("nan", kNan, 1), 1u);
  EXPECT_EQ(truth("num", 1, 1), 1u);
  EXPECT_EQ(eval32("setp.lt.s32 %p, %x, %y; selp.u32 %r, 5, 6, %p;", 0xffffffff, 0), 5u);
  EXPECT_EQ(eval32("setp.lo.u32 %p, %x, %y; selp.u32 %r, 5, 6, %p;", 0xffffffff, 0), 6u);
  EXPECT_EQ(
      eval32("setp.eq.s32 %q, 1, 1; setp.gt.and.s32 %p|%s, %x, %y, !%q; selp.u32 %r, 1, 0, %s;", 3,
             2),
      0u);
  EXPECT_EQ(eval32("set.gt.u32.s32 %r, %x, %y;", 3, 2), 0xffffffffu);
  EXPECT_EQ(eval32("set.gt.f32.s32 %r, %x, %y;", 3, 2), bits(1.0f));
  EXPECT_EQ(eval32("slct.u32.s32 %r, 7, 8, %x;", 0x80000000), 8u);
}

TEST(Instructions, Conversions) {
  EXPECT_EQ(evalf("cvt.rni.s32.f32 %r, %x;", 2.5f), 2u);
  EXPECT_EQ(evalf("cvt.rzi.s32.f32 %r, %x;", -2.9f), 0xfffffffeu);
  EXPECT_EQ(evalf("cvt.rmi.s32.f32 %r, %x;", -2.1f), 0xfffffffdu);
  EXPECT_EQ(evalf("cvt.rpi.u32.f32 %r, %x;", 2.1f), 3u);
  EXPECT_EQ(evalf("cvt.rzi.s32.f32 %r, %x;", 1e20f), 0x7fffffffu);
  EXPECT_EQ(evalf("cvt.rzi.u32.f32 %r, %x;", -5.0f), 0u);
  EXPECT_EQ(evalf("cvt.rzi.s32.f32 %r, %x;", kNan), 0u);
  EXPECT_EQ(eval64("cvt.rzi.s64.f32 %d, %x;", bits(kNan)), 1ull << 63);
  EXPECT_EQ(eval32("cvt.rzi.s32.f64 %r, %a;", bits(std::nan(""))), 0x80000000u);
  EXPECT_EQ(eval32("cvt.rz.f32.u32 %r, %x;", 0xffffffff), bits(4294967040.0f));
  EXPECT_EQ(eval32("cvt.rn.f32.u64 %r, %a;", ~0ull), bits(18446744073709551616.0f));
  EXPECT_EQ(eval32("cvt.rp.f32.f64 %r, %a;", bits(1 + 0x1p-40)), bits(std::nextafter(1.0f, 2.0f)));
  EXPECT_EQ(eval32("cvt.s32.s8 %r, %hx;", 0x80), 0xffffff80u);
  EXPECT_EQ(eval32("cvt.sat.u8.s32 %r, %x;", 300), 255u);
  EXPECT_EQ(eval32("cvt.sat.s8.s32 %r, %x;", static_cast<uint32_t>(-300)) & 0xff, 0x80u);
  EXPECT_EQ(evalf("cvt.rni.f32.f32 %r, %x;", 3.5f), bits(4.0f));
  EXPECT_EQ(evalf("cvt.sat.f32.f32 %r, %x;", 3.5f), bits(1.0f));
  EXPECT_EQ(eval("cvt.rn.f16.f32 %h, %x;", bits(65520.0f)).h, 0x7c00u);
  EXPECT_EQ(eval("cvt.rz.f16.f32 %h, %x;", bits(65520.0f)).h, 0x7bffu);
  EXPECT_EQ(eval("cvt.rn.bf16.f32 %h, %x;", 0x3f808000).h, 0x3f80u);
  EXPECT_EQ(eval("cvt.rn.f16.f32 %h, %x;", bits(0x1p-25f)).h, 0u);
  EXPECT_EQ(eval("cvt.rn.f16.f32 %h, %x;", bits(0x1.8p-25f)).h, 1u);
  EXPECT_EQ(evalf("cvt.rn.f16x2.f32 %r, %x, %y;", 1.0f, 2.0f), 0x3c004000u);
  EXPECT_EQ(evalf("cvt.rna.tf32.f32 %r, %x;", 1.0f + 0x1p-11f), bits(1.0f + 0x1p-10f));
  EXPECT_EQ(evalf("cvt.rn.satfinite.e4m3x2.f32 %h, %x, %y; cvt.u32.u16 %r, %h;", 448.0f, 1.5f),
            0x7e3cu);
}

TEST(Instructions, HalfPairs) {
  EXPECT_EQ(eval32("add.f16x2 %r, %x, %y;", 0x3c004000, 0x3c003c00), 0x40004200u);
  EXPECT_EQ(eval32("fma.rn.bf16x2 %r, %x, %y, %z;", 0x3f803f80, 0x40004000, 0x3f803f80),
            0x40404040u);
  EXPECT_EQ(eval("fma.rn.relu.f16 %h, %hx, %hy, %hz;", 0xbc00, 0x3c00, 0).h, 0u);
  EXPECT_EQ(eval("max.f16 %h, %hx, %hy;", 0x7e00, 0x3c00).h, 0x3c00u);
  EXPECT_EQ(eval32("setp.lt.f16x2 %p|%q, %x, %y; selp.u32 %r, 1, 0, %p; selp.u32 %t0, 2, 0, %q; "
                   "add.u32 %r, %r, %t0;",
                   0x40003c00, 0x3c004000),
            1u);
}

TEST(Instructions, MovesPackAndUnpack) {
  EXPECT_EQ(eval64("mov.b64 %d, {%x, %y};", 1, 2), 0x200000001ull);
  EXPECT_EQ(eval32("mov.b32 {%th0, %th1}, %x; mov.b32 %r, {%th1, %th0};", 0x12345678), 0x56781234u);
  EXPECT_EQ(eval32("mov.b64 {_, %r}, %a;", 0x500000000ull), 5u);
  EXPECT_EQ(eval32("mov.u32 %r, %tid.x;"), 0u);
  EXPECT_EQ(eval32("mad.lo.u32 %r, %ntid.x, 5, %nctaid.y;"), 6u);
  EXPECT_EQ(eval32("{ .reg .b32 %x; mov.u32 %x, 9; mov.u32 %r, %x; }", 1), 9u);
}

TEST(Instructions, SharedLocalAndGenericMemory) {
  EXPECT_EQ(eval32("st.shared.v4.u8 [mem+4], {%x, %y, %z, 7}; ld.shared.u32 %r, [mem+4];", 1, 2, 3),
            0x07030201u);
  EXPECT_EQ(eval32("mov.u64 %t640, mem; cvta.shared.u64 %t641, %t640; st.u32 [%t641+8], %x; "
                   "ld.shared.u32 %r, [mem+8];",
                   77),
            77u);
  EXPECT_EQ(eval32("mov.u64 %t640, stack; cvta.local.u64 %t641, %t640; st.local.u32 [stack+4], %x; "
                   "ld.u32 %r, [%t641+4];",
                   55),
            55u);
  EXPECT_EQ(eval32("mov.u64 %t640, mem; cvta.shared.u64 %t641, %t640; isspacep.shared %p, %t641; "
                   "selp.u32 %r, 1, 0, %p;"),
            1u);
  EXPECT_EQ(eval64("st.shared.s8 [mem], %x; ld.shared.s8 %d, [mem];", 0x80), ~0ull << 7);
  EXPECT_EQ(eval32("st.shared.u32 [mem], 5; atom.shared.add.u32 %t0, [mem], 3; ld.shared.u32 %t1, "
                   "[mem]; mad.lo.u32 %r, %t0, 100, %t1;"),
            508u);
  EXPECT_EQ(
      eval32("st.shared.u32 [mem], 5; atom.shared.inc.u32 %t0, [mem], 5; ld.shared.u32 %r, [mem];"),
      0u);
  EXPECT_EQ(eval32("st.shared.f32 [mem], 0f3f800000; red.shared.add.f32 [mem], 0f40000000; "
                   "ld.shared.u32 %r, [mem];"),
            bits(3.0f));
  EXPECT_EQ(eval64("st.shared.u64 [mem], 5; atom.shared.cas.b64 %t640, [mem], 5, 9; ld.shared.u64 "
                   "%d, [mem];"),
            9u);
  EXPECT_EQ(eval32("st.shared.u32 [mem], %x; cp.async.ca.shared.global [mem+16], [%out], 16; "
                   "cp.async.wait_all; ld.shared.u32 %r, [mem];",
                   4),
            4u);
  EXPECT_EQ(eval32("mbarrier.init.shared.b64 [mem], 1; mbarrier.arrive.shared.b64 %t640, [mem]; "
                   "mbarrier.test_wait.shared.b64 %p, [mem], %t640; selp.u32 %r, 1, 0, %p;"),
            1u);
}

TEST(Instructions, CallsWithParametersAndPrototypes) {
  const std::string text = std::string(kHead) + R"(
.global .u64 pick = twice;
.func (.param .b32 r) twice(.param .b32 v) { .reg .b32 %a; ld.param.b32 %a, [v]; shl.b32 %a, %a, 1; st.param.b32 [r], %a; ret; }
.func (.reg .b32 r) plus(.reg .b32 v, .reg .b32 w) { add.u32 r, v, w; ret; }
.visible .entry k(.param .u64 out) {
.reg .b64 %o, %f; .reg .b32 %a, %b;
ld.param.u64 %o, [out]; mov.u32 %a, %tid.x;
{ .param .b32 p; .param .b32 q; st.param.b32 [p], %a; call.uni (q), twice, (p); ld.param.b32 %b, [q]; }
call (%b), plus, (%b, 100);
ld.global.u64 %f, [pick];
{ .param .b32 p; .param .b32 q; st.param.b32 [p], %b; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
  call (q), %f, (p), proto; ld.param.b32 %b, [q]; }
mul.wide.u32 %f, %a, 4; add.u64 %o, %o, %f; st.global.u32 [%o], %b; ret; })";
  Device device(text);
  ASSERT_NE(device.module, nullptr) << device.error.line << device.error.message;
  const uint64_t out = device.alloc(256);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {64, 1, 1}, out));
  const auto got = device.download<uint32_t>(out, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], 2 * (2 * i + 100));
}

TEST(Instructions, BranchTableWithDivergentIndex) {
  const std::string text = std::string(kHead) + R"(
.visible .entry k(.param .u64 out) {
.reg .b64 %o, %f; .reg .b32 %a, %b, %c;
ld.param.u64 %o, [out]; mov.u32 %a, %tid.x; rem.u32 %b, %a, 3;
ts: .branchtargets L0, L1, L2;
brx.idx %b, ts;
L0: mov.u32 %c, 10; bra E;
L1: mov.u32 %c, 20; bra E;
L2: mov.u32 %c, 30;
E: mul.wide.u32 %f, %a, 4; add.u64 %o, %o, %f; st.global.u32 [%o], %c; ret; })";
  Device device(text);
  ASSERT_NE(device.module, nullptr) << device.error.line << device.error.message;
  const uint64_t out = device.alloc(128);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {32, 1, 1}, out));
  const auto got = device.download<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], i % 3 * 10 + 10);
}

TEST(Instructions, MatrixMultiplyHalf) {
  const std::string text = std::string(kHead) + R"(
.visible .entry k(.param .u64 out) {
.reg .b64 %o, %f; .reg .b32 %a<4>, %b<2>, %t; .reg .f32 %c<4>;
ld.param.u64 %o, [out]; mov.u32 %t, %laneid;
mov.b32 %a0, 0x3c003c00; mov.b32 %a1, 0x40004000; mov.b32 %a2, 0x3c003c00; mov.b32 %a3, 0x40004000;
mov.b32 %b0, 0x3c003c00; mov.b32 %b1, 0x38003800;
mov.f32 %c0, 0f3f800000; mov.f32 %c1, 0f3f800000; mov.f32 %c2, 0f3f800000; mov.f32 %c3, 0f3f800000;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0,%c1,%c2,%c3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%c0,%c1,%c2,%c3};
mul.wide.u32 %f, %t, 16; add.u64 %o, %o, %f; st.global.v4.f32 [%o], {%c0,%c1,%c2,%c3}; ret; })";
  Device device(text);
  ASSERT_NE(device.module, nullptr) << device.error.line << device.error.message;
  const uint64_t out = device.alloc(512);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {32, 1, 1}, out));
  const auto got = device.download<float>(out, 128);
  // Rows 0-7 hold ones, rows 8-15 twos; B is 1 for k < 8 and 0.5 above: 8 + 4 = 12 per row of ones.
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(got[i * 4], 13.0f);
    EXPECT_EQ(got[i * 4 + 2], 25.0f);
  }
}

}  // namespace
}  // namespace tube::sim::ptx

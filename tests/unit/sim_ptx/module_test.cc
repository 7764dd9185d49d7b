// What a module tells about itself, linking, bad texts, faults of a launch, and images that hold
// PTX.
#include <atomic>

#include "tests/unit/sim_ptx/device.h"

namespace tube::sim::ptx {
namespace {

constexpr const char* kTextHead = ".version 8.0\n.target sm_90\n.address_size 64\n";

std::string kernel(const std::string& body) {
  return std::string(kTextHead) +
         ".visible .entry k(.param .u64 out) {\n.reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred "
         "%p<9>;\n" +
         body + "\nret; }";
}

void expect_error(const std::string& text, int line, const std::string& instruction,
                  const std::string& message) {
  const CompileResult result = compile(text);
  EXPECT_EQ(result.module, nullptr) << text;
  EXPECT_EQ(result.error.line, line) << result.error.message;
  EXPECT_EQ(result.error.instruction, instruction);
  EXPECT_NE(result.error.message.find(message), std::string::npos) << result.error.message;
}

TEST(Module, BadTextsNameLineAndStatement) {
  expect_error(kernel("frobnicate.u32 %r1, %r2;"), 6, "frobnicate.u32 %r1, %r2;",
               "unknown instruction 'frobnicate'");
  expect_error(kernel("add.frob.u32 %r1, %r2, %r3;"), 6, "add.frob.u32 %r1, %r2, %r3;",
               "unknown modifier '.frob'");
  expect_error(kernel("add.u32 %r1, %r2;"), 6, "add.u32 %r1, %r2;", "too few operands");
  expect_error(kernel("add.u64 %d1, %d2, %r3;"), 6, "add.u64 %d1, %d2, %r3;",
               "where .u64 is needed");
  expect_error(kernel("bra nowhere;"), 6, "bra nowhere;", "unknown label 'nowhere'");
  expect_error(kernel("mov.u32 %r99, 1;"), 6, "mov.u32 %r99, 1;", "expected a register");
  expect_error(kernel("mov.u32 %r1, %nonsense;"), 6, "mov.u32 %r1, %nonsense;",
               "unknown register '%nonsense'");
  expect_error(kernel("call missing;"), 6, "call missing;", "unknown function 'missing'");
  expect_error("not ptx at all", 1, "not ptx at all", "expected");
  expect_error("", 1, "", "not PTX");
  expect_error(std::string(kTextHead) + ".extern .func f;\n.entry k() { call f; ret; }", 5,
               "call f;", "nothing defines it");
  expect_error(std::string(kTextHead) + ".visible .entry k() {\n mov.u32 %r1, 1", 5,
               "mov.u32 %r1, 1", "expected");
}

TEST(Module, ReportsParametersSharedMemoryAndBounds) {
  const CompileResult result = compile(std::string(kTextHead) + R"(
.shared .align 8 .b8 unused[4096];
.visible .entry k(.param .u32 a, .param .u64 .ptr .global .align 16 b, .param .align 16 .b8 c[24], .param .u8 d)
.maxntid 64, 2, 1 .minnctapersm 2 {
.shared .align 4 .b8 s[100]; .local .b8 l[10]; .reg .b32 %r; mov.u32 %r, s; ret; }
.visible .entry fixed() .reqntid 8, 8, 2 { ret; })");
  ASSERT_NE(result.module, nullptr) << result.error.message;
  const Kernel& k = result.module->kernels()[0];
  ASSERT_EQ(k.params.size(), 4u);
  EXPECT_EQ(k.params[1].offset, 8u);
  EXPECT_EQ(k.params[2].offset, 16u);
  EXPECT_EQ(k.params[3].offset, 40u);
  EXPECT_EQ(k.param_bytes, 41u);
  EXPECT_EQ(k.static_shared_bytes, 100u);
  EXPECT_EQ(k.max_threads, 128u);
  EXPECT_EQ(k.local_bytes, 16u);
  EXPECT_EQ(result.module->kernels()[1].required_block, (std::array<uint32_t, 3>{8, 8, 2}));
  EXPECT_EQ(result.module->target_sm(), 90);
  EXPECT_EQ(result.module->isa_version(), 80);
}

TEST(Module, ImagesHoldConstantsAndAddresses) {
  Device device(std::string(kTextHead) + R"(
.visible .global .align 4 .u32 a[4] = {1, 0x20, -1};
.const .align 8 .u64 p[3] = {a, generic(a)+8, 5};
.global .align 8 .b8 mixed[16] = {1, 2, 0, 0, 0, 0, 0, 0, 0xFF(a), 0xFF00(a), 0xFF0000(a), 0xFF000000(a), 0xFF00000000(a), 0xFF0000000000(a), 0xFF000000000000(a), 0xFF00000000000000(a)};
.global .f32 f[2] = {1.5, 0f40000000};
.global .b8 text[6] = "hello";
)");
  ASSERT_NE(device.module, nullptr) << device.error.line << device.error.message;
  const uint64_t a = device.variable("a");
  EXPECT_EQ(device.download<uint32_t>(a, 4), (std::vector<uint32_t>{1, 0x20, 0xffffffff, 0}));
  EXPECT_EQ(device.download<uint64_t>(device.variable("p"), 3),
            (std::vector<uint64_t>{a, a + 8, 5}));
  EXPECT_EQ(device.download<uint64_t>(device.variable("mixed"), 2),
            (std::vector<uint64_t>{0x201, a}));
  EXPECT_EQ(device.download<float>(device.variable("f"), 2), (std::vector<float>{1.5f, 2.0f}));
  EXPECT_STREQ(device.download<char>(device.variable("text"), 6).data(), "hello");
}

TEST(Module, LinksSeveralTexts) {
  const std::string first = std::string(kTextHead) + R"(
.extern .func (.param .b32 r) answer(); .extern .global .u32 extra;
.visible .entry k(.param .u64 out) { .reg .b64 %o; .reg .b32 %a, %b; .param .b32 q;
ld.param.u64 %o, [out]; call (q), answer; ld.param.b32 %a, [q]; ld.global.u32 %b, [extra]; add.u32 %a, %a, %b;
st.global.u32 [%o], %a; ret; })";
  const std::string second = std::string(kTextHead) + R"(
.visible .global .u32 extra = 2;
.visible .func (.param .b32 r) answer() { st.param.b32 [r], 40; ret; })";
  EXPECT_EQ(compile(first).module, nullptr);
  Device device(std::vector<std::string_view>{first, second});
  ASSERT_NE(device.module, nullptr) << device.error.message;
  const uint64_t out = device.alloc(4);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {1, 1, 1}, out));
  EXPECT_EQ(device.download<uint32_t>(out, 1)[0], 42u);
}

TEST(Launch, FaultsSayWhatHappened) {
  const auto run = [](const std::string& body) {
    Device device(kernel("ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; " + body));
    EXPECT_NE(device.module, nullptr) << device.error.message;
    return device.run("k", {1, 1, 1}, {64, 1, 1}, device.alloc(64));
  };
  EXPECT_EQ(run("st.global.u32 [%d1+64], %r1;").kind, Fault::Kind::kIllegalAddress);
  EXPECT_EQ(run("st.global.u32 [%d1+2], %r1;").kind, Fault::Kind::kMisalignedAddress);
  EXPECT_EQ(run("trap;").kind, Fault::Kind::kTrap);
  EXPECT_EQ(run("call %d1, ();").kind, Fault::Kind::kInvalidPc);
  EXPECT_EQ(run("setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 0, 64;").kind,
            Fault::Kind::kBarrierDeadlock);
  EXPECT_EQ(run("st.shared.u32 [%d1], %r1;").kind, Fault::Kind::kIllegalAddress);
  const Fault fault = run("ld.global.u32 %r2, [%d1+4096];");
  EXPECT_EQ(fault.line, 6);
  EXPECT_NE(fault.address, 0u);
}

TEST(Launch, ThreadsThatExitedDoNotHoldBarriers) {
  Device device(
      kernel("ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 40; @%p1 exit; "
             "bar.sync 0; "
             "atom.global.add.u32 %r2, [%d1], 1; bar.warp.sync 0xffffffff;"));
  const uint64_t out = device.alloc(4);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {64, 1, 1}, out));
  EXPECT_EQ(device.download<uint32_t>(out, 1)[0], 40u);
}

TEST(Launch, WarpBarriersInDifferentBranchesMeet) {
  Device device(
      kernel(R"(ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 bra L;
bar.warp.sync 0xffffffff; bra E;
L: bar.warp.sync 0xffffffff;
E: red.global.add.u32 [%d1], 1;)"));
  const uint64_t out = device.alloc(4);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {32, 1, 1}, out));
  EXPECT_EQ(device.download<uint32_t>(out, 1)[0], 32u);
}

TEST(Launch, WarpsWaitForEachOtherThroughMemory) {
  Device device(kernel(
      R"(.shared .u32 flag; ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra W;
L: ld.volatile.shared.u32 %r2, [flag]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;
red.global.add.u32 [%d1], %r2; ret;
W: st.volatile.shared.u32 [flag], 1;)"));
  const uint64_t out = device.alloc(4);
  EXPECT_RUNS(device.run("k", {1, 1, 1}, {64, 1, 1}, out));
  EXPECT_EQ(device.download<uint32_t>(out, 1)[0], 32u);
}

TEST(Launch, CancelEndsAnEndlessKernel) {
  Device device(kernel("L: bra L;"));
  const std::atomic<bool> cancel{true};
  device.config.cancel = &cancel;
  EXPECT_EQ(device.run("k", {1, 1, 1}, {32, 1, 1}, uint64_t{0}).kind, Fault::Kind::kCancelled);
}

TEST(Launch, ClusterBlocksShareMemoryAndMeet) {
  Device device(kernel(R"(.shared .u32 word; ld.param.u64 %d1, [out]; mov.u32 %r1, %cluster_ctarank;
add.u32 %r2, %r1, 100; st.shared.u32 [word], %r2;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 %r3, %r1, 1; mov.u32 %r4, word; mapa.shared::cluster.u32 %r5, %r4, %r3; ld.shared::cluster.u32 %r6, [%r5];
mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r6;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)"));
  ASSERT_NE(device.module, nullptr) << device.error.message;
  const uint64_t out = device.alloc(8);
  device.config.cluster = {2, 1, 1};
  EXPECT_RUNS(device.run("k", {2, 1, 1}, {32, 1, 1}, out));
  EXPECT_EQ(device.download<uint32_t>(out, 2), (std::vector<uint32_t>{101, 100}));
}

class Fatbin : public testing::TestWithParam<const char*> {};

TEST_P(Fatbin, PtxIsFoundAndCompiles) {
  const std::string image =
      read_file(std::string(KERNELS_DIR) + "/kernels_" + GetParam() + ".fatbin");
  std::string why;
  const std::string text = find_ptx(image.data(), image.size(), 90, &why);
  ASSERT_FALSE(text.empty()) << why;
  EXPECT_NE(text.find(".target sm_80"), std::string::npos);
  const CompileResult result = compile(text);
  EXPECT_NE(result.module, nullptr) << result.error.line << result.error.message;
  EXPECT_EQ(find_ptx(image.data(), 0, 90, &why), text) << "only a pointer";
  const struct {
    uint32_t magic, version;
    const void* data;
    const void* extra;
  } wrapper{0x466243B1, 2, image.data(), nullptr};
  EXPECT_EQ(find_ptx(&wrapper, 0, 90, &why), text);
  EXPECT_TRUE(find_ptx(image.data(), image.size(), 70, &why).empty());
  EXPECT_NE(why.find("sm_70"), std::string::npos);
}

TEST_P(Fatbin, DamagedImagesAreRefused) {
  const std::string image =
      read_file(std::string(KERNELS_DIR) + "/kernels_" + GetParam() + ".fatbin");
  std::string why;
  for (size_t size = 1; size < 200 && size < image.size(); ++size) {
    const std::string cut = image.substr(0, size);
    EXPECT_TRUE(find_ptx(cut.data(), cut.size(), 90, &why).empty());
    EXPECT_FALSE(why.empty());
  }
  for (size_t at = 4; at < 96; ++at) {
    std::string bad = image;
    bad[at] = static_cast<char>(~bad[at]);
    (void)find_ptx(bad.data(), bad.size(), 90, &why);
  }
}

INSTANTIATE_TEST_SUITE_P(Nvcc, Fatbin, testing::Values("none", "speed", "size"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tube::sim::ptx

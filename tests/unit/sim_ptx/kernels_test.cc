// nvcc's output at several targets and debug levels must compile and compute what the host
// computes.
//
// KERNELS_DIR holds kernels_<variant>.ptx, made at build time from kernels.cu.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/unit/sim_ptx/device.h"

namespace tube::sim::ptx {
namespace {

using Dim = std::array<uint32_t, 3>;

class Kernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    text_ = read_file(std::string(KERNELS_DIR) + "/kernels_" + GetParam() + ".ptx");
    device_ = std::make_unique<Device>(text_);
    ASSERT_NE(device_->module, nullptr)
        << "line " << device_->error.line << ": " << device_->error.message << ": "
        << device_->error.instruction;
  }
  std::string text_;
  std::unique_ptr<Device> device_;
};

TEST_P(Kernels, AddsVectors) {
  const int n = 1000;
  std::vector<float> a(n), b(n);
  for (int i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i) * 0.37f;
    b[i] = 1000.0f / static_cast<float>(i + 1);
  }
  const uint64_t da = device_->upload(a), db = device_->upload(b), dc = device_->alloc(n * 4);
  EXPECT_RUNS(device_->run("vector_add", Dim{8, 1, 1}, Dim{128, 1, 1}, da, db, dc, n));
  const auto c = device_->download<float>(dc, n);
  for (int i = 0; i < n; ++i) EXPECT_EQ(c[i], a[i] + b[i]);
}

TEST_P(Kernels, ReducesWithShufflesAndSharedMemory) {
  const int n = 5000;
  std::vector<int> in(n);
  std::iota(in.begin(), in.end(), -700);
  const uint64_t din = device_->upload(in), out = device_->alloc(4);
  EXPECT_RUNS(device_->run("reduce_sum", Dim{3, 1, 1}, Dim{256, 1, 1}, din, out, n));
  EXPECT_EQ(device_->download<int>(out, 1)[0], std::accumulate(in.begin(), in.end(), 0));
}

TEST_P(Kernels, MultipliesTiles) {
  const int n = 48;
  std::vector<float> a(n * n), b(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(i % 17) - 3.5f;
    b[i] = static_cast<float>(i % 23) * 0.25f;
  }
  const uint64_t da = device_->upload(a), db = device_->upload(b), dc = device_->alloc(n * n * 4);
  EXPECT_RUNS(device_->run("matmul_tiled", Dim{3, 3, 1}, Dim{16, 16, 1}, da, db, dc, n));
  const auto c = device_->download<float>(dc, n * n);
  for (int y = 0; y < n; ++y)
    for (int x = 0; x < n; ++x) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum = std::fma(a[y * n + k], b[k * n + x], sum);
      ASSERT_EQ(c[y * n + x], sum);
    }
}

TEST_P(Kernels, CountsAHistogramInDynamicSharedMemory) {
  std::vector<unsigned char> data(4000);
  std::vector<unsigned> expected(256);
  for (size_t i = 0; i < data.size(); ++i)
    ++expected[data[i] = static_cast<unsigned char>(i * i / 7)];
  const uint64_t din = device_->upload(data), bins = device_->alloc(1024);
  device_->config.dynamic_shared_bytes = 1024;
  EXPECT_RUNS(device_->run("histogram", Dim{4, 1, 1}, Dim{128, 1, 1}, din, bins,
                           static_cast<int>(data.size())));
  EXPECT_EQ(device_->download<unsigned>(bins, 256), expected);
}

TEST_P(Kernels, ConvolvesWithConstantMemory) {
  const int width = 37, height = 21;
  std::vector<float> in(width * height), weights(25);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i * 7 % 101) / 9.0f;
  for (size_t i = 0; i < 25; ++i) weights[i] = 0.01f * static_cast<float>(i) - 0.1f;
  std::memcpy(reinterpret_cast<void*>(device_->variable("weights")), weights.data(), 100);
  const uint64_t din = device_->upload(in), dout = device_->alloc(in.size() * 4);
  EXPECT_RUNS(device_->run("convolve", Dim{3, 3, 1}, Dim{16, 8, 1}, din, dout, width, height));
  const auto out = device_->download<float>(dout, in.size());
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      float sum = 0;
      for (int dy = -2; dy <= 2; ++dy)
        for (int dx = -2; dx <= 2; ++dx)
          sum = std::fma(
              in[std::clamp(y + dy, 0, height - 1) * width + std::clamp(x + dx, 0, width - 1)],
              weights[(dy + 2) * 5 + dx + 2], sum);
      ASSERT_EQ(out[y * width + x], sum) << x << "," << y;
    }
}

TEST_P(Kernels, CooperativeGroupsTilesAndCoalescedThreads) {
  std::vector<int> in(64);
  std::iota(in.begin(), in.end(), 1);
  const uint64_t din = device_->upload(in), dout = device_->alloc(66 * 4);
  EXPECT_RUNS(device_->run("groups", Dim{1, 1, 1}, Dim{64, 1, 1}, din, dout));
  const auto out = device_->download<int>(dout, 66);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(out[i], std::accumulate(in.begin() + i * 8, in.begin() + i * 8 + 8, 0));
  EXPECT_EQ(out[64], 11);
  EXPECT_EQ(out[65], 11);  // 33, 36, ... 63
}

TEST_P(Kernels, GridBarrierOfACooperativeLaunch) {
  const uint64_t data = device_->alloc(4), out = device_->alloc(4 * 160);
  device_->config.cooperative = true;
  EXPECT_RUNS(device_->run("grid_barrier", Dim{5, 1, 1}, Dim{32, 1, 1}, data, out));
  EXPECT_EQ(device_->download<int>(out, 160), std::vector<int>(160, 160));
}

TEST_P(Kernels, HalfArithmetic) {
  const std::vector<float> in{0.1f, 1.5f, -2.25f, 1000.0f, 60000.0f, 1e-6f, 3.14159f, -0.0f};
  const int n = static_cast<int>(in.size());
  const uint64_t din = device_->upload(in), dout = device_->alloc(n * 16);
  EXPECT_RUNS(device_->run("half_math", Dim{1, 1, 1}, Dim{32, 1, 1}, din, dout, n));
  const auto out = device_->download<float>(dout, n * 4);
  // The nearest half, by scaling its last bit to one and rounding there.
  const auto half = [](float v) {
    if (v == 0 || !std::isfinite(v)) return v;
    const int last = std::max(std::ilogb(v), -14) - 10;
    const float rounded = std::ldexp(std::nearbyint(std::ldexp(v, -last)), last);
    return std::fabs(rounded) >= 65520.0f ? std::copysign(INFINITY, v) : rounded;
  };
  for (int i = 0; i < n; ++i) {
    const float a = half(in[i]), b = half(in[(i + 1) % n]);
    EXPECT_EQ(out[i * 4], half(a + b)) << i;
    EXPECT_EQ(out[i * 4 + 1], half(a * b)) << i;
    const auto fused = [&](float x) {
      return half(static_cast<float>(std::fma(double{x}, double{x}, 0.5)));
    };
    EXPECT_EQ(out[i * 4 + 2], fused(a) + fused(b)) << i;
  }
}

TEST_P(Kernels, DoubleFunctions) {
  std::vector<double> in;
  for (int i = 1; i <= 32; ++i) in.push_back(0.137 * i * i);
  const uint64_t din = device_->upload(in), dout = device_->alloc(32 * 48);
  EXPECT_RUNS(device_->run("double_math", Dim{1, 1, 1}, Dim{32, 1, 1}, din, dout, 32));
  const auto out = device_->download<double>(dout, 32 * 6);
  const auto near = [](double a, double b) {
    return std::fabs(a - b) <= 4e-15 * (std::fabs(b) + 1e-3);
  };
  for (int i = 0; i < 32; ++i) {
    const double x = in[i];
    EXPECT_EQ(out[i * 6], std::sqrt(x));
    EXPECT_EQ(out[i * 6 + 1], 1.0 / x);
    EXPECT_PRED2(near, out[i * 6 + 2], std::sin(x) + std::cos(x));
    EXPECT_PRED2(near, out[i * 6 + 3], std::exp(-x));
    EXPECT_PRED2(near, out[i * 6 + 4], std::log(x));
    EXPECT_PRED2(near, out[i * 6 + 5], std::pow(x, 1.5));
  }
}

TEST_P(Kernels, FloatFunctions) {
  std::vector<float> in;
  for (int i = 1; i <= 32; ++i) in.push_back(0.0713f * static_cast<float>(i * i));
  const uint64_t din = device_->upload(in), dout = device_->alloc(32 * 32);
  EXPECT_RUNS(device_->run("float_math", Dim{1, 1, 1}, Dim{32, 1, 1}, din, dout, 32));
  const auto out = device_->download<float>(dout, 32 * 8);
  const auto near = [](float a, float b) {
    return std::fabs(a - b) <= 1e-6f * (std::fabs(b) + 0.1f);
  };
  for (int i = 0; i < 32; ++i) {
    const float x = in[i];
    EXPECT_EQ(out[i * 8], std::sqrt(x));
    EXPECT_EQ(out[i * 8 + 1], 1.0f / x);
    EXPECT_PRED2(near, out[i * 8 + 2], std::sin(x));
    EXPECT_PRED2(near, out[i * 8 + 3], std::exp(-x));
    EXPECT_PRED2(near, out[i * 8 + 4], std::log(x));
    EXPECT_PRED2(near, out[i * 8 + 5], std::pow(x, 1.5f));
    EXPECT_PRED2(near, out[i * 8 + 6], std::tanh(x));
    EXPECT_PRED2(near, out[i * 8 + 7], std::fmod(x, 0.7f) + std::rint(x * 3.3f) + std::cbrt(x));
  }
}

TEST_P(Kernels, Printf) {
  EXPECT_RUNS(device_->run("say", Dim{1, 1, 1}, Dim{32, 1, 1}, 2, 3.14159, uint64_t{0}));
  EXPECT_EQ(device_->printed,
            "thread 0 of 32:  3.14 text q 1099511627776 %\nthread 1 of 32:  3.14 text q "
            "1099511627776 %\n");
}

TEST_P(Kernels, SwitchWithDivergentTargets) {
  std::vector<int> in(32);
  for (int i = 0; i < 32; ++i) in[i] = i * 5 % 10;
  const uint64_t din = device_->upload(in), dout = device_->alloc(128);
  EXPECT_RUNS(device_->run("classify", Dim{1, 1, 1}, Dim{32, 1, 1}, din, dout));
  const auto out = device_->download<int>(dout, 32);
  for (int i = 0; i < 32; ++i) {
    const int next = in[(i + 1) % 32];
    const int expected[] = {17, next * 3, -5, i, 99, 1 << (i & 7), in[i] ^ 0x55, 1000, -1, -1};
    EXPECT_EQ(out[i], expected[in[i]]) << i;
  }
}

TEST_P(Kernels, RecursionOfDifferentDepthInEachLane) {
  const uint64_t out = device_->alloc(128);
  EXPECT_RUNS(device_->run("recurse", Dim{1, 1, 1}, Dim{32, 1, 1}, out));
  const int fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  const auto got = device_->download<int>(out, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[i], fib[i % 12]);
}

TEST_P(Kernels, VirtualFunctionsNewAndDelete) {
  const uint64_t out = device_->alloc(160);
  EXPECT_RUNS(device_->run("virtual_calls", Dim{1, 1, 1}, Dim{40, 1, 1}, out));
  const auto got = device_->download<float>(out, 40);
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(got[i], static_cast<float>(i % 2 == 0 ? i * i : 3 * i * i));
  EXPECT_EQ(device_->frees, 40);
}

TEST_P(Kernels, LocalArraysWithDynamicIndex) {
  const std::vector<int> in{5, -3, 9, 0, 12, 7, -8, 1, 1, 4};
  const int n = static_cast<int>(in.size());
  const uint64_t din = device_->upload(in), dout = device_->alloc(32 * n * 4);
  EXPECT_RUNS(device_->run("local_array", Dim{1, 1, 1}, Dim{32, 1, 1}, din, dout, n));
  const auto out = device_->download<int>(dout, 32 * n);
  for (int t = 0; t < 32; ++t) {
    std::vector<int> sorted = in;
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < n; ++i) ASSERT_EQ(out[t * n + i], sorted[i] * (t + 1));
  }
}

TEST_P(Kernels, FunctionPointersInATable) {
  const uint64_t out = device_->alloc(128);
  EXPECT_RUNS(device_->run("function_pointers", Dim{1, 1, 1}, Dim{32, 1, 1}, out));
  const auto got = device_->download<int>(out, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[i], i % 3 == 0 ? i + 1 : i % 3 == 1 ? i * 2 : -i);
}

TEST_P(Kernels, SpinLockAmongLanesOfOneWarp) {
  const uint64_t counter = device_->alloc(4);
  EXPECT_RUNS(device_->run("spin_lock", Dim{3, 1, 1}, Dim{96, 1, 1}, counter));
  EXPECT_EQ(device_->download<int>(counter, 1)[0], 288);
}

TEST_P(Kernels, VotesMatchesAndMaskedShuffles) {
  const uint64_t out = device_->alloc(32 * 20);
  EXPECT_RUNS(device_->run("votes", Dim{1, 1, 1}, Dim{32, 1, 1}, out));
  const auto got = device_->download<unsigned>(out, 160);
  unsigned thirds = 0;
  for (int i = 0; i < 32; i += 3) thirds |= 1u << i;
  for (unsigned i = 0; i < 32; ++i) {
    EXPECT_EQ(got[i * 5], thirds);
    unsigned same = 0;
    for (unsigned k = 0; k < 32; ++k)
      if (k / 5 == i / 5) same |= 1u << k;
    EXPECT_EQ(got[i * 5 + 1], same);
    EXPECT_EQ(got[i * 5 + 2], 2u);
    EXPECT_EQ(got[i * 5 + 3], 16u);
    EXPECT_EQ(got[i * 5 + 4], i < 16 ? (i + 1) % 16 * 7 : 31);
  }
}

TEST_P(Kernels, WideIntegers) {
  const std::vector<unsigned long long> in{
      1, ~0ull, 0x123456789abcdef0ull, 1ull << 63, 77, 0xffffffffull, 1ull << 32, 3};
  const size_t n = in.size();
  const uint64_t din = device_->upload(in), dout = device_->alloc(n * 64);
  EXPECT_RUNS(
      device_->run("wide_integers", Dim{1, 1, 1}, Dim{32, 1, 1}, din, dout, static_cast<int>(n)));
  const auto out = device_->download<unsigned long long>(dout, n * 8);
  for (size_t i = 0; i < n; ++i) {
    const unsigned long long a = in[i], b = in[(i + 1) % n] | 1;
    EXPECT_EQ(out[i * 8], a * b);
    EXPECT_EQ(out[i * 8 + 1],
              static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64));
    EXPECT_EQ(out[i * 8 + 2], a / b);
    EXPECT_EQ(out[i * 8 + 3], a % b);
    if (!(a == 1ull << 63 && b == ~0ull)) {
      EXPECT_EQ(out[i * 8 + 4], static_cast<unsigned long long>(static_cast<long long>(a) /
                                                                static_cast<long long>(b)));
    }
    EXPECT_EQ(out[i * 8 + 5],
              static_cast<unsigned long long>(__builtin_popcountll(a) + __builtin_clzll(a) * 100 +
                                              __builtin_ffsll(static_cast<long long>(a)) * 10000));
    EXPECT_EQ(out[i * 8 + 7], (a << (b & 63)) ^ (a >> (i & 63)));
  }
}

TEST_P(Kernels, StructArgumentWithDynamicIndex) {
  struct alignas(16) Big {
    int values[20];
    float tail[4];
  } big{};
  for (int i = 0; i < 20; ++i) big.values[i] = i * i;
  big.tail[3] = 0.5f;
  const uint64_t out = device_->alloc(128);
  EXPECT_RUNS(device_->run("struct_argument", Dim{1, 1, 1}, Dim{32, 1, 1}, big, 3, out));
  const auto got = device_->download<float>(out, 32);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(got[i], static_cast<float>((i + 3) % 20 * ((i + 3) % 20)) + 0.5f);
}

TEST_P(Kernels, AssertNamesBlockAndThread) {
  const uint64_t p = device_->alloc(4);
  const Fault fault = device_->run("fail_assert", Dim{1, 1, 1}, Dim{32, 1, 1}, p);
  EXPECT_EQ(fault.kind, Fault::Kind::kAssert);
  EXPECT_EQ(
      fault.message,
      "kernels.cu:7: fail_assert: block: [0,0,0], thread: [3,0,0] Assertion `p[0] == 0` failed.");
}

TEST_P(Kernels, IllegalAddressStopsTheLaunch) {
  const Fault fault = device_->run("vector_add", Dim{1, 1, 1}, Dim{32, 1, 1}, uint64_t{64},
                                   uint64_t{64}, uint64_t{64}, 32);
  EXPECT_EQ(fault.kind, Fault::Kind::kIllegalAddress);
  EXPECT_GT(fault.line, 0);
}

INSTANTIATE_TEST_SUITE_P(Nvcc, Kernels,
                         testing::Values("sm75", "sm80", "sm90", "sm90_debug", "sm80_O0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tube::sim::ptx

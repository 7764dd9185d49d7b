// Which kernels may call a function of the device runtime, on cubins that nvcc made of calls.cu,
// and on damaged ones.
#include "image/kernel_calls.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/unit/image/cubins.h"

namespace {

using tube::image::Bytes;
using tube::image::load_cubin;
using tube::image::view;

using tube::image::kernel_calls;
using Calls = tube::image::CallsByFunction;
constexpr const char* kNames[] = {"vprintf", "__assertfail"};
constexpr uint32_t kPrints = 1, kAsserts = 2;

class KernelCalls : public ::testing::TestWithParam<const char*> {};

TEST_P(KernelCalls, AreFoundThroughFunctionsAndPointers) {
  Calls calls;
  ASSERT_TRUE(kernel_calls(view(load_cubin("calls", GetParam())), kNames, &calls));
  ASSERT_TRUE(calls.contains("does_neither"));
  EXPECT_EQ(calls["does_neither"], 0u);
  EXPECT_EQ(calls["prints"], kPrints);
  EXPECT_EQ(calls["prints_below"], kPrints);
  EXPECT_EQ(calls["asserts"], kAsserts);
  EXPECT_EQ(calls["does_both"], kPrints | kAsserts);
  EXPECT_NE(calls["prints_by_pointer"] & kPrints, 0u);
}

TEST_P(KernelCalls, OfADamagedImageDoNoHarm) {
  const std::vector<char> image = load_cubin("calls", GetParam());
  ASSERT_FALSE(image.empty());
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<char> damaged(
        image.begin(),
        image.end() - static_cast<std::ptrdiff_t>(i % 3 == 0 ? random() % image.size() : 0));
    for (int j = 0; j < 20 && !damaged.empty(); ++j)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    Calls calls;
    (void)kernel_calls(view(damaged), kNames, &calls);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, KernelCalls,
                         ::testing::Values("whole", "debug", "older", "linked"));

TEST(KernelCallsOf, OtherBytesAreUnknown) {
  Calls calls;
  EXPECT_FALSE(kernel_calls({}, kNames, &calls));
  const std::vector<char> text{'v', 'p', 'r', 'i', 'n', 't', 'f'};
  EXPECT_FALSE(kernel_calls(view(text), kNames, &calls));
  EXPECT_TRUE(calls.empty());
}

}  // namespace

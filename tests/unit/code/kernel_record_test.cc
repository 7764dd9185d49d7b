// Which kernels are loaded with an image: those of its last loads, whatever a file says.
#include "proxy/code/kernel_record.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policies/early_kernels.h"

namespace tube::proxy {
namespace {

using Names = std::vector<std::string>;
constexpr Hash128 kImage{1, 2}, kOther{3, 4};

TEST(KernelRecord, KernelsOfEarlierLoadsTheLastWantedFirst) {
  KernelRecord record("");
  EXPECT_EQ(record.begin_load(kImage), Names{});
  record.wanted(kImage, "a");
  record.wanted(kImage, "b");
  EXPECT_EQ(record.begin_load(kOther), Names{});
  EXPECT_EQ(record.begin_load(kImage), (Names{"a", "b"}));
  record.wanted(kImage, "b");
  EXPECT_EQ(record.begin_load(kImage), (Names{"b", "a"}));
}

TEST(KernelRecord, WhatNobodyWantsAnyMoreIsForgotten) {
  KernelRecord record("");
  record.wanted(kImage, "kept");
  record.wanted(kImage, "old");
  for (uint64_t load = 0; load < policies::kForgetLoads; ++load) {
    EXPECT_EQ(record.begin_load(kImage).size(), 2u);
    record.wanted(kImage, "kept");
  }
  EXPECT_EQ(record.begin_load(kImage), Names{"kept"});
}

TEST(KernelRecord, TheFileSaysTheSame) {
  KernelRecord record("");
  record.wanted(kImage, "a b");
  record.wanted(kOther, "c");
  (void)record.begin_load(kImage);
  record.wanted(kImage, "a b");
  record.wanted(kImage, "no\nname of a line");
  KernelRecord next("");
  ASSERT_TRUE(next.take(record.text()));
  EXPECT_EQ(next.begin_load(kImage), Names{"a b"});
  EXPECT_EQ(next.begin_load(kOther), Names{"c"});
}

TEST(KernelRecord, AFileOfSomebodyElseCostsNothing) {
  const std::string head = KernelRecord("").text();
  EXPECT_FALSE(KernelRecord("").take(""));
  EXPECT_FALSE(KernelRecord("").take("tube kernels 2\nimage 1 2 1\n1 a\n"));
  for (const char* lines : {"1 a\n", "image\n1 a\n", "image x y z\n1 a\n", "image 2 1 1\nx a\n",
                            "image 2 1 1\n1 \n", "image 2 1 1\n1 a", "image 2 1 0\n\n"}) {
    KernelRecord record("");
    EXPECT_TRUE(record.take(head + lines)) << lines;
    EXPECT_EQ(record.begin_load(kImage), Names{}) << lines;
  }
  KernelRecord record("");
  EXPECT_TRUE(record.take(head + "image 2 1 5\nffffffffffffffff later\n"));
  EXPECT_EQ(record.begin_load(kImage), Names{"later"}) << "no load has been later than the fifth";
}

TEST(KernelRecord, HasItsBounds) {
  KernelRecord record("");
  for (size_t i = 0; i < 2 * KernelRecord::kMostKernels; ++i)
    record.wanted(kImage, "kernel" + std::to_string(i));
  EXPECT_EQ(record.begin_load(kImage).size(), KernelRecord::kMostKernels);
  const std::string long_name(KernelRecord::kMostNameBytes, 'x');
  for (uint64_t i = 0; i < 2 * KernelRecord::kMostImages; ++i) record.wanted({i, 7}, long_name);
  EXPECT_LE(record.text().size(), KernelRecord::kMostBytes);
  record.wanted(kOther, long_name + "x");
  EXPECT_EQ(record.begin_load(kOther), Names{});
}

}  // namespace
}  // namespace tube::proxy

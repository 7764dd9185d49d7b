// Sizes as people write them.
#include "base/byte_size.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube {
namespace {

TEST(ByteSize, ReadsBytesAndPowersOf1024) {
  EXPECT_EQ(*parse_byte_size("1"), 1u);
  EXPECT_EQ(*parse_byte_size("1048576"), 1048576u);
  EXPECT_EQ(*parse_byte_size("3K"), 3072u);
  EXPECT_EQ(*parse_byte_size("512M"), 512u << 20);
  EXPECT_EQ(*parse_byte_size("4G"), 4 * kGiB);
  EXPECT_EQ(*parse_byte_size("4g"), 4 * kGiB);
  EXPECT_EQ(*parse_byte_size("2T"), 2048 * kGiB);
  EXPECT_EQ(*parse_byte_size("16777215T"), 16777215ull << 40);
}

TEST(ByteSize, SaysWhatIsNoSize) {
  for (const char* wrong : {"", "G", "4GB", "4GiB", "4 G", " 4", "4 ", "-1", "+1", "1.5G", "0x10",
                            "4,0", "none", "1K1"}) {
    const Result<uint64_t> size = parse_byte_size(wrong);
    ASSERT_FALSE(size.ok()) << wrong;
    EXPECT_NE(size.error().message.find("e.g. 4G"), std::string::npos) << size.error().message;
  }
  for (const char* large : {"16777216T", "18446744073709551616", "99999999999999999999G"})
    EXPECT_NE(parse_byte_size(large).error().message.find("too large"), std::string::npos) << large;
  EXPECT_FALSE(parse_byte_size("18446744073709551615").ok()) << "it would be no limit at all";
  for (const char* nothing : {"0", "00", "0G"})
    EXPECT_NE(parse_byte_size(nothing).error().message.find("is 0"), std::string::npos) << nothing;
}

TEST(ByteSize, LimitsMayBeNoneAndOneForEachGpu) {
  EXPECT_EQ(*parse_byte_limit("none"), UINT64_MAX);
  EXPECT_EQ(*parse_byte_limit("1G"), kGiB);
  EXPECT_FALSE(parse_byte_limit("None").ok());
  EXPECT_EQ(*parse_byte_limits("1G"), std::vector<uint64_t>{kGiB});
  EXPECT_EQ(*parse_byte_limits("1G,none,2G"), (std::vector<uint64_t>{kGiB, UINT64_MAX, 2 * kGiB}));
  for (const char* wrong : {"", ",", "1G,", ",1G", "1G,,2G", "1G;2G"})
    EXPECT_FALSE(parse_byte_limits(wrong).ok()) << wrong;
  const std::vector<uint64_t> limits = {kGiB, UINT64_MAX, 5};
  EXPECT_EQ(*parse_byte_limits(byte_limits_text(limits)), limits);
}

}  // namespace
}  // namespace tube

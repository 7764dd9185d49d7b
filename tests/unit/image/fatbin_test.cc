// Fatbins in which whoever walks the entries by their sizes stays for good.
#include "image/fatbin.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace tube::image {
namespace {

struct Sizes {
  uint16_t kind = 0, version = 0;
  uint32_t header = 64;
  uint64_t payload = 0;
};

std::string fatbin(std::initializer_list<std::pair<uint64_t, Sizes>> entries) {
  std::string bytes(1024, '\0');
  const FatbinHeader head{kFatbinMagic, 1, sizeof head, 1024 - sizeof head};
  std::memcpy(bytes.data(), &head, sizeof head);
  for (const auto& [at, sizes] : entries)
    std::memcpy(bytes.data() + sizeof head + at, &sizes, sizeof sizes);
  return bytes;
}
bool endless(const std::string& bytes) {
  return is_endless(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
}

TEST(EndlessFatbin, AnEntryWithoutSize) {
  EXPECT_TRUE(endless(fatbin({})));
  EXPECT_TRUE(endless(fatbin({{0, {.payload = 64}}}))) << "the one behind it";
}

TEST(EndlessFatbin, AnEntryThatLeadsBack) {
  EXPECT_TRUE(endless(fatbin({{0, {.payload = 0 - uint64_t{64}}}})));
  EXPECT_TRUE(endless(fatbin({{0, {}}, {64, {.payload = 0 - uint64_t{128}}}})));
}

TEST(EndlessFatbin, WhatComesToAnEnd) {
  EXPECT_FALSE(endless(fatbin({{0, {.payload = 1024 - 16 - 64}}})));
  EXPECT_FALSE(endless(fatbin({{0, {.payload = 1 << 20}}}))) << "beyond the end";
  EXPECT_FALSE(endless(fatbin({{0, {.header = 1024, .payload = 1}}})));
  EXPECT_FALSE(endless("no fatbin"));
  EXPECT_FALSE(endless(fatbin({}).substr(0, 20))) << "cut short";
}

}  // namespace
}  // namespace tube::image

// The parts of tubectl that stand alone: tables and figures, reading ELF files, finding the real
// driver.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "tools/tubectl/elf_file.h"
#include "tools/tubectl/format.h"
#include "tools/tubectl/layout.h"

namespace tube::ctl {
namespace {

TEST(Format, SizesAndAges) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(uint64_t{24} << 30), "24.0 GiB");
  EXPECT_EQ(human_bytes(~uint64_t{0}), "16.0 EiB");
  EXPECT_EQ(human_age(59), "59s");
  EXPECT_EQ(human_age(200), "3m20s");
  EXPECT_EQ(human_age(90061), "1d01h");
}

TEST(Format, ColumnsAlign) {
  Table table({"NAME", "N"}, "lr");
  table.add({"a", "100"});
  EXPECT_EQ(table.str(), "NAME    N\na     100\n");
}

TEST(ElfFile, OwnExecutable) {
  Result<ElfFile> elf = read_elf("/proc/self/exe");
  ASSERT_TRUE(elf.ok());
  EXPECT_TRUE(elf->has_interpreter);
  EXPECT_FALSE(elf->needed.empty());
}

std::string write_file(const char* name, const std::string& content) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(ElfFile, WhatIsNotElfIsRefused) {
  EXPECT_FALSE(read_elf("/no/such/file").ok());
  EXPECT_FALSE(read_elf(write_file("text", std::string(200, 'x'))).ok());
  EXPECT_FALSE(read_elf(write_file("short",
                                   "\x7f"
                                   "ELF"))
                   .ok());
}

TEST(ElfFile, TruncatedFilesAreReadWithoutHarm) {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string whole((std::istreambuf_iterator<char>(self)), {});
  for (size_t size = 64; size < whole.size(); size += whole.size() / 16) {
    (void)read_elf(write_file("part", whole.substr(0, size)));
  }
}

}  // namespace
}  // namespace tube::ctl

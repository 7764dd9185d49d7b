#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "hook/code/image_file.h"
#include "hook/code/image_size.h"

namespace tube::hook {
namespace {

struct FatbinHeader {
  uint32_t magic = 0xBA55ED50;
  uint16_t version = 1;
  uint16_t header_bytes = 16;
  uint64_t payload_bytes = 0;
};
struct Wrapper {
  uint32_t magic = 0x466243B1;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* extra = nullptr;
};

TEST(ImageSize, FatbinIsHeaderAndPayload) {
  FatbinHeader header;
  header.payload_bytes = 1000;
  EXPECT_EQ(find_image(&header).size_bytes, 1016u);
}

TEST(ImageSize, WrapperLeadsToItsFatbin) {
  FatbinHeader header;
  header.payload_bytes = 48;
  for (uint32_t version : {1u, 2u}) {
    Wrapper wrapper;
    wrapper.version = version;
    wrapper.data = &header;
    const Image image = find_image(&wrapper);
    EXPECT_EQ(image.data, reinterpret_cast<const std::byte*>(&header));
    EXPECT_EQ(image.size_bytes, 64u);
  }
}

TEST(ImageSize, WrapperThatPointsToItselfIsNoImage) {
  Wrapper wrapper;
  wrapper.data = &wrapper;
  EXPECT_EQ(find_image(&wrapper).size_bytes, 0u);
}

// A cubin of toolkit 13.0 has its program headers last; forgetting them cuts the image.
TEST(ImageSize, ElfEndsBehindItsProgramHeaders) {
  std::vector<std::byte> file(4096);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = 1024;
  header.e_shnum = 2;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_phoff = 2000;
  header.e_phnum = 3;
  header.e_phentsize = sizeof(Elf64_Phdr);
  std::memcpy(file.data(), &header, sizeof header);
  EXPECT_EQ(find_image(file.data()).size_bytes, 2000 + 3 * sizeof(Elf64_Phdr));
}

TEST(ImageSize, ElfSectionWithoutBytesDoesNotCount) {
  std::vector<std::byte> file(4096);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = 512;
  header.e_shnum = 2;
  header.e_shentsize = sizeof(Elf64_Shdr);
  std::memcpy(file.data(), &header, sizeof header);
  Elf64_Shdr sections[2] = {};
  sections[0].sh_type = SHT_PROGBITS;
  sections[0].sh_offset = 1000;
  sections[0].sh_size = 500;
  sections[1].sh_type = SHT_NOBITS;
  sections[1].sh_offset = 3000;
  sections[1].sh_size = 1 << 20;
  std::memcpy(file.data() + 512, sections, sizeof sections);
  EXPECT_EQ(find_image(file.data()).size_bytes, 1500u);
}

TEST(ImageSize, TextCountsItsNul) {
  EXPECT_EQ(find_image("\n.version 7.0\n").size_bytes, 15u);
  EXPECT_EQ(find_image("//").size_bytes, 3u);
}

TEST(ImageSize, NothingIsNoImage) {
  EXPECT_EQ(find_image(nullptr).size_bytes, 0u);
  EXPECT_EQ(find_image("").size_bytes, 0u);
}

std::string read_range(const FileRange& range, size_t size) {
  std::string text(size, 0);
  EXPECT_EQ(pread(range.fd.get(), text.data(), size, static_cast<off_t>(range.offset)),
            static_cast<ssize_t>(size));
  return text;
}

TEST(ImageFile, UnwritableMappingOfAFileIsThatFile) {
  char path[] = "/tmp/tube-image-XXXXXX";
  UniqueFd fd(mkstemp(path));
  const std::string content(8192, 'x');
  ASSERT_EQ(write(fd.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  ASSERT_EQ(pwrite(fd.get(), "needle", 6, 5000), 6);
  void* mapped = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  Result<FileRange> range = as_file(static_cast<std::byte*>(mapped) + 5000, 6);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->offset, 5000u);
  EXPECT_EQ(read_range(*range, 6), "needle");
  munmap(mapped, 8192);
  unlink(path);
}

TEST(ImageFile, WhatIsMappedAnewIsSeenAnew) {
  char first[] = "/tmp/tube-image-test-XXXXXX", second[] = "/tmp/tube-image-test-XXXXXX";
  UniqueFd one(mkstemp(first)), two(mkstemp(second));
  ASSERT_EQ(pwrite(one.get(), "first.", 6, 0), 6);
  ASSERT_EQ(pwrite(two.get(), "second", 6, 0), 6);
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, one.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(read_range(*as_file(static_cast<std::byte*>(mapped), 6), 6), "first.");
  ASSERT_EQ(mmap(mapped, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, two.get(), 0), mapped);
  EXPECT_EQ(read_range(*as_file(static_cast<std::byte*>(mapped), 6), 6), "second");
  munmap(mapped, 4096);
  unlink(first);
  unlink(second);
}

TEST(ImageFile, OfTheProgramItselfAgainAndAgain) {
  static const char kText[] = "these bytes lie in the program's file";
  for (int i = 0; i < 3; ++i) {
    Result<FileRange> range = as_file(reinterpret_cast<const std::byte*>(kText), sizeof kText);
    ASSERT_TRUE(range);
    EXPECT_EQ(read_range(*range, sizeof kText), std::string(kText, sizeof kText));
    EXPECT_EQ(fcntl(range->fd.get(), F_GET_SEALS), -1) << "the file itself, not a copy";
  }
}

TEST(ImageFile, ProgramMemoryIsCopiedIntoASealedFile) {
  std::string content(100000, 'y');
  content.replace(0, 5, "hello");
  Result<FileRange> range =
      as_file(reinterpret_cast<const std::byte*>(content.data()), content.size());
  ASSERT_TRUE(range);
  EXPECT_EQ(range->offset, 0u);
  EXPECT_EQ(read_range(*range, content.size()), content);
  EXPECT_NE(fcntl(range->fd.get(), F_GET_SEALS) & F_SEAL_WRITE, 0);
}

}  // namespace
}  // namespace tube::hook

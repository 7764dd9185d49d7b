// What is mapped at some addresses: the same by either way to ask, and without looking at what is
// mapped elsewhere.
#include "hook/memory/mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace tube::hook {
namespace {

constexpr uint64_t kPage = 4096;

std::string told(const std::vector<MappedArea>& areas) {
  std::string text;
  char line[256];
  for (const MappedArea& a : areas) {
    std::snprintf(line, sizeof line, "%lx-%lx of %lx-%lx %d %d at %lx, %lx:%lu ", a.begin, a.end,
                  a.whole_begin, a.whole_end, a.protection, a.shared, a.offset, a.device, a.inode);
    text += line + a.path + '\n';
  }
  return text;
}

std::string asked(uint64_t begin, uint64_t end) {
  std::vector<MappedArea> areas;
  EXPECT_TRUE(mapped_areas(begin, end, &areas));
  return told(areas);
}

std::string listed(uint64_t begin, uint64_t end) {
  std::vector<MappedArea> areas;
  EXPECT_TRUE(listed_areas(begin, end, &areas));
  return told(areas);
}

uint64_t map(uint64_t pages) {
  void* p =
      mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  return reinterpret_cast<uint64_t>(p);
}

// A page of its own kind each: no two of them are one mapping.
void split(uint64_t first, uint64_t pages) {
  for (uint64_t i = 1; i < pages; i += 2)
    EXPECT_EQ(mprotect(reinterpret_cast<void*>(first + i * kPage), kPage, PROT_READ), 0);
}

void unmap(uint64_t first, uint64_t pages) {
  munmap(reinterpret_cast<void*>(first), pages * kPage);
}

// Bytes that this process has read from files; 0 where the kernel does not count them.
uint64_t read_bytes() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  uint64_t bytes = 0;
  counters >> name >> bytes;
  return bytes;
}

}  // namespace

TEST(Mappings, AreTheSameAskedAndListed) {
  const int file = memfd_create("mappings", MFD_CLOEXEC);
  ASSERT_TRUE(file >= 0 && ftruncate(file, 8 * kPage) == 0);
  const uint64_t p = map(16);
  auto at = [&](uint64_t page) { return reinterpret_cast<void*>(p + page * kPage); };
  ASSERT_EQ(mmap(at(2), 3 * kPage, PROT_READ, MAP_SHARED | MAP_FIXED, file, kPage), at(2));
  ASSERT_EQ(mmap(at(6), 2 * kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
                 file, 2 * kPage),
            at(6));
  munmap(at(10), 2 * kPage);
  for (const uint64_t first : {0, 1, 3, 7, 10, 11}) {
    for (const uint64_t last : {12, 13, 16})
      EXPECT_EQ(asked(p + first * kPage, p + last * kPage),
                listed(p + first * kPage, p + last * kPage));
  }
  std::vector<MappedArea> areas;
  ASSERT_TRUE(mapped_areas(p + 3 * kPage, p + 4 * kPage, &areas));
  ASSERT_EQ(areas.size(), 1u);
  EXPECT_EQ(areas[0].offset, 2 * kPage);
  EXPECT_TRUE(areas[0].shared);
  EXPECT_EQ(areas[0].path, "/memfd:mappings (deleted)");
  unmap(p, 16);
  close(file);
  const auto stack = reinterpret_cast<uint64_t>(&file) & ~(kPage - 1);
  const auto code = reinterpret_cast<uint64_t>(&split) & ~(kPage - 1);
  for (const uint64_t page : {stack, code, p})
    EXPECT_EQ(asked(page, page + kPage), listed(page, page + kPage));
}

TEST(Mappings, BehindTheRangeAreNotRead) {
  constexpr uint64_t kMany = 4000;  // a hundred KiB of the list and more
  const uint64_t p = map(kMany);
  split(p, kMany);
  const uint64_t before = read_bytes(), counting = read_bytes() - before;
  std::vector<MappedArea> areas;
  const uint64_t first = read_bytes();
  ASSERT_TRUE(mapped_areas(p + kPage, p + 3 * kPage, &areas));
  const uint64_t asked_for = read_bytes() - first;
  EXPECT_EQ(areas.size(), 2u);
  EXPECT_LE(asked_for, counting + (64u << 10));
  areas.clear();
  const uint64_t second = read_bytes();
  ASSERT_TRUE(listed_areas(p + kPage, p + 3 * kPage, &areas));
  EXPECT_LE(read_bytes() - second, counting + (64u << 10));
  EXPECT_EQ(areas.size(), 2u);
  unmap(p, kMany);
}

}  // namespace tube::hook

// The same bytes are one image, and other bytes are another one, wherever they come from.
#include "proxy/code/image_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "proxy/memory/host_budget.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kBytes = 600u << 10;  // three pieces, the last one not whole

class ImageStoreTest : public ::testing::Test {
 protected:
  ImageStoreTest() : file(memfd_create("image", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(file.get(), kBytes + 4096), 0);
    bytes = static_cast<char*>(
        mmap(nullptr, kBytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    EXPECT_NE(bytes, MAP_FAILED);
    std::memset(bytes, 'a', kBytes);
  }
  ~ImageStoreTest() override { munmap(bytes, kBytes + 4096); }
  std::shared_ptr<const Image> load(uint64_t offset = 0) {
    auto image = store.from_fd(file.get(), offset, kBytes, capabilities, &read_bytes);
    return image.ok() ? image.take() : nullptr;
  }
  HostBudget host{{2 * kBytes, 0}, [] { return UINT64_MAX; }};
  ImageStore store;
  UniqueFd file;
  char* bytes = nullptr;
  uint64_t read_bytes = 0;
  const std::vector<int> capabilities{90};
};

TEST_F(ImageStoreTest, ReadsAFileOnce) {
  const auto first = load();
  EXPECT_EQ(read_bytes, kBytes);
  EXPECT_EQ(load(), first);
  EXPECT_EQ(read_bytes, kBytes);
}

// The page is dirty by then, so the file's times stay as they are.
TEST_F(ImageStoreTest, SeesEveryStoreThroughAMapping) {
  for (const uint64_t at : {uint64_t{0}, uint64_t{300u << 10}, kBytes - 1}) {
    const auto before = load();
    bytes[at] = 'b';
    const auto after = load();
    ASSERT_NE(after, nullptr);
    EXPECT_NE(after, before);
    EXPECT_EQ(std::memcmp(after->data(), bytes, kBytes), 0);
    bytes[at] = 'a';
    EXPECT_EQ(load(), before);
  }
}

// Offsets of the fields in a fatbin: its header is 16 bytes, an entry's 64.
TEST_F(ImageStoreTest, MachineCodeForOtherGenerationsIsNotRead) {
  constexpr uint64_t kPayload = (kBytes - 16) / 2 - 64;
  const image::FatbinHeader header{0xBA55ED50, 1, 16, kBytes - 16};
  std::memcpy(bytes, &header, sizeof header);
  for (const uint32_t i : {0u, 1u}) {
    char* entry = bytes + 16 + i * (64 + kPayload);
    std::memset(entry, 0, 64);
    const uint16_t kind = 2, version = 0x101;
    const uint32_t header_size = 64, sm = i == 0 ? 80 : 90;
    // NOLINTNEXTLINE(bugprone-not-null-terminated-result): numbers, no text
    std::memcpy(entry, &kind, 2);
    std::memcpy(entry + 2, &version, 2);
    std::memcpy(entry + 4, &header_size, 4);
    std::memcpy(entry + 8, &kPayload, 8);
    std::memcpy(entry + 28, &sm, 4);
  }
  const auto first = load();
  bytes[16 + 64 + 1000] = 'b';
  EXPECT_EQ(load(), first);
  bytes[16 + 64 + kPayload + 64 + 1000] = 'b';
  EXPECT_NE(load(), first);
}

// A file with holes may be as large as it likes.
TEST_F(ImageStoreTest, WhatTheDriverDidNotTakeIsNotKept) {
  store.count_in(&host);
  for (int i = 0; i < 5; ++i) {
    bytes[0] = static_cast<char>('a' + i);
    ASSERT_NE(load(), nullptr);
    EXPECT_EQ(host.held_bytes(HostUse::kImages), 0u);
  }
  store.keep(load());
  EXPECT_EQ(host.held_bytes(HostUse::kImages), kBytes);
  EXPECT_EQ(load(), load());
}

TEST_F(ImageStoreTest, BeyondTheBudgetWhatIsKeptForOthersGoes) {
  store.count_in(&host);
  store.keep(load());
  bytes[0] = 'b';
  const auto second = load();
  bytes[0] = 'c';
  const auto third = load();
  ASSERT_NE(third, nullptr);
  bytes[0] = 'd';
  EXPECT_EQ(load(), nullptr);
  EXPECT_EQ(host.held_bytes(), 2 * kBytes);
  EXPECT_EQ(host.refusals(), 2u);
}

TEST_F(ImageStoreTest, AFileCutShortIsRefused) {
  ASSERT_NE(load(4096), nullptr);
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  EXPECT_EQ(load(4096), nullptr);
}

}  // namespace
}  // namespace tube::proxy

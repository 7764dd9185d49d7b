// The same bytes are one image, and other bytes are another one, wherever they come from.
#include "proxy/code/image_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
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

// Several that load the same part at once. What takes memory for an image tells `first_takes` who
// is the first to do so, in the middle of the load; its answer is what the machine has left.
class ImageStoreCrowd : public ImageStoreTest {
 protected:
  static constexpr size_t kCrowd = 6;
  static constexpr uint64_t kLarge = 2u << 20;  // for each of these the budget asks

  ImageStoreCrowd() {
    EXPECT_EQ(ftruncate(file.get(), kLarge), 0);
    EXPECT_EQ(pwrite(file.get(), "b", 1, kLarge - 1), 1);
  }
  // Says how many were refused or thrown out.
  size_t load_together(ImageStore& from) {
    from.count_in(&large);
    images.assign(kCrowd, nullptr);
    std::atomic<size_t> failed{0};
    std::vector<std::thread> crowd;
    for (auto& image : images)
      crowd.emplace_back([&] {
        uint64_t read = 0;
        try {
          auto got = from.from_fd(file.get(), 0, kLarge, capabilities, &read);
          if (got.ok()) image = got.take();
        } catch (const std::bad_alloc&) {
        }
        if (image == nullptr) ++failed;
        all_read += read;
        ++done;
      });
    for (auto& thread : crowd) thread.join();
    return failed;
  }
  static void until(const auto& true_now) {
    while (!true_now()) std::this_thread::yield();
  }
  size_t have(const std::shared_ptr<const Image>& image) const {
    return static_cast<size_t>(std::count(images.begin(), images.end(), image));
  }
  bool the_rest_wait(const ImageStore& in) const { return in.waiting() == kCrowd - 1; }

  std::atomic<int> takes{0};
  std::function<uint64_t()> first_takes;
  HostBudget large{{kCrowd * kLarge, 0},
                   [this] { return takes++ == 0 ? first_takes() : UINT64_MAX; }};
  std::vector<std::shared_ptr<const Image>> images;
  std::atomic<uint64_t> all_read{0};
  std::atomic<size_t> done{0};
};

TEST_F(ImageStoreCrowd, OneReadsForAll) {
  first_takes = [&] {
    // Without waiting they would take memory, too.
    until([&] { return the_rest_wait(store) || takes > 1; });
    return UINT64_MAX;
  };
  EXPECT_EQ(load_together(store), 0u);
  EXPECT_EQ(takes, 1);
  EXPECT_EQ(all_read, kLarge);
  EXPECT_EQ(large.held_bytes(), kLarge);
  EXPECT_EQ(have(images[0]), kCrowd);
}

TEST_F(ImageStoreCrowd, OfAReaderWhoFailsNobodyHears) {
  for (const bool throws : {false, true}) {
    takes = 0;
    all_read = 0;
    first_takes = [&]() -> uint64_t {
      until([&] { return the_rest_wait(store); });
      if (throws) throw std::bad_alloc();
      return 0;
    };
    EXPECT_EQ(load_together(store), 1u);
    EXPECT_EQ(store.waiting(), 0u);
    EXPECT_GE(all_read, kLarge);
    EXPECT_EQ(have(images[0] != nullptr ? images[0] : images[1]), kCrowd - 1);
  }
}

// He stands in his read, as long as the others are there.
TEST_F(ImageStoreCrowd, NobodyWaitsForeverForAReader) {
  ImageStore impatient{std::chrono::milliseconds(1)};
  first_takes = [&] {
    until([&] { return done == kCrowd - 1; });
    return UINT64_MAX;
  };
  EXPECT_EQ(load_together(impatient), 0u);
  EXPECT_EQ(have(images[0]), kCrowd);
}

// The file is another one in each round, and what others have read of it is none of its images.
TEST_F(ImageStoreCrowd, EveryoneGetsWhatTheFileHolds) {
  char turn = 0;
  std::atomic<int> wrong{0};
  std::barrier round(kCrowd, [&]() noexcept { bytes[kBytes / 2] = static_cast<char>(++turn % 3); });
  std::vector<std::thread> crowd;
  for (size_t i = 0; i < kCrowd; ++i)
    crowd.emplace_back([&] {
      std::shared_ptr<const Image> before;
      for (int rounds = 0; rounds < 60; ++rounds) {
        round.arrive_and_wait();
        uint64_t read = 0;
        auto image = store.from_fd(file.get(), 0, kBytes, capabilities, &read);
        if (!image.ok() || std::memcmp((*image)->data(), bytes, kBytes) != 0) {
          ++wrong;
          continue;
        }
        before = image.take();
      }
      round.arrive_and_drop();
    });
  for (auto& thread : crowd) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tube::proxy

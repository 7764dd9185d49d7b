// Registered host memory in the proxy, with files and addresses as a hostile client would choose
// them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "proxy/memory/bus_guard.h"
#include "proxy/memory/device_memory.h"
#include "proxy/memory/host_budget.h"
#include "proxy/memory/host_pages.h"
#include "sharedmem/windows.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kPage = wire::kHostPageBytes;

class HostPagesTest : public ::testing::Test {
 protected:
  HostPagesTest()
      : driver(test::make_fake_driver()),
        pages(driver, ranges),
        file(memfd_create("client", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(file.get(), 64 * kPage), 0);
    // Addresses that are free here, as the client's are most of the time.
    void* free_place = mmap(nullptr, 64 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = reinterpret_cast<uint64_t>(free_place);
    munmap(free_place, 64 * kPage);
  }
  HostPages::Segment segment(uint64_t page, uint64_t count, uint64_t offset_pages = 0) {
    return {{base + page * kPage, count * kPage, offset_pages * kPage, 1}, file.get()};
  }
  CUresult add(uint64_t first_byte, uint64_t bytes,
               const std::vector<HostPages::Segment>& segments) {
    return pages.add(1, base + first_byte, bytes, 0, segments);
  }

  Driver driver;
  Ranges ranges;
  HostPages pages;
  UniqueFd file;
  uint64_t base = 0;
};

TEST_F(HostPagesTest, MapsTheClientsFileAtItsAddress) {
  ASSERT_EQ(add(100, 2 * kPage, {segment(0, 3, 5)}), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().registered, 1);
  EXPECT_EQ(pages.bytes(), 2 * kPage);
  const char text[] = "seen";
  ASSERT_EQ(pwrite(file.get(), text, sizeof text, 6 * kPage), static_cast<ssize_t>(sizeof text));
  EXPECT_STREQ(reinterpret_cast<const char*>(base + kPage), "seen");
  EXPECT_TRUE(ranges.covers(base + 100, 2 * kPage));
  EXPECT_FALSE(ranges.covers(base + 99, 2));
  EXPECT_EQ(pages.remove(base + 100), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().registered, 0);
  EXPECT_EQ(pages.remove(base + 100), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(HostPagesTest, PagesThatTwoRegistrationsShareStayForTheSecond) {
  ASSERT_EQ(add(0, kPage + 10, {segment(0, 2)}), CUDA_SUCCESS);
  ASSERT_EQ(add(kPage + 10, 2 * kPage, {segment(2, 2, 2)}), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().registered, 2);
  EXPECT_EQ(pages.remove(base), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().registered, 2);
  EXPECT_EQ(pages.remove(base + kPage + 10), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().registered, 0);
}

TEST_F(HostPagesTest, FilesOfLocalFileSystemsOnly) {
  for (const int64_t local : std::initializer_list<int64_t>{TMPFS_MAGIC, EXT4_SUPER_MAGIC,
                                                            XFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC})
    EXPECT_TRUE(HostPages::answers_page_faults(local)) << local;
  for (const int64_t behind_others : std::initializer_list<int64_t>{
           FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC, V9FS_MAGIC,
           CEPH_SUPER_MAGIC, AFS_SUPER_MAGIC})
    EXPECT_FALSE(HostPages::answers_page_faults(behind_others)) << behind_others;
}

TEST_F(HostPagesTest, PagesForReadingOnlyStaySoForASecondRegistration) {
  ASSERT_EQ(pages.add(1, base, kPage + 10, CU_MEMHOSTREGISTER_READ_ONLY, {segment(0, 2)}),
            CUDA_SUCCESS);
  ASSERT_EQ(add(kPage + 10, 2 * kPage, {segment(2, 2, 2)}), CUDA_SUCCESS);
  EXPECT_TRUE(ranges.read_only(base + 2 * kPage - 1, 1));
  EXPECT_TRUE(ranges.read_only(base + 2 * kPage - 1, kPage));
  EXPECT_FALSE(ranges.read_only(base + 2 * kPage, kPage));
  EXPECT_EQ(pages.remove(base), CUDA_SUCCESS);
  EXPECT_TRUE(ranges.read_only(base + kPage + 10, 1));
  EXPECT_EQ(pages.remove(base + kPage + 10), CUDA_SUCCESS);
  EXPECT_FALSE(ranges.read_only(base, 4 * kPage));
}

TEST_F(HostPagesTest, NothingIsMappedOverWhatIsThere) {
  char here[2 * kPage];
  const uint64_t page = (reinterpret_cast<uint64_t>(here) + kPage - 1) / kPage * kPage;
  EXPECT_EQ(pages.add(1, page, kPage, 0, {{{page, kPage, 0, 1}, file.get()}}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ranges.size(), 0u);
}

TEST_F(HostPagesTest, ImpossibleAddressesAreRefused) {
  EXPECT_EQ(pages.add(1, 0, kPage, 0, {{{0, kPage, 0, 1}, file.get()}}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pages.add(1, ~uint64_t{0} - 10, kPage, 0, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pages.add(1, 0x8000'0000'0000, kPage, 0, {}), CUDA_ERROR_INVALID_VALUE);
  const uint64_t window = windows::device_base(2) + 0x10000;
  EXPECT_EQ(pages.add(1, window, kPage, 0, {{{window, kPage, 0, 1}, file.get()}}),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostPagesTest, SegmentsMustCoverTheRangeAndNoMore) {
  EXPECT_EQ(add(0, 2 * kPage, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(0, 2 * kPage, {segment(0, 1)}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(0, 2 * kPage, {segment(0, 1), segment(2, 1)}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(0, 2 * kPage, {segment(0, 3)}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(0, 2 * kPage, {segment(0, 2), segment(2, 1)}), CUDA_ERROR_INVALID_VALUE);
  HostPages::Segment odd = segment(0, 2);
  odd.untrusted.bytes -= 1;
  EXPECT_EQ(add(0, 2 * kPage, {odd}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(test::fake().registered, 0);
}

TEST_F(HostPagesTest, FilesMustBeLongEnoughAndOrdinary) {
  EXPECT_EQ(add(0, 2 * kPage, {segment(0, 2, 63)}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(0, 2 * kPage, {segment(0, 2, ~uint64_t{0} / kPage)}), CUDA_ERROR_INVALID_VALUE);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  EXPECT_EQ(pages.add(1, base, kPage, 0, {{{base, kPage, 0, 1}, reader.get()}}),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostPagesTest, OverlappingBytesAreRegisteredAlready) {
  ASSERT_EQ(add(0, 2 * kPage, {segment(0, 2)}), CUDA_SUCCESS);
  EXPECT_EQ(add(kPage, 2 * kPage, {segment(2, 1, 2)}), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(test::fake().registered, 1);
}

TEST_F(HostPagesTest, AFileCutShortReadsAsEmptyInsteadOfEndingTheProxy) {
  ASSERT_EQ(add(0, 2 * kPage, {segment(0, 2)}), CUDA_SUCCESS);
  auto* bytes = reinterpret_cast<volatile char*>(base);
  bytes[kPage] = 7;
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  EXPECT_EQ(bytes[kPage], 0);
  bytes[10] = 1;
  EXPECT_EQ(bytes[10], 1);
  EXPECT_EQ(pages.remove(base), CUDA_SUCCESS);
}

// A file of huge pages, of which the system need not have any: none is touched.
class HugePagesTest : public HostPagesTest {
 protected:
  void SetUp() override {
    struct statfs fs;
    huge_file.reset(memfd_create("client", MFD_CLOEXEC | MFD_HUGETLB));
    if (!huge_file.valid() || fstatfs(huge_file.get(), &fs) != 0)
      GTEST_SKIP() << "this kernel has no files of huge pages";
    page = static_cast<uint64_t>(fs.f_bsize);
    ASSERT_EQ(ftruncate(huge_file.get(), static_cast<off_t>(2 * page)), 0);
    place = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                 huge_file.get(), 0);
    ASSERT_NE(place, MAP_FAILED);
    base = reinterpret_cast<uint64_t>(place);
  }

  UniqueFd huge_file;
  uint64_t page = 0;
  void* place = nullptr;
};

TEST_F(HugePagesTest, AreMappedWholeOrNotAtAll) {
  munmap(place, 2 * page);
  const auto add = [&](uint64_t at, uint64_t bytes, uint64_t offset) {
    return pages.add(1, base + at, bytes, 0, {{{base + at, bytes, offset, 1}, huge_file.get()}});
  };
  EXPECT_EQ(add(0, page + kPage, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(kPage, page, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(0, page, kPage), CUDA_ERROR_INVALID_VALUE);
  const CUresult whole = add(0, page, 0);
  EXPECT_TRUE(whole == CUDA_SUCCESS || whole == CUDA_ERROR_OUT_OF_MEMORY) << whole;  // has it one
}

TEST_F(HugePagesTest, ThatTheFileLostReadAsEmpty) {
  ASSERT_TRUE(bus_guard::add(base, base + 2 * page));
  ASSERT_EQ(ftruncate(huge_file.get(), 0), 0);
  auto* bytes = static_cast<volatile char*>(place);
  EXPECT_EQ(bytes[page + 3 * kPage], 0);
  bytes[page + 5] = 1;
  EXPECT_EQ(bytes[page + 5], 1);
  EXPECT_EQ(bytes[0], 0);
  bus_guard::remove(base);
  EXPECT_EQ(munmap(place, 2 * page), 0);
}

// Registering makes them, and they are charged to the proxy.
TEST_F(HostPagesTest, PagesThatTheFileLacksAreCounted) {
  HostBudget host({10 * kPage, 0}, [] { return UINT64_MAX; });
  HostPages counted(driver, ranges, &host);
  const auto add = [&](uint64_t count) {
    return counted.add(1, base, count * kPage, 0, {segment(0, count)});
  };
  ASSERT_EQ(add(8), CUDA_SUCCESS);
  EXPECT_EQ(host.held_bytes(HostUse::kFiles), 8 * kPage);
  EXPECT_EQ(counted.remove(base), CUDA_SUCCESS);
  EXPECT_EQ(host.held_bytes(), 0u);
  EXPECT_EQ(add(11), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(host.held_bytes(), 0u);
  ASSERT_EQ(fallocate(file.get(), 0, 0, 64 * kPage), 0);
  ASSERT_EQ(add(32), CUDA_SUCCESS);
  EXPECT_EQ(host.held_bytes(), 0u);
}

TEST_F(HostPagesTest, AContextsRegistrationsGoWithIt) {
  ASSERT_EQ(add(0, kPage, {segment(0, 1)}), CUDA_SUCCESS);
  ASSERT_EQ(pages.add(2, base + 4 * kPage, kPage, 0, {segment(4, 1, 4)}), CUDA_SUCCESS);
  pages.free_all(1);
  EXPECT_EQ(test::fake().registered, 1);
  pages.free_all(DeviceMemory::kAllContexts);
  EXPECT_EQ(test::fake().registered, 0);
  EXPECT_EQ(pages.bytes(), 0u);
}

// Each segment is a mapping of its own, of which a process has some 65,000.
class ManyMappings : public HostPagesTest {
 protected:
  static constexpr uint32_t kSegments = 256;
  // One more registration, of the same page over and over.
  CUresult add_many(HostPages& to) {
    const uint64_t first = place + kSegments * kPage * next++;
    std::vector<HostPages::Segment> segments;
    for (uint32_t i = 0; i < kSegments; ++i)
      segments.push_back({{first + i * kPage, kPage, 0, 1}, file.get()});
    return to.add(1, first, kSegments * kPage, 0, segments);
  }
  uint32_t fill(HostPages& to) {
    uint32_t mappings = 0;
    while (mappings < 1u << 22 && add_many(to) == CUDA_SUCCESS) mappings += kSegments;
    return mappings;
  }
  static constexpr uint64_t place = 0x20'0000'0000;  // below every window and far from what is here
  uint64_t next = 0;
};

TEST_F(ManyMappings, LeaveRoomForTheOthersAndForTheProxy) {
  Ranges second_ranges, third_ranges;
  HostPages second(driver, second_ranges), third(driver, third_ranges);
  const uint32_t first_filled = fill(pages);
  EXPECT_GT(first_filled, 0u);
  EXPECT_LE(first_filled, HostPages::most_mappings());
  EXPECT_GT(fill(second), 0u);
  EXPECT_LE(fill(third), kSegments);
  std::thread([] { std::vector<char> memory(64 << 20); }).join();
  pages.close();
  EXPECT_EQ(add_many(third), CUDA_SUCCESS);
}

TEST_F(ManyMappings, AreCountedBackWhenARegistrationFails) {
  const auto works = driver.cuMemHostRegister_v2;
  driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  for (uint32_t i = 0; i <= HostPages::most_mappings() / kSegments; ++i)
    ASSERT_EQ(add_many(pages), CUDA_ERROR_OUT_OF_MEMORY);
  driver.cuMemHostRegister_v2 = works;
  EXPECT_EQ(add_many(pages), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tube::proxy

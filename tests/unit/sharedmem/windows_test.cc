// Address windows: a taken candidate is passed over, its occupant is named, and nothing is ever
// replaced.
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "sharedmem/window_reservation.h"
#include "tests/unit/sharedmem/support.h"

namespace tube::shared {
namespace {

// ThreadSanitizer lets a program use a few address ranges only, none of them a window.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressLimitsWork = false;
#else
constexpr bool kAddressLimitsWork = true;
#endif

class Windows : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer owns these addresses";
#endif
  }
};

TEST_F(Windows, TakenCandidateIsPassedOverAndItsOccupantNamed) {
  // Under AddressSanitizer the shadow already lies in candidate 0.
  Result<Mapping> occupant =
      Mapping::reserve_at(windows::device_base(0) + windows::kDeviceBytes, 4096);
  ASSERT_TRUE(occupant) << occupant.error().message;
  WindowReservation all = WindowReservation::take_all();
  EXPECT_EQ(all.free_mask() & 1, 0u);
  EXPECT_NE(all.free_mask(), 0u);
  EXPECT_FALSE(all.keep_only(0));
  const std::string text = describe_taken_windows(~1u);
  EXPECT_NE(text.find("window 0 ("), std::string::npos) << text;
  EXPECT_EQ(text.find("window 1"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST_F(Windows, KeptWindowStaysTheOthersAreGivenBack) {
  WindowReservation all = WindowReservation::take_all();
  ASSERT_TRUE(all.free_mask() >> 2 & 1);
  ASSERT_TRUE(all.keep_only(2));
  EXPECT_EQ(all.free_mask(), 4u);
  EXPECT_FALSE(range_is_free(windows::device_base(2), windows::kWindowBytes));
  EXPECT_TRUE(range_is_free(windows::device_base(1), windows::kWindowBytes));
}

TEST_F(Windows, PinnedFileAppearsAtTheAgreedAddressInsideTheReservation) {
  Result<UniqueFd> file = create_memory_file("pinned", windows::kPinnedSlotBytes, Fill::kSparse);
  ASSERT_TRUE(file) << file.error().message;
  WindowReservation all = WindowReservation::take_all();
  ASSERT_TRUE(all.keep_only(2));
  Status mapped = all.map_pinned(2, 3, file->get());
  ASSERT_TRUE(mapped) << mapped.error().message;
  auto* bytes = reinterpret_cast<char*>(windows::pinned_base(2, 3));
  bytes[windows::kPinnedSlotBytes - 1] = 'z';
  char c = 0;
  EXPECT_EQ(::pread(file->get(), &c, 1, static_cast<off_t>(windows::kPinnedSlotBytes - 1)), 1);
  EXPECT_EQ(c, 'z');
  EXPECT_FALSE(all.map_pinned(1, 3, file->get()));
  EXPECT_FALSE(all.map_pinned(2, windows::kMaxClients, file->get()));
}

// What the kernel says of the mapping that begins there.
std::string flags_of(uint64_t address) {
  std::ifstream maps("/proc/self/smaps");
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", address);
  std::string line;
  while (std::getline(maps, line) && line.rfind(begin, 0) != 0) {
  }
  while (std::getline(maps, line) && line.rfind("VmFlags:", 0) != 0) {
  }
  return line + " ";
}

// A dump would make the pages of 64 GiB.
TEST_F(Windows, APinnedSlotIsInNoCoreDump) {
  Result<UniqueFd> file = create_memory_file("pinned", windows::kPinnedSlotBytes, Fill::kSparse);
  ASSERT_TRUE(file) << file.error().message;
  WindowReservation all = WindowReservation::take_all();
  ASSERT_TRUE(all.keep_only(2));
  ASSERT_TRUE(all.map_pinned(2, 3, file->get()));
  const std::string flags = flags_of(windows::pinned_base(2, 3));
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
}

TEST_F(Windows, OccupantIsNamedByItsFile) {
  const std::string way =
      mapping_in_the_way(reinterpret_cast<uint64_t>(&count_fds) & ~uint64_t{4095}, 4096);
  EXPECT_NE(way.find("sharedmem_test"), std::string::npos) << way;
  EXPECT_EQ(mapping_in_the_way(windows::device_base(3), 4096), "");
}

TEST_F(Windows, AddressSpaceLimitIsNamed) {
  if (!kAddressLimitsWork) GTEST_SKIP() << "a sanitizer does not run under ulimit -v";
  const pid_t child = in_child([] {
    const rlimit limit{1ull << 40, 1ull << 40};
    ::setrlimit(RLIMIT_AS, &limit);
    const WindowReservation all = WindowReservation::take_all();
    if (all.free_mask() != 0) return 1;
    return describe_taken_windows(0).find("ulimit -v") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(exit_code(child), 0);
}

}  // namespace
}  // namespace tube::shared

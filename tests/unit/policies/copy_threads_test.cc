// Threads and pieces of large pageable copies, on plain values.
#include "policies/copy_threads.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace tube::policies {
namespace {

constexpr HostLoad kIdle16{.usable_cores = 16, .machine_cores = 16, .runnable = 1};

TEST(CopyThreads, SmallCopiesTakeNone) {
  EXPECT_EQ(copy_helpers(kLargeCopyBytes - 1, kIdle16, std::nullopt), 0u);
  EXPECT_EQ(copy_helpers(kLargeCopyBytes - 1, kIdle16, 8), 0u) << "nor when threads are asked for";
  EXPECT_GT(copy_helpers(kLargeCopyBytes, kIdle16, std::nullopt), 0u);
}

TEST(CopyThreads, AtMostHalfOfTheIdleCoresHelp) {
  EXPECT_EQ(idle_cores(kIdle16), 15u);
  EXPECT_EQ(copy_helpers(kGiB, kIdle16, std::nullopt), 7u);
  for (uint32_t cores = 1; cores <= 256; ++cores)
    for (uint32_t runnable = 0; runnable <= 300; runnable += 7) {
      const HostLoad load{.usable_cores = cores, .machine_cores = cores, .runnable = runnable};
      const uint32_t helpers = copy_helpers(kGiB, load, std::nullopt);
      EXPECT_LE(helpers * 2, idle_cores(load));
      EXPECT_LE(helpers, kMostCopyHelpers);
    }
}

TEST(CopyThreads, WhoeverRunsTakesACore) {
  HostLoad load = kIdle16;
  load.runnable = 10;
  EXPECT_EQ(idle_cores(load), 6u);
  load.runnable = 16;
  EXPECT_EQ(copy_helpers(kGiB, load, std::nullopt), 0u);
  load.runnable = 1000;
  EXPECT_EQ(copy_helpers(kGiB, load, std::nullopt), 0u);
  load.runnable = 0;
  EXPECT_EQ(idle_cores(load), 15u) << "not known";
}

TEST(CopyThreads, APartOfTheMachineHasItsPartOfTheLoad) {
  const HostLoad load{.usable_cores = 16, .machine_cores = 128, .runnable = 65};
  EXPECT_EQ(idle_cores(load), 7u);
  const HostLoad quota{.usable_cores = 2, .machine_cores = 64, .runnable = 1};
  EXPECT_EQ(copy_helpers(kGiB, quota, std::nullopt), 0u);
}

TEST(CopyThreads, HelpersHaveEnoughToDo) {
  EXPECT_EQ(copy_helpers(8 * kMiB, kIdle16, std::nullopt), 4u);
  const HostLoad large{.usable_cores = 128, .machine_cores = 128, .runnable = 1};
  EXPECT_EQ(copy_helpers(kGiB, large, std::nullopt), kMostCopyHelpers);
}

TEST(CopyThreads, TheSettingCountsTheCallingThread) {
  const HostLoad busy{.usable_cores = 2, .machine_cores = 2, .runnable = 9};
  EXPECT_EQ(copy_helpers(kGiB, busy, 4), 3u);
  EXPECT_EQ(copy_helpers(kGiB, kIdle16, 1), 0u);
  EXPECT_EQ(copy_helpers(kGiB, kIdle16, 0), 0u);
  EXPECT_EQ(copy_helpers(kGiB, kIdle16, ~uint64_t{0}), kMostCopyHelpers);
}

TEST(CopyPieces, AreSmallAtBothEndsAndLargeBetween) {
  const uint64_t largest = 4 * kMiB;
  EXPECT_EQ(next_piece(0, kGiB, largest), kMiB);
  EXPECT_EQ(next_piece(8 * kMiB, kGiB, largest), 2 * kMiB);
  EXPECT_EQ(next_piece(512 * kMiB, 512 * kMiB, largest), largest);
  EXPECT_EQ(next_piece(kGiB, 2 * kMiB, largest), kMiB);
  EXPECT_EQ(next_piece(512 * kMiB, 512 * kMiB, kMiB), kMiB);
}

TEST(CopyPieces, CoverEveryByteOnce) {
  for (const uint64_t bytes : {kLargeCopyBytes, kLargeCopyBytes + 1, 33 * kMiB - 1, kGiB + 77})
    for (const uint64_t largest : {kMiB, 4 * kMiB}) {
      uint64_t done = 0;
      while (done < bytes) {
        const uint64_t piece = next_piece(done, bytes - done, largest);
        ASSERT_GT(piece, 0u);
        ASSERT_LE(piece, largest);
        ASSERT_TRUE(piece % kSliceBytes == 0 || piece == bytes - done);
        done += piece;
      }
      EXPECT_EQ(done, bytes);
    }
}

}  // namespace
}  // namespace tube::policies

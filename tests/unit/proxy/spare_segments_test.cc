// Segments ready for functions to come: taken, wiped and used again, given back to the driver when
// that disturbs nobody.
#include "proxy/memory/spare_segments.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "sharedmem/accessors.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

class SpareSegmentsTest : public ::testing::Test {
 protected:
  SpareSegmentsTest() : driver(test::make_fake_driver()), gpus(driver) {
    EXPECT_TRUE(gpus.open().ok());
    registered = 0;
    // The pool's thread calls them too.
    driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned int) {
      ++registered;
      return CUDA_SUCCESS;
    };
    driver.cuMemHostUnregister = [](void*) {
      --registered;
      return CUDA_SUCCESS;
    };
    driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* pointer, unsigned int) {
      *address = reinterpret_cast<CUdeviceptr>(pointer);
      return CUDA_SUCCESS;
    };
  }

  static uint64_t inode(const shared::Segment& segment) {
    struct stat s {};
    EXPECT_EQ(fstat(segment.fd(), &s), 0);
    return s.st_ino;
  }
  static PreparedSegment take(SpareSegments& spares, uint64_t session) {
    Result<PreparedSegment> taken = spares.take(session);
    EXPECT_TRUE(taken.ok());
    return taken.take();
  }

  PreparedSegment make(uint64_t session, bool more_chunks = false) {
    Result<PreparedSegment> made = SpareSegments::make(driver, session);
    EXPECT_TRUE(made.ok());
    if (more_chunks) {
      EXPECT_EQ(register_more_chunks(driver, made->segment), CUDA_SUCCESS);
    }
    made->more_chunks = more_chunks;
    return made.take();
  }

  static inline std::atomic<int> registered{0};
  Driver driver;
  Gpus gpus;
};

TEST_F(SpareSegmentsTest, WithoutSparesEachIsMadeWhenItIsTaken) {
  const int before = registered.load();
  {
    SpareSegments spares(driver, gpus, 0);
    spares.start();
    PreparedSegment one = take(spares, 7);
    EXPECT_EQ(one.segment.header().session_id, 7u);
    EXPECT_EQ(registered.load(), before + 1);
    spares.give_back(std::move(one));
    EXPECT_EQ(spares.counts().segments, 0u);
    EXPECT_FALSE(spares.counts().settled);
    EXPECT_EQ(registered.load(), before + 1) << "only drop_old() may wait for the context";
    spares.drop_old();
    EXPECT_EQ(registered.load(), before);
    EXPECT_TRUE(spares.counts().settled);
  }
  EXPECT_EQ(registered.load(), before);
}

TEST_F(SpareSegmentsTest, AUsedOneComesBackAsNew) {
  const int before = registered.load();
  {
    SpareSegments spares(driver, gpus, 1);
    PreparedSegment first = take(spares, 1);  // made here: the thread does not run yet
    const uint64_t file = inode(first.segment);
    shared::store_word(first.segment.word(5), 12345);
    first.segment.chunk(3)[77] = std::byte{1};
    first.segment.ring()[100] = std::byte{1};
    first.segment.header().tail = 4096;
    spares.give_back(std::move(first));
    spares.start();
    // Ready ones are handed out in the order in which they came.
    PreparedSegment again = take(spares, 2);
    for (int i = 0; i < 100000 && inode(again.segment) != file; ++i) {
      spares.give_back(std::move(again));
      std::this_thread::yield();
      again = take(spares, 2);
    }
    ASSERT_EQ(inode(again.segment), file);
    EXPECT_EQ(again.segment.header().session_id, 2u);
    EXPECT_EQ(again.segment.header().magic, abi::kSegmentMagic);
    EXPECT_EQ(again.segment.header().tail, 0u);
    EXPECT_EQ(shared::load_word(again.segment.word(5)), 0u);
    EXPECT_EQ(again.segment.chunk(3)[77], std::byte{0});
    EXPECT_EQ(again.segment.ring()[100], std::byte{0});
    spares.give_back(std::move(again));
  }
  EXPECT_EQ(registered.load(), before) << "the end gives all of them back to the driver";
}

TEST_F(SpareSegmentsTest, TrimmingLeavesTheTarget) {
  const int before = registered.load();
  SpareSegments spares(driver, gpus, 1);
  for (uint64_t i = 0; i < 5; ++i)
    spares.give_back(make(i));  // nobody asked for one: the target stays where it was
  spares.start();
  while (spares.counts().ready != 5) std::this_thread::yield();
  spares.trim();
  EXPECT_EQ(spares.counts().segments, 1u);
  EXPECT_EQ(spares.counts().ready, 1u);
  EXPECT_EQ(registered.load(), before + 5);
  spares.drop_old();
  EXPECT_EQ(registered.load(), before + 1);
}

TEST_F(SpareSegmentsTest, WhatIsKeptIsBoundedByItsSize) {
  int old = 0;
  SpareSegments spares(driver, gpus, 1, [&old](bool) { ++old; });
  constexpr auto kFit =
      static_cast<uint32_t>(limits::kKeptSegmentBytes / (abi::kFirstBytes + abi::kMoreChunksBytes));
  for (uint32_t i = 0; i < kFit; ++i) spares.give_back(make(i, true));
  EXPECT_EQ(spares.counts().segments, kFit);
  EXPECT_EQ(old, 0);
  for (uint32_t i = 0; i < 3; ++i) spares.give_back(make(i, true));
  EXPECT_EQ(spares.counts().segments, kFit);
  EXPECT_EQ(old, 3);
  EXPECT_FALSE(spares.counts().settled);
  // Small ones take the places of large ones, each of which makes room for several.
  for (uint32_t i = 0; i < 3; ++i) spares.give_back(make(i));
  EXPECT_GT(spares.counts().segments, kFit);
  spares.drop_old();
  EXPECT_TRUE(spares.counts().settled);
}

// Who gives them back may be held back; it hears when they become too many, from both doors.
TEST_F(SpareSegmentsTest, WhatIsNotUsedAgainIsBoundedByHaste) {
  bool too_many = false;
  SpareSegments spares(driver, gpus, 1, [&](bool now) { too_many = now; });
  const uint64_t most =
      (limits::kKeptSegmentBytes - 1) / (abi::kFirstBytes + abi::kMoreChunksBytes);
  for (uint64_t i = 0; i < most; ++i) spares.retire(make(i, true));
  EXPECT_FALSE(too_many);
  spares.retire(make(most, true));
  EXPECT_TRUE(too_many);
  too_many = false;
  spares.give_back(make(0));
  EXPECT_TRUE(too_many);
  spares.drop_old();
  spares.retire(make(0));
  EXPECT_FALSE(too_many);
}

TEST_F(SpareSegmentsTest, NoMoreFunctionsWhereOldOnesCannotBeGivenBack) {
  SpareSegments spares(driver, gpus, 1, {}, abi::kFirstBytes);
  spares.retire(make(1));
  (void)take(spares, 2);
  spares.retire(make(3));
  EXPECT_FALSE(spares.take(4).ok());
  spares.drop_old();
  (void)take(spares, 5);
}

TEST_F(SpareSegmentsTest, LaterChunksAreRegisteredAllOrNone) {
  const int before = registered.load();
  PreparedSegment one = make(7, true);
  EXPECT_EQ(registered.load(), before + 1 + static_cast<int>(abi::kLaterChunks));
  unregister_more_chunks(driver, one.segment);
  EXPECT_EQ(registered.load(), before + 1);
  static int left;
  left = 5;
  driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned int) {
    if (left-- == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    ++registered;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(register_more_chunks(driver, one.segment), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(registered.load(), before + 1);
}

}  // namespace
}  // namespace tube::proxy

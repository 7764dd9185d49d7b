// The values that let a dead client's waits pass: which comes when, and where nothing is written
// any more.
#include "proxy/waits/pending_waits.h"

#include <gtest/gtest.h>

#include <vector>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

PendingWait wait_for(const uint64_t& word, uint64_t value) {
  return {reinterpret_cast<CUdeviceptr>(&word), value, CU_STREAM_WAIT_VALUE_EQ, 8, true};
}

TEST(PendingWaitsTest, TheLastComeFirstAndEachWindowInOrder) {
  std::vector<size_t> turns;
  for (size_t step = 0; step < 13; ++step) turns.push_back(turn_of_wait(step, 5));
  EXPECT_EQ(turns, (std::vector<size_t>{4, 3, 4, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4}));
  for (size_t step = 0; step < 3; ++step) EXPECT_EQ(turn_of_wait(step, 1), 0u);
}

TEST(PendingWaitsTest, TheLastOfManyIsReachedSoon) {
  PendingWaits waits;
  uint64_t word = 0;
  for (uint64_t value = 1; value <= PendingWaits::kMost + 10; ++value)
    waits.add(wait_for(word, value), [] { return false; });
  EXPECT_EQ(waits.count(), PendingWaits::kMost);
  waits.pass();  // 1, then 2 of the last, then the first of the last 4
  EXPECT_EQ(word, PendingWaits::kMost + 10 - 3);
}

TEST(PendingWaitsTest, NothingIsWrittenToFreedMemory) {
  PendingWaits waits;
  uint64_t words[3] = {0, 0, 0};
  for (const uint64_t& word : words) waits.add(wait_for(word, 7), [] { return false; });
  waits.forget(reinterpret_cast<CUdeviceptr>(&words[1]), sizeof words[1]);
  waits.pass();
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[1], 0u);
  EXPECT_EQ(words[2], 7u);
}

// A stream that waits for several values of one word, one after the other, and seldom looks.
struct LateStream {
  uint64_t word = 0;
  std::vector<uint64_t> waits_for;
  int looks_every = 1;
  size_t passed = 0;
  int asked = 0;

  bool idle() {
    if (passed != waits_for.size() && ++asked % looks_every == 0 && word == waits_for[passed])
      ++passed;
    return passed == waits_for.size();
  }
};

Driver driver_without_work() {
  Driver driver{};
  driver.cuStreamCreate = [](CUstream*, unsigned) { return CUDA_SUCCESS; };
  driver.cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; };
  driver.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  return driver;
}

constexpr uint32_t kNoEnd = 600'000;  // milliseconds

TEST(PendingWaitsTest, AValueThatWasSeenTooLateComesAgain) {
  LateStream stream{.waits_for = {5, 6, 7}, .looks_every = 31};
  PendingWaits waits;
  for (uint64_t value : stream.waits_for)
    waits.add(wait_for(stream.word, value), [] { return false; });
  waits.release(
      driver_without_work(), kNoEnd, [&] { return stream.idle(); },
      [](const PendingWait&) { return PendingWaits::Reach::kHost; });
  EXPECT_TRUE(stream.idle());
  EXPECT_EQ(waits.count(), 0u);
}

// Its writes stand behind other work of the same hardware queue: one of them, not all.
TEST(PendingWaitsTest, TheGpuWritesTheNextValueWhenTheLastOneIsWritten) {
  static int written, asked;
  written = asked = 0;
  Driver driver = driver_without_work();
  driver.cuStreamQuery = [](CUstream) {
    return ++asked > 1 && asked < 4 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  driver.cuStreamWriteValue64_v2 = [](CUstream, CUdeviceptr address, cuuint64_t value, unsigned) {
    EXPECT_TRUE(written == 0 || asked >= 4);
    ++written;
    *reinterpret_cast<uint64_t*>(address) = value;
    return CUDA_SUCCESS;
  };
  LateStream stream{.waits_for = {5, 6, 7}};
  PendingWaits waits;
  for (uint64_t value : stream.waits_for)
    waits.add(wait_for(stream.word, value), [] { return false; });
  waits.release(
      driver, kNoEnd, [&] { return stream.idle(); },
      [](const PendingWait&) { return PendingWaits::Reach::kGpu; });
  EXPECT_TRUE(stream.idle());
}

}  // namespace
}  // namespace tube::proxy

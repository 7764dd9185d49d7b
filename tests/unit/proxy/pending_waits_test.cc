// The values that let a dead client's waits pass: which comes when, and where nothing is written
// any more.
#include "proxy/session/pending_waits.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace tube::proxy

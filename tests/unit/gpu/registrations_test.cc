// Registering host memory: one piece at a time, counted by whose it is.
#include "proxy/gpu/registrations.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "protocol/driver_table.gen.h"
#include "proxy/memory/host_arena.h"
#include "tests/support/units.h"

namespace tube::proxy {
namespace {

class RegistrationsTest : public ::testing::Test {
 protected:
  RegistrationsTest() {
    at_once = most_at_once = alive = 0;
    fails = false;
    driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned int) {
      const int now = ++at_once;
      int most = most_at_once.load();
      while (most < now && !most_at_once.compare_exchange_weak(most, now)) {
      }
      std::this_thread::yield();
      --at_once;
      if (fails) return CUDA_ERROR_OUT_OF_MEMORY;
      ++alive;
      return CUDA_SUCCESS;
    };
    driver.cuMemHostUnregister = [](void*) {
      --alive;
      return CUDA_SUCCESS;
    };
  }

  CUresult add(Registrant who, Registrations::Need need) {
    return registrations.add(driver, who, 1, &byte, 1, 0, need);
  }

  static inline std::atomic<int> at_once{0}, most_at_once{0}, alive{0};
  static inline std::atomic<bool> fails{false};
  Driver driver{};
  Registrations registrations;
  char byte = 0;
};

TEST_F(RegistrationsTest, OnePieceAtATime) {
  std::atomic<int> looked{0};
  registrations.look_at([&](uint64_t owner) {
    EXPECT_EQ(owner, 1u);
    return ++looked % 3 == 0 ? policies::Company::kBetween : policies::Company::kAtWork;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this, i] {
      for (int n = 0; n < 20; ++n)
        EXPECT_EQ(add(i % 2 == 0 ? Registrant::kChunks : Registrant::kEvicted,
                      i < 2 ? Registrations::Need::kAhead : Registrations::Need::kNow),
                  CUDA_SUCCESS);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most_at_once.load(), 1);
  EXPECT_GE(looked.load(), 40);
  EXPECT_EQ(registrations.counts(Registrant::kChunks).added, 40u);
  EXPECT_EQ(registrations.counts(Registrant::kEvicted).added, 40u);
  EXPECT_EQ(registrations.counts(Registrant::kEvicted).on_request, 20u);
}

TEST_F(RegistrationsTest, CountsWhoseItIs) {
  EXPECT_EQ(registrations.company(1), policies::Company::kNone);
  EXPECT_EQ(
      registrations.add(driver, Registrant::kPinned, 1, &byte, 7, 0, Registrations::Need::kAhead),
      CUDA_SUCCESS);
  fails = true;
  EXPECT_EQ(add(Registrant::kPinned, Registrations::Need::kNow), CUDA_ERROR_OUT_OF_MEMORY);
  fails = false;
  EXPECT_EQ(registrations.remove(driver, Registrant::kPinned, &byte), CUDA_SUCCESS);
  const Registrations::Counts counts = registrations.counts(Registrant::kPinned);
  EXPECT_EQ(counts.added, 1u);
  EXPECT_EQ(counts.added_bytes, 7u);
  EXPECT_EQ(counts.on_request, 0u);
  EXPECT_EQ(counts.failed, 1u);
  EXPECT_EQ(counts.removed, 1u);
  EXPECT_EQ(registrations.counts(Registrant::kFiles).added, 0u);
}

TEST_F(RegistrationsTest, TheArenaMakesChunksAheadAndOnRequest) {
  HostArena arena(driver, 20 * kMiB, nullptr, &registrations);
  while (arena.make_ahead(10 * kMiB)) {
  }
  EXPECT_EQ(arena.counts().held_bytes, 12 * kMiB);
  EXPECT_EQ(arena.counts().made_ahead_bytes, 12 * kMiB);
  auto first = arena.take(6 * kMiB);
  auto second = arena.take(6 * kMiB);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(arena.counts().made_on_request_bytes, 0u);
  auto third = arena.take(5 * kMiB);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(arena.counts().made_on_request_bytes, 8 * kMiB);
  EXPECT_EQ(arena.take(4 * kMiB), nullptr);
  // One copy's bytes behind another's.
  const size_t pieces = first->pieces().size() + third->pieces().size();
  first->join(*third);
  third.reset();
  EXPECT_EQ(first->pieces().size(), pieces);
  EXPECT_EQ(first->bytes(), 12 * kMiB);
  EXPECT_EQ(arena.counts().used_bytes, 18 * kMiB);
  first.reset();
  second.reset();
  EXPECT_EQ(arena.counts().used_bytes, 0u);
  auto all = arena.take(20 * kMiB);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(alive.load(), 5);
  all.reset();
  arena.drop_idle();
  EXPECT_EQ(arena.counts().held_bytes, 0u);
  EXPECT_EQ(alive.load(), 0);
}

TEST_F(RegistrationsTest, TheArenaLosesNothingWhenTheDriverRefuses) {
  HostArena arena(driver, 20 * kMiB, nullptr, &registrations);
  fails = true;
  EXPECT_FALSE(arena.make_ahead(20 * kMiB));
  EXPECT_EQ(arena.take(2 * kMiB), nullptr);
  EXPECT_EQ(arena.counts().held_bytes, 0u);
  fails = false;
  EXPECT_NE(arena.take(2 * kMiB), nullptr);
  EXPECT_EQ(arena.counts().used_bytes, 0u);
  arena.drop_idle();
}

}  // namespace
}  // namespace tube::proxy

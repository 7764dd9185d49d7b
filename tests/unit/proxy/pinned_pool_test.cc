// Pools of pinned memory: which requests they serve, what is made ahead, what the next client
// finds.
#include "proxy/memory/pinned_pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/pinned_blocks.h"
#include "proxy/memory/pinned_pools.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kPage = 4096;

TEST(PinnedBlocks, NoRequestLiesAcrossTwoBlocks) {
  PinnedBlocks blocks;
  blocks.add(0x100000, 0x4000);
  blocks.add(0x104000, 0x4000);
  EXPECT_EQ(blocks.take(0x5000, kPage), 0u);
  const uint64_t a = blocks.take(0x3000, kPage), b = blocks.take(0x3000, kPage);
  EXPECT_NE(a, b);
  EXPECT_EQ(blocks.largest_run(), 0x1000u);
  blocks.give(a, 0x3000);
  blocks.give(b, 0x3000);
  EXPECT_EQ(blocks.largest_run(), 0x4000u) << "neighbours merge within their block only";
  EXPECT_EQ(blocks.idle_bytes(), 0x8000u);
}

TEST(PinnedBlocks, TheSmallestRunThatFitsIsTaken) {
  PinnedBlocks blocks;
  blocks.add(0x100000, 0x8000);
  blocks.add(0x200000, 0x2000);
  EXPECT_EQ(blocks.take(0x2000, kPage), 0x200000u);
  EXPECT_EQ(blocks.take(0x2000, kPage), 0x100000u);
  EXPECT_EQ(blocks.take(0x1000, 0x4000), 0x104000u) << "aligned";
  EXPECT_EQ(blocks.take(0x2000, kPage), 0x102000u);
}

TEST(PinnedBlocks, OnlyIdleBlocksGo) {
  PinnedBlocks blocks;
  blocks.add(0x100000, 0x4000);
  blocks.add(0x200000, 0x2000);
  blocks.add(0x300000, 0x1000);
  EXPECT_EQ(blocks.take(0x3000, kPage), 0x100000u);
  const auto gone = blocks.remove_idle(0x2001);
  ASSERT_EQ(gone.size(), 2u);
  EXPECT_EQ(gone[0].base, 0x200000u);
  EXPECT_TRUE(blocks.remove_idle(UINT64_MAX).empty());
  EXPECT_EQ(blocks.held_bytes(), 0x4000u);
  blocks.give(0x100000, 0x3000);
  EXPECT_EQ(blocks.remove_idle(1).size(), 1u);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(blocks.idle_bytes(), 0u);
}

TEST(PinnedBlocks, ALargeBlockServesItsLikeOnly) {
  constexpr uint64_t kLarge = 1024 * kMiB;
  PinnedBlocks blocks;
  blocks.add(kLarge, kLarge);
  EXPECT_EQ(blocks.take(kMiB, kPage), 0u) << "it would keep all of the block from going back";
  EXPECT_EQ(blocks.largest_run(), 0u) << "so more is made ahead for such requests";
  EXPECT_EQ(blocks.take(600 * kMiB, kPage), kLarge);
  EXPECT_EQ(blocks.take(400 * kMiB, kPage), 0u);
  blocks.add(4 * kLarge, 256 * kMiB);
  EXPECT_EQ(blocks.take(kMiB, kPage), 4 * kLarge);
  EXPECT_EQ(blocks.largest_run(), 255 * kMiB);
}

TEST(PinnedBlocks, WhatCouldGoBackIsCounted) {
  PinnedBlocks blocks;
  blocks.add(0x100000, 0x4000);
  blocks.add(0x200000, 0x2000);
  EXPECT_EQ(blocks.returnable_bytes(), 0x6000u);
  const uint64_t one = blocks.take(0x3000, kPage), two = blocks.take(0x1000, kPage);
  EXPECT_EQ(blocks.returnable_bytes(), 0x2000u) << "both lie in the first";
  blocks.give(one, 0x3000);
  EXPECT_EQ(blocks.returnable_bytes(), 0x2000u);
  blocks.give(two, 0x1000);
  EXPECT_EQ(blocks.returnable_bytes(), 0x6000u);
  (void)blocks.take(0x2000, kPage);
  blocks.give_all();
  EXPECT_EQ(blocks.returnable_bytes(), 0x6000u);
  (void)blocks.remove_idle(UINT64_MAX);
  EXPECT_EQ(blocks.returnable_bytes(), 0u);
}

// Against a plain map of what is taken.
TEST(PinnedBlocks, RandomRequestsNeverOverlap) {
  std::mt19937 random(7);
  PinnedBlocks blocks;
  std::map<uint64_t, uint64_t> taken;
  uint64_t next = 0x1000000, sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bytes = (random() % 16 + 1) * kPage;
    if (random() % 2 != 0) {
      uint64_t at = blocks.take(bytes, random() % 4 == 0 ? 4 * kPage : kPage);
      if (at == 0) {
        blocks.add(next, 20 * kPage);
        next += 20 * kPage;
        at = blocks.take(bytes, kPage);
      }
      ASSERT_NE(at, 0u);
      const auto behind = taken.lower_bound(at);
      ASSERT_TRUE(behind == taken.end() || at + bytes <= behind->first);
      ASSERT_TRUE(behind == taken.begin() ||
                  std::prev(behind)->first + std::prev(behind)->second <= at);
      taken[at] = bytes;
      sum += bytes;
    } else if (!taken.empty()) {
      const auto it = std::next(taken.begin(), random() % taken.size());
      blocks.give(it->first, it->second);
      sum -= it->second;
      taken.erase(it);
    }
    if (i % 100 == 0) (void)blocks.remove_idle(random() % (64 * kPage));
    ASSERT_EQ(blocks.held_bytes() - blocks.idle_bytes(), sum);
  }
}

class PinnedPoolTest : public ::testing::Test {
 protected:
  PinnedPoolTest() : driver(test::make_fake_driver()), gpus(driver), map(driver, gpus) {
    EXPECT_TRUE(gpus.open().ok());
    while (window < windows::kCandidates && !map.take_window(window)) ++window;
    registered = 0;
    driver.cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned int) {
      ++registered;
      while (hold) std::this_thread::yield();
      return refuse ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    };
    driver.cuMemHostUnregister = [](void*) {
      --registered;
      return CUDA_SUCCESS;
    };
    refuse = hold = false;
  }

  std::shared_ptr<PinnedPool> open(uint32_t slot = 3, Registrations* registrations = nullptr) {
    Result<std::shared_ptr<PinnedPool>> made =
        PinnedPool::open(driver, window, slot, nullptr, registrations);
    EXPECT_TRUE(made.ok());
    return made.take();
  }

  static CUresult make_ahead(PinnedPool& pool, uint64_t bytes) {
    const CUresult error = pool.touch(bytes);
    if (error != CUDA_SUCCESS) return error;
    return pool.register_ahead(bytes, 0) == PinnedPool::Ahead::kMade ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_OUT_OF_MEMORY;
  }

  // What a client's process does: its mapping keeps a lock.
  struct Attached {
    explicit Attached(const PinnedPool& pool) {
      Result<UniqueFd> own = shared::open_locked(pool.fd());
      EXPECT_TRUE(own.ok());
      Result<Mapping> mapped =
          Mapping::map(own->get(), 0, windows::kPinnedSlotBytes, PROT_READ | PROT_WRITE);
      EXPECT_TRUE(mapped.ok());
      memory = mapped.take();
    }
    Mapping memory;
  };

  static inline std::atomic<int> registered{0};
  static inline std::atomic<bool> refuse{false};
  static inline std::atomic<bool> hold{false};  // what is being registered waits
  Driver driver;
  Gpus gpus;
  MemoryMap map;
  uint32_t window = 0;
};

TEST_F(PinnedPoolTest, ARequestThatFindsMemoryCallsNoDriver) {
  const auto pool = open();
  EXPECT_EQ(pool->take(kMiB), 0u);
  ASSERT_EQ(make_ahead(*pool, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(registered.load(), 1);
  const uint64_t one = pool->take(3 * kMiB), two = pool->take(4 * kMiB);
  EXPECT_NE(one, 0u);
  EXPECT_NE(two, 0u);
  EXPECT_EQ(pool->take(4 * kMiB), 0u);
  std::memset(reinterpret_cast<void*>(two), 1, 4 * kMiB);
  pool->give(two, 4 * kMiB);
  EXPECT_EQ(pool->take(4 * kMiB), two);
  EXPECT_EQ(registered.load(), 1);
  pool->close();
  EXPECT_EQ(registered.load(), 0);
}

TEST_F(PinnedPoolTest, ARefusedRegistrationLeavesNothing) {
  const auto pool = open();
  refuse = true;
  uint64_t at = 0;
  EXPECT_EQ(pool->make(8 * kMiB, &at), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool->held_bytes(), 0u);
  refuse = false;
  EXPECT_EQ(pool->make(8 * kMiB, &at), CUDA_SUCCESS);
  pool->give(at, 8 * kMiB);
  EXPECT_EQ(pool->make(windows::kPinnedSlotBytes, &at), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PinnedPoolTest, TheJanitorTakesWhatIsIdle) {
  const auto pool = open();
  uint64_t used = 0, idle = 0;
  ASSERT_EQ(pool->make(4 * kMiB, &used), CUDA_SUCCESS);
  ASSERT_EQ(pool->make(2 * kMiB, &idle), CUDA_SUCCESS);
  std::memset(reinterpret_cast<void*>(used), 5, 4 * kMiB);
  pool->give(idle, 2 * kMiB);
  pool->unregister_idle(UINT64_MAX);
  EXPECT_EQ(registered.load(), 1);
  EXPECT_EQ(pool->held_bytes(), 4 * kMiB);
  EXPECT_EQ(pool->take(kMiB), 0u);
  pool->release_unregistered();
  EXPECT_EQ(*reinterpret_cast<uint8_t*>(used), 5);
  uint64_t again = 0;
  ASSERT_EQ(pool->make(2 * kMiB, &again), CUDA_SUCCESS);
  EXPECT_EQ(again, idle) << "its addresses are free again";
}

TEST_F(PinnedPoolTest, TheNextClientFindsNoByteOfTheLast) {
  const auto pool = open();
  uint64_t at = 0;
  ASSERT_EQ(pool->make(4 * kMiB, &at), CUDA_SUCCESS);
  ASSERT_EQ(make_ahead(*pool, 4 * kMiB), CUDA_SUCCESS);
  const uint64_t base = windows::pinned_base(window, 3);
  {
    Attached client(*pool);
    pool->look();
    // In its allocation, in what was made ahead, and where nothing was ever allocated.
    for (uint64_t offset : {at - base, at - base + 6 * kMiB, at - base + 20 * kMiB,
                            windows::kPinnedSlotBytes - kPage})
      client.memory.data()[offset] = std::byte{77};
    pool->leave(true, now_ns());
    EXPECT_FALSE(pool->wipe()) << "it is still mapped";
    EXPECT_FALSE(pool->ready());
  }
  EXPECT_TRUE(pool->wipe());
  ASSERT_TRUE(pool->ready());
  pool->begin();
  Attached next(*pool);
  for (uint64_t offset :
       {at - base, at - base + 6 * kMiB, at - base + 20 * kMiB, windows::kPinnedSlotBytes - kPage})
    EXPECT_EQ(next.memory.data()[offset], std::byte{0}) << offset;
  EXPECT_EQ(registered.load(), 2);
  EXPECT_EQ(pool->take(4 * kMiB), at);
}

TEST_F(PinnedPoolTest, WithoutALockItServesNoOther) {
  const auto pool = open();
  ASSERT_EQ(make_ahead(*pool, kMiB), CUDA_SUCCESS);
  pool->look();  // no client has it
  pool->leave(true, now_ns());
  EXPECT_FALSE(pool->wipe());
  const auto other = open(4);
  ASSERT_EQ(make_ahead(*other, kMiB), CUDA_SUCCESS);
  other->leave(false, now_ns());
  EXPECT_FALSE(other->reusable());
  EXPECT_FALSE(other->wipe());
}

class PinnedPoolsTest : public PinnedPoolTest {
 protected:
  static void wait_until(const std::function<bool()>& done) {
    while (!done()) std::this_thread::yield();
  }
};

TEST_F(PinnedPoolsTest, ARequestBringsMemoryForTheNext) {
  PinnedPools pools(driver, gpus, {256 * kMiB}, {});
  const auto pool = open();
  pools.add(pool, 1);
  pools.start();
  uint64_t at = 0;
  ASSERT_EQ(pool->make(10 * kMiB, &at), CUDA_SUCCESS);
  pools.asked(*pool, 10 * kMiB, false);
  wait_until([&] { return pools.counts().made_ahead == 1; });
  const int before = registered.load();
  EXPECT_NE(pool->take(10 * kMiB), 0u);
  EXPECT_EQ(registered.load(), before);
  EXPECT_EQ(pools.counts().misses, 1u);
  EXPECT_EQ(pools.counts().held_bytes, 42 * kMiB);
  pools.close();
}

// Registering makes everybody stand still, so it waits until nobody else is at work; a request that
// comes first finds the pages at least.
TEST_F(PinnedPoolsTest, LargePiecesAreRegisteredWhenItDisturbsNobody) {
  PinnedPools pools(driver, gpus, {1024 * kMiB}, {});
  std::atomic<bool> alone{false};
  gpus.registrations().look_at([&](uint64_t owner) {
    return owner == 7 && alone ? policies::Company::kNone : policies::Company::kAtWork;
  });
  const auto pool = open();
  pools.add(pool, 7);
  pools.start();
  uint64_t at = 0;
  ASSERT_EQ(pool->make(64 * kMiB, &at), CUDA_SUCCESS);
  pools.asked(*pool, 64 * kMiB, false);
  wait_until([&] { return pool->touched_bytes() == 64 * kMiB; });
  EXPECT_EQ(registered.load(), 1);
  EXPECT_EQ(pool->take(64 * kMiB), 0u);
  EXPECT_NE(pool->take_registering(64 * kMiB), 0u);
  EXPECT_EQ(registered.load(), 2);
  pools.asked(*pool, 64 * kMiB, true);
  wait_until([&] { return pool->touched_bytes() == 64 * kMiB; });
  EXPECT_EQ(registered.load(), 2);
  alone = true;
  pools.asked(*pool, 64 * kMiB, true);
  wait_until([&] { return pools.counts().made_ahead == 1; });
  EXPECT_EQ(registered.load(), 3);
  EXPECT_EQ(pool->touched_bytes(), 0u);
  pools.close();
}

// Until the driver has a block it is the request's that comes for it.
TEST_F(PinnedPoolsTest, ARequestTakesTheBlockThatStandsBack) {
  std::atomic<bool> stands_back{false};
  gpus.registrations().look_at([&](uint64_t) {
    stands_back = true;
    return policies::Company::kAtWork;
  });
  PinnedPools pools(driver, gpus, {256 * kMiB}, {});
  const auto pool = open(3, &gpus.registrations());
  pools.add(pool, 7);
  hold = true;
  std::thread other([&] {
    (void)gpus.registrations().add(driver, Registrant::kChunks, 0, nullptr, kMiB, 0,
                                   Registrations::Need::kNow);
  });
  wait_until([] { return registered.load() == 1; });
  pools.start();
  pools.asked(*pool, kMiB, false);
  wait_until([&] { return stands_back.load(); });
  bool got = false;
  std::thread request([&] { got = pool->take_registering(kMiB) != 0; });
  hold = false;
  other.join();
  request.join();
  EXPECT_TRUE(got);
  pools.close();
}

TEST_F(PinnedPoolsTest, ARequestWaitsForTheBlockInHand) {
  PinnedPools pools(driver, gpus, {256 * kMiB}, {});
  const auto pool = open(3, &gpus.registrations());
  pools.add(pool, 7);
  hold = true;
  pools.start();
  pools.asked(*pool, kMiB, false);
  wait_until([] { return registered.load() == 1; });
  bool got = false;
  std::thread request([&] { got = pool->take_registering(kMiB) != 0; });
  hold = false;
  request.join();
  EXPECT_TRUE(got);
  pools.close();
}

// As of a pool that was abandoned: the thread does not ask for ever.
TEST_F(PinnedPoolsTest, NothingIsRegisteredAheadForNobody) {
  const auto pool = open();
  EXPECT_EQ(pool->register_ahead(kMiB, 7), PinnedPool::Ahead::kNotWanted);
  ASSERT_EQ(pool->touch(kMiB), CUDA_SUCCESS);
  pool->abandon();
  EXPECT_EQ(pool->register_ahead(kMiB, 7), PinnedPool::Ahead::kRefused);
  EXPECT_EQ(registered.load(), 0);
}

TEST_F(PinnedPoolsTest, WhatIsOnlyTouchedGoesBackWithoutTheDriver) {
  const auto pool = open();
  ASSERT_EQ(pool->touch(8 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(pool->held_bytes(), 8 * kMiB);
  EXPECT_EQ(pool->returnable_bytes(), 8 * kMiB);
  pool->unregister_idle(1);
  pool->release_unregistered();
  EXPECT_EQ(pool->held_bytes(), 0u);
  EXPECT_EQ(pool->leaving_bytes(), 0u);
  EXPECT_TRUE(pool->empty());
  EXPECT_EQ(registered.load(), 0);
}

TEST_F(PinnedPoolsTest, WhatCannotBeMadeIsNotTriedAgainUnasked) {
  PinnedPools pools(driver, gpus, {256 * kMiB}, {});
  const auto pool = open();
  pools.add(pool, 1);
  refuse = true;
  pools.start();
  pools.asked(*pool, kMiB, false);
  wait_until([&] { return registered.load() == 1; });
  pools.close();
  EXPECT_EQ(registered.load(), 1);
  EXPECT_EQ(pools.counts().made_ahead, 0u);
  registered = 0;
}

TEST_F(PinnedPoolsTest, WhatExceedsTheBudgetIsTheJanitors) {
  int told = 0;
  PinnedPools pools(driver, gpus, {16 * kMiB}, [&](bool) { return ++told != 0; });
  const auto pool = open();
  pools.add(pool, 1);
  uint64_t one = 0, two = 0;
  ASSERT_EQ(pool->make(8 * kMiB, &one), CUDA_SUCCESS);
  ASSERT_EQ(pool->make(4 * kMiB, &two), CUDA_SUCCESS);
  pool->give(one, 8 * kMiB);
  pools.freed(*pool);
  EXPECT_EQ(told, 0);
  pool->give(two, 4 * kMiB);
  pools.freed(*pool);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(registered.load(), 2) << "the session unregisters nothing";
  pools.drop_surplus();
  pools.release_surplus();
  EXPECT_EQ(registered.load(), 1);
  EXPECT_LE(pool->idle_bytes(), 8 * kMiB);
  pools.remove(*pool);
}

// A block of which a part is used cannot go back: the janitor is not asked for it at every free and
// every two seconds, nobody waits for it.
TEST_F(PinnedPoolsTest, WhatCannotGoBackIsNotAskedFor) {
  int told = 0;
  PinnedPools pools(driver, gpus, {16 * kMiB}, [&](bool) { return ++told != 0; });
  const auto pool = open();
  pools.add(pool, 1);
  ASSERT_EQ(make_ahead(*pool, 32 * kMiB), CUDA_SUCCESS);
  const uint64_t large = pool->take(30 * kMiB), small = pool->take(kMiB);
  pool->give(large, 30 * kMiB);
  pools.freed(*pool);
  EXPECT_GT(pool->idle_bytes(), pools.budget().client_bytes());
  EXPECT_EQ(told, 0);
  EXPECT_FALSE(pools.make_room()) << "there is none to be had";
  EXPECT_EQ(told, 0);
  pool->give(small, kMiB);
  pools.freed(*pool);
  EXPECT_EQ(told, 1);
  pools.remove(*pool);
}

TEST_F(PinnedPoolsTest, WhenMemoryRunsOutAllIdleGoes) {
  PinnedPools* known = nullptr;
  PinnedPools pools(driver, gpus, {256 * kMiB}, [&](bool now) {
    EXPECT_TRUE(now);
    known->drop_surplus();
    known->release_surplus();
    return true;
  });
  known = &pools;
  EXPECT_FALSE(pools.make_room());
  const auto pool = open();
  pools.add(pool, 1);
  ASSERT_EQ(make_ahead(*pool, 8 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(pools.make_room());
  EXPECT_EQ(pool->held_bytes(), 0u);
  EXPECT_FALSE(pools.making_room());
}

// Between the janitor's two calls memory is not idle any more and not free yet: whoever runs out
// then waits for it.
TEST_F(PinnedPoolsTest, WhatIsOnItsWayBackIsWaitedFor) {
  PinnedPools* known = nullptr;
  int told = 0;
  PinnedPools pools(driver, gpus, {16 * kMiB}, [&](bool) {
    known->release_surplus();
    return ++told != 0;
  });
  known = &pools;
  const auto pool = open();
  pools.add(pool, 1);
  ASSERT_EQ(make_ahead(*pool, 32 * kMiB), CUDA_SUCCESS);
  pools.drop_surplus();
  EXPECT_EQ(pool->held_bytes(), 0u);
  EXPECT_TRUE(pools.make_room());
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(pools.make_room()) << "all of it is back";
  pools.remove(*pool);
}

// What the janitor gave back is for the request that waits for it, not for others' next ones.
TEST_F(PinnedPoolsTest, NothingIsMadeAheadOfWhatMemoryRanOutFor) {
  PinnedPools* known = nullptr;
  PinnedPools pools(driver, gpus, {256 * kMiB}, [&](bool now) {
    if (!now) return false;
    known->drop_surplus();
    known->release_surplus();
    return true;
  });
  known = &pools;
  const auto other = open(), mine = open(4);
  pools.add(other, 1);
  pools.add(mine, 2);
  pools.asked(*other, 8 * kMiB, false);
  ASSERT_EQ(make_ahead(*other, 32 * kMiB), CUDA_SUCCESS);
  EXPECT_TRUE(pools.make_room());
  EXPECT_EQ(other->held_bytes(), 0u);
  pools.start();
  pools.asked(*mine, 8 * kMiB, false);  // so that the thread looks at both
  wait_until([&] { return mine->held_bytes() != 0; });
  EXPECT_EQ(other->held_bytes(), 0u);
  pools.asked(*other, 8 * kMiB, false);
  wait_until([&] { return other->held_bytes() != 0; });
  pools.close();
  pools.remove(*other);
  pools.remove(*mine);
}

// Also when the thread had nothing to watch before.
TEST_F(PinnedPoolsTest, WhatIsFreedIsWatched) {
  std::atomic<int> told{0};
  PinnedPools pools(driver, gpus, {256 * kMiB}, [&](bool) { return ++told != 0; });
  const auto pool = open();
  pools.add(pool, 1);
  uint64_t at = 0;
  ASSERT_EQ(pool->make(8 * kMiB, &at), CUDA_SUCCESS);
  pools.start();
  wait_until([&] { return pools.asleep(); });
  pool->give(at, 8 * kMiB);
  pools.freed(*pool);
  wait_until([&] { return !pools.asleep(); });
  EXPECT_EQ(told.load(), 0);
  pools.close();
  pools.remove(*pool);
}

TEST_F(PinnedPoolsTest, WhatIsLeftBeyondTheBudgetGoesAtOnce) {
  std::atomic<int> told{0};
  PinnedPools pools(driver, gpus, {16 * kMiB}, [&](bool) { return ++told != 0; });
  const auto pool = open();
  pools.add(pool, 1);
  ASSERT_EQ(make_ahead(*pool, 32 * kMiB), CUDA_SUCCESS);
  pool->leave(true, now_ns());
  pools.left(*pool);
  pools.start();
  wait_until([&] { return told.load() != 0; });
  EXPECT_FALSE(pools.expired(*pool)) << "not only once it has been idle for long";
  pools.close();
  pools.remove(*pool);
}

TEST_F(PinnedPoolsTest, APoolThatWasLeftIsWipedForTheNextClient) {
  PinnedPools pools(driver, gpus, {256 * kMiB}, [](bool) { return true; });
  pools.start();
  const auto pool = open();
  pools.add(pool, 1);
  ASSERT_EQ(make_ahead(*pool, 8 * kMiB), CUDA_SUCCESS);
  {
    Attached client(*pool);
    pool->look();
    pool->leave(true, now_ns());
    pools.left(*pool);
    EXPECT_EQ(pools.counts().left, 1u);
    EXPECT_EQ(pools.counts().ready, 0u);
  }
  wait_until([&] { return pools.counts().ready == 1; });
  EXPECT_EQ(pools.excess_bytes(), 0u);
  pools.remove(*pool);
  pool->settle();  // as the janitor does
  pool->close();
  EXPECT_EQ(registered.load(), 0);
}

}  // namespace
}  // namespace tube::proxy

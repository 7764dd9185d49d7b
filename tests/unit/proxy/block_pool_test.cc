// Blocks that are kept for their client, taken without asking, and given back when memory is short:
// through a session's records, as the hook sends them.
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "sharedmem/offers.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class BlockPoolTest : public SessionTest {
 protected:
  BlockPoolTest() : pool(map, gpus, 1ull << 30) {  // the GPU has 1 GiB: 51 MiB of it
    shared.blocks = &pool;
    begin();
  }
  ~BlockPoolTest() override {
    session.reset();
    EXPECT_EQ(map.blocks(), 0u);
    EXPECT_EQ(map.regions(), 0u);
    EXPECT_EQ(map.budgets().now(0).held_bytes, 0u);
    EXPECT_EQ(map.budgets().idle_bytes(0), 0u);
    EXPECT_EQ(test::fake().live_memory, 0);
    EXPECT_EQ(test::fake().mappings, 0);
  }

  // A client without anything.
  void begin() {
    restart();
    offers.attach(client_segment);
  }
  struct Memory {
    shared::OfferedBlock block;
    uint64_t bytes = 0;
    bool posted = false;
  };
  CUresult ask(uint64_t bytes, Memory* memory) {
    wire::tubeMemAlloc alloc{};
    alloc.bytes = bytes;
    wire::tubeMemAlloc_reply reply{};
    const CUresult result = call(alloc, &reply);
    *memory = {offers.granted(reply.offer, reply.dptr), bytes, false};
    return result;
  }
  void say_taken(uint32_t number, uint64_t address, uint64_t bytes) {
    wire::tubeMemTake take{};
    take.offer = number;
    take.dptr = address;
    take.bytes = bytes;
    post(take);
  }
  // As the hook does it (hook/memory/allocator.cc).
  CUresult allocate(uint64_t bytes, Memory* memory) {
    const shared::OfferedBlock block = offers.take(0, bytes);
    if (block.number == 0) return ask(bytes, memory);
    *memory = {block, bytes, true};
    say_taken(block.number, block.address, bytes);
    return CUDA_SUCCESS;
  }
  Memory allocated(uint64_t bytes) {
    Memory memory;
    EXPECT_EQ(allocate(bytes, &memory), CUDA_SUCCESS);
    return memory;
  }
  void free(const Memory& memory, bool returns = true) {
    wire::tubeMemFree record{};
    record.dptr = memory.block.address;
    record.offer = returns ? memory.block.number : 0;
    post(record);
    if (returns) offers.give_back(memory.block.number, memory.block.generation);
  }
  bool covers(const Memory& memory) {
    return session->check_device_range(memory.block.address, memory.bytes) == CUDA_SUCCESS;
  }
  uint64_t held() { return session->account().now(0).held_bytes; }
  uint64_t idle() { return session->account().idle_bytes(0); }
  uint64_t posted() { return session->offers()->counts().posted.load(); }

  BlockPool pool;
  shared::Offers offers;
};

TEST_F(BlockPoolTest, WhatWasFreedIsTakenWithoutADriverCall) {
  const Memory first = allocated(3 * kMiB);
  EXPECT_FALSE(first.posted);
  EXPECT_EQ(held(), 4 * kMiB);
  free(first);
  EXPECT_EQ(held(), 0u) << "it counts as free";
  EXPECT_EQ(idle(), 4 * kMiB);
  EXPECT_FALSE(covers(first));
  const int mappings = test::fake().mappings;
  test::fake().next_memory = test::fake().next_map = CUDA_ERROR_UNKNOWN;
  const Memory second = allocated(4 * kMiB);
  test::fake().next_memory = test::fake().next_map = CUDA_SUCCESS;
  EXPECT_TRUE(second.posted);
  EXPECT_EQ(second.block.address, first.block.address);
  EXPECT_EQ(test::fake().mappings, mappings);
  EXPECT_TRUE(covers(second));
  EXPECT_EQ(held(), 4 * kMiB);
  EXPECT_EQ(idle(), 0u);
  EXPECT_EQ(session->device_bytes(), 4 * kMiB);
  EXPECT_EQ(async_error(), 0u);
}

TEST_F(BlockPoolTest, ARoundTripFindsWhatIsIdle) {
  const Memory first = allocated(4 * kMiB);
  free(first);
  Memory second;
  ASSERT_EQ(ask(4 * kMiB, &second), CUDA_SUCCESS);
  EXPECT_EQ(second.block.address, first.block.address);
  EXPECT_EQ(offers.take(0, 4 * kMiB).number, 0u) << "nobody else takes it";
  EXPECT_EQ(session->offers()->counts().reused.load(), 1u);
}

TEST_F(BlockPoolTest, SmallMemoryIsNotOffered) {
  const Memory small = allocated(kMiB);
  EXPECT_EQ(small.block.number, 0u);
  free(small);
  EXPECT_EQ(idle(), 0u);
}

TEST_F(BlockPoolTest, TheProxyReturnsWhatTheClientDoesNot) {
  const Memory first = allocated(4 * kMiB);
  free(first, false);
  EXPECT_EQ(idle(), 4 * kMiB);
  EXPECT_TRUE(allocated(4 * kMiB).posted);
}

TEST_F(BlockPoolTest, LiesEndTheClientAlone) {
  const auto lie = [&](uint32_t number, uint64_t address, uint64_t bytes, const char* what) {
    begin();
    const Memory held_memory = allocated(4 * kMiB), kept = allocated(6 * kMiB);
    free(kept);
    ASSERT_EQ(kept.block.number, 2u);
    (void)held_memory;
    say_taken(number, address == 0 ? kept.block.address : address, bytes);
    EXPECT_TRUE(session->poisoned()) << what;
  };
  lie(1, 0, 4 * kMiB, "another block's address");
  lie(0, 0, 6 * kMiB, "no offer");
  lie(3, 0, 6 * kMiB, "an offer that was never made");
  lie(UINT32_MAX, 0, 6 * kMiB, "no number");
  lie(2, 1, 6 * kMiB, "another address");
  lie(2, 0, 7 * kMiB, "more than there is");
  lie(2, 0, 2 * kMiB, "less than would be made");
  lie(2, 0, 0, "nothing");
  begin();
  const Memory memory = allocated(4 * kMiB);
  say_taken(memory.block.number, memory.block.address, 4 * kMiB);
  EXPECT_TRUE(session->poisoned()) << "memory that it has";
  begin();
  const Memory withdrawn = allocated(4 * kMiB);
  free(withdrawn);
  const shared::OfferedBlock taken = offers.take(0, 4 * kMiB);
  EXPECT_FALSE(pool.make_room(0, nullptr, 0, [] { return false; }));
  EXPECT_EQ(idle(), 4 * kMiB) << "it is the client's by now";
  say_taken(taken.number, taken.address, 4 * kMiB);
  EXPECT_FALSE(session->poisoned());
  free({taken, 4 * kMiB});
  EXPECT_FALSE(pool.make_room(0, nullptr, 0, [] { return false; }));
  EXPECT_EQ(idle(), 0u);
  say_taken(taken.number, taken.address, 4 * kMiB);
  EXPECT_TRUE(session->poisoned()) << "memory that went back to the driver";
}

TEST_F(BlockPoolTest, ALimitTakesIdleMemoryBackBeforeItRefuses) {
  session->account().set_limit(0, 8 * kMiB);
  const Memory first = allocated(4 * kMiB), second = allocated(4 * kMiB);
  Memory none;
  EXPECT_EQ(allocate(2 * kMiB, &none), CUDA_ERROR_OUT_OF_MEMORY);
  free(first);
  EXPECT_EQ(session->account().room(0), 4 * kMiB);
  EXPECT_EQ(allocate(6 * kMiB, &none), CUDA_ERROR_OUT_OF_MEMORY);
  const uint64_t refusals = session->account().refusals();
  const Memory third = allocated(2 * kMiB);
  EXPECT_EQ(held(), 6 * kMiB);
  free(second);
  free(third);
  EXPECT_EQ(session->account().refusals(), refusals);
}

TEST_F(BlockPoolTest, ASecondFunctionGetsWhatTheFirstOneKeeps) {
  map.budgets().set_limit(0, 8 * kMiB);
  free(allocated(8 * kMiB));
  EXPECT_EQ(idle(), 8 * kMiB);
  const auto other = map.budgets().open("other", policies::kNoMemoryLimit);
  MemoryCharge charge;
  EXPECT_EQ(other->charge(0, 8 * kMiB, &charge), CUDA_SUCCESS);
  EXPECT_EQ(idle(), 0u);
  EXPECT_EQ(offers.take(0, 8 * kMiB).number, 0u);
}

TEST_F(BlockPoolTest, WhenTheDriverHasNoneIdleMemoryGoesBack) {
  free(allocated(4 * kMiB));
  test::fake().next_memory = CUDA_ERROR_OUT_OF_MEMORY;
  Memory none;
  EXPECT_EQ(allocate(8 * kMiB, &none), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(idle(), 0u);
  EXPECT_EQ(test::fake().live_memory, 0);
  test::fake().next_memory = CUDA_SUCCESS;
}

TEST_F(BlockPoolTest, TheBoundHolds) {
  const uint64_t budget = pool.budget_bytes(0);
  std::vector<Memory> all;
  for (int i = 0; i < 20; ++i) all.push_back(allocated(4 * kMiB));
  for (const Memory& memory : all) {
    free(memory);
    // The client returns its offer behind the record: one may be too many until the next.
    EXPECT_LE(idle(), budget + 4 * kMiB);
  }
  EXPECT_GE(idle(), budget - 4 * kMiB);
  EXPECT_GT(session->offers()->counts().given_back.load(), 0u);
}

// The client has taken and returned the block again when the proxy sees that it was freed, and
// would take it back because it is too large to be kept.
TEST_F(BlockPoolTest, AClientAheadOfItsRecordsKeepsItsBlock) {
  Memory memory = allocated(100 * kMiB);
  drains = false;
  for (int i = 0; i < 3; ++i) {
    free(memory);
    memory = allocated(100 * kMiB);
    EXPECT_TRUE(memory.posted);
  }
  drains = true;
  session->drain_for_test();
  EXPECT_FALSE(session->poisoned());
  EXPECT_TRUE(covers(memory));
  EXPECT_EQ(posted(), 3u);
  free(memory);
}

TEST_F(BlockPoolTest, MemoryOfAContextThatEndsIsNotKept) {
  const Memory memory = allocated(4 * kMiB);
  session->sweep_context(1, false);
  EXPECT_EQ(idle(), 0u);
  EXPECT_EQ(map.blocks(), 0u);
  offers.give_back(memory.block.number, memory.block.generation);
  EXPECT_EQ(offers.take(0, 4 * kMiB).number, 0u);
}

TEST_F(BlockPoolTest, WhatOthersMayOpenIsNotKept) {
  const Memory memory = allocated(4 * kMiB);
  wire::tubeIpcGetMem get{};
  get.dptr = memory.block.address;
  wire::tubeIpcGetMem_reply reply{};
  ASSERT_EQ(call(get, &reply), CUDA_SUCCESS);
  free(memory, false);
  EXPECT_EQ(idle(), 0u);
  EXPECT_EQ(map.blocks(), 0u);
}

// The record that frees a block is kept back behind a held stream; the client has it again by then.
TEST_F(BlockPoolTest, ABlockIsTakenAgainBeforeItsFreeIsExecuted) {
  ParkKeys keys;
  keys.add(ParkKeys::object(wire::NamedKind::kStream, make_id(7, 1)), true);
  Memory memory = allocated(4 * kMiB);
  session->parked().hold(keys);
  for (int i = 0; i < 3; ++i) {
    free(memory);
    EXPECT_TRUE(covers(memory)) << "kept back";
    memory = allocated(4 * kMiB - kMiB * static_cast<uint64_t>(i % 2));
    EXPECT_TRUE(memory.posted);
    EXPECT_TRUE(covers(memory));
  }
  EXPECT_EQ(session->parked().count(), 3u);
  session->parked().let_go(keys);
  session->parked().release([&](const abi::RecordHeader&, std::span<const std::byte> payload) {
    wire::tubeMemFree record;
    std::memcpy(&record, payload.data(), sizeof(record));
    EXPECT_EQ(session->memory().free(record.dptr, record.offer != 0), CUDA_SUCCESS);
    return true;
  });
  EXPECT_TRUE(covers(memory));
  EXPECT_EQ(held(), 4 * kMiB);
  EXPECT_EQ(session->allocation_count(), 1u);
  free(memory);
  EXPECT_EQ(idle(), 4 * kMiB);
  EXPECT_FALSE(session->poisoned());
}

// Thousands of steps against what the client knows to have, with a driver that fails now and then.
TEST_F(BlockPoolTest, RandomProgramsHoldWhatTheyWereGiven) {
  std::mt19937 random(7);
  std::map<uint64_t, Memory> mine;
  uint64_t bytes = 0;
  session->account().set_limit(0, 64 * kMiB);
  const uint64_t sizes[] = {4096, kMiB, kMiB + 1, 2 * kMiB, 5 * kMiB, 6 * kMiB, 16 * kMiB};
  CUresult* const steps[] = {&test::fake().next_memory, &test::fake().next_map,
                             &test::fake().next_access};
  for (int step = 0; step < 6000; ++step) {
    if (random() % 2 == 0) {
      CUresult* failing = random() % 8 == 0 ? steps[random() % 3] : nullptr;
      if (failing != nullptr) *failing = CUDA_ERROR_UNKNOWN;
      Memory memory;
      const CUresult result = allocate(sizes[random() % std::size(sizes)], &memory);
      if (failing != nullptr) *failing = CUDA_SUCCESS;
      if (result != CUDA_SUCCESS) continue;
      auto next = mine.lower_bound(memory.block.address);
      ASSERT_TRUE(next == mine.end() || next->first >= memory.block.address + memory.bytes);
      ASSERT_TRUE(next == mine.begin() ||
                  std::prev(next)->first + std::prev(next)->second.bytes <= memory.block.address);
      mine[memory.block.address] = memory;
      bytes += memory.bytes;
    } else if (!mine.empty()) {
      const auto which = std::next(mine.begin(), static_cast<int>(random() % mine.size()));
      free(which->second, random() % 4 != 0);
      bytes -= which->second.bytes;
      mine.erase(which);
    }
    if (random() % 100 == 0) (void)pool.make_room(0, nullptr, 0, [] { return false; });
    ASSERT_EQ(session->device_bytes(), bytes);
    ASSERT_EQ(session->allocation_count(), mine.size());
    ASSERT_LE(held(), 64 * kMiB);
    ASSERT_GE(held(), bytes);
  }
  for (const auto& [address, memory] : mine) EXPECT_TRUE(covers(memory));
  EXPECT_GT(posted(), 500u);
  EXPECT_EQ(async_error(), 0u);
  EXPECT_FALSE(session->poisoned());
}

TEST_F(BlockPoolTest, AnEndAtAnyPointGivesEverythingBack) {
  for (int point = 0; point < 5; ++point) {
    begin();
    const Memory memory = allocated(4 * kMiB), other = allocated(6 * kMiB);
    if (point > 0) {
      wire::tubeMemFree record{};
      record.dptr = memory.block.address;
      record.offer = memory.block.number;
      post(record);
    }
    if (point > 1) offers.give_back(memory.block.number, memory.block.generation);
    if (point > 2) (void)offers.take(0, 4 * kMiB);
    if (point > 3) say_taken(memory.block.number, memory.block.address, 4 * kMiB);
    (void)other;
    session.reset();
    EXPECT_EQ(map.blocks(), 0u) << point;
    EXPECT_EQ(test::fake().live_memory, 0) << point;
    EXPECT_EQ(map.budgets().now(0).held_bytes, 0u) << point;
  }
  begin();
}

TEST_F(BlockPoolTest, ASizeThatIsAskedForAgainIsMadeAhead) {
  pool.start();
  const BlockOffers::Counts& counts = session->offers()->counts();
  (void)allocated(2 * kMiB);
  EXPECT_EQ(counts.ahead.load(), 0u);
  (void)allocated(2 * kMiB);
  while (counts.ahead.load() == 0) std::this_thread::yield();
  EXPECT_TRUE(allocated(2 * kMiB).posted);
  while (counts.ahead.load() == 1) std::this_thread::yield();
  EXPECT_LE(idle(), pool.budget_bytes(0));
  session.reset();
  pool.close();
}

TEST_F(BlockPoolTest, MoreBlocksThanOffersAreKeptAllTheSame) {
  std::vector<Memory> all;
  for (uint32_t i = 0; i < abi::kOffers + 20; ++i) all.push_back(allocated(2 * kMiB));
  EXPECT_EQ(all.back().block.number, 0u);
  free(all.back());
  all.pop_back();
  EXPECT_EQ(idle(), 2 * kMiB);
  all.push_back(allocated(2 * kMiB));
  EXPECT_TRUE(all.back().posted);
  for (const Memory& memory : all) free(memory);
  EXPECT_LE(idle(), pool.budget_bytes(0) + 2 * kMiB);
}

}  // namespace
}  // namespace tube::proxy

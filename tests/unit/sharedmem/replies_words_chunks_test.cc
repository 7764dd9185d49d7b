// Reply slots, progress words, staging chunks: who owns what when, and how waits on them end.
#include <thread>
#include <vector>

#include "sharedmem/accessors.h"
#include "tests/unit/sharedmem/support.h"

namespace tube::shared {
namespace {

class Replies : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    slots.attach(client, waiter, peer);
  }
  ReplySlots slots;
};

TEST_F(Replies, EveryCallerHasASlotOfItsOwn) {
  std::vector<bool> seen(abi::kReplySlots);
  for (uint32_t i = 0; i < abi::kReplySlots; ++i) {
    const uint32_t slot = slots.claim();
    ASSERT_LT(slot, abi::kReplySlots);
    EXPECT_FALSE(seen[slot]);
    seen[slot] = true;
  }
}

TEST_F(Replies, MoreCallersThanSlotsTakeTurns) {
  constexpr int kThreads = 8, kRounds = 2000;
  for (uint32_t i = 0; i < abi::kReplySlots - 2; ++i) slots.claim();  // two are left for eight
  std::vector<std::thread> threads;
  std::atomic<int> inside{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const uint32_t slot = slots.claim();
        EXPECT_LE(inside.fetch_add(1) + 1, 2);
        inside.fetch_sub(1);
        slots.release(slot);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Replies, AnswerBeforeTheWaitIsFound) {
  const uint32_t slot = slots.claim();
  complete_reply(proxy, slot, 9, 700, {});
  EXPECT_EQ(slots.wait(slot), WaitResult::kDone);
  EXPECT_EQ(slots.result(slot), 700u);
  EXPECT_EQ(slots.payload(slot).size(), 0u);
}

TEST_F(Replies, SleepingCallerIsWoken) {
  waiter.set_spin_us(0);
  const uint32_t slot = slots.claim();
  std::thread caller([&] { EXPECT_EQ(slots.wait(slot), WaitResult::kDone); });
  while (atomic(client.reply(slot).state).load() != static_cast<uint32_t>(abi::ReplyState::kAsleep))
    std::this_thread::yield();
  complete_reply(proxy, slot, 1, 0, {});
  caller.join();
}

TEST_F(Replies, PayloadSizeIsNeverBeyondTheSlot) {
  const uint32_t slot = slots.claim();
  client.reply(slot).payload_bytes = 0xffffffffu;
  EXPECT_EQ(slots.payload(slot).size(), abi::kMaxReplyBytes);
}

TEST_F(Replies, DeadProxyEndsTheWaitAndAllLaterOnes) {
  const uint32_t slot = slots.claim();
  proxy_socket.reset();
  EXPECT_EQ(slots.wait(slot), WaitResult::kPeerDead);
  slots.release(slot);
  const uint32_t again = slots.claim();
  complete_reply(proxy, again, 1, 0, {});  // a late answer to the old owner
  EXPECT_EQ(slots.wait(again), WaitResult::kPeerDead);
}

TEST_F(Replies, AnswerGivenJustBeforeTheDeathCounts) {
  waiter.set_spin_us(0);
  const uint32_t slot = slots.claim();
  complete_reply(proxy, slot, 1, 0, {});
  proxy_socket.reset();
  EXPECT_EQ(slots.wait(slot), WaitResult::kDone);
}

TEST_F(Replies, PoisonedSessionEndsTheWaitButAStickyErrorDoesNot) {
  const uint32_t slot = slots.claim();
  proxy_store_sticky_error(proxy.header(), 700);
  std::thread session([&] { complete_reply(proxy, slot, 1, 700, {}); });
  EXPECT_EQ(slots.wait(slot), WaitResult::kDone);  // the proxy still answers, with the error
  session.join();
  slots.release(slot);
  const uint32_t other = slots.claim();
  proxy_store_state(proxy.header(), abi::ProxyState::kPoisoned, abi::PoisonReason::kBadRecord);
  EXPECT_EQ(slots.wait(other), WaitResult::kSticky);
  EXPECT_EQ(client_load_poison_reason(client.header()), abi::PoisonReason::kBadRecord);
}

class Progress : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    words = std::make_unique<Words>();
    words->attach(client, waiter, peer);
  }
  void gpu_writes(uint32_t word, uint64_t value) { store_word(proxy.word(word), value); }
  std::unique_ptr<Words> words;
};

TEST_F(Progress, AllWordsButZeroAreHandedOutOnce) {
  std::vector<bool> seen(abi::kWordCount);
  for (uint32_t i = 1; i < abi::kWordCount; ++i) {
    const uint32_t word = words->allocate();
    ASSERT_NE(word, kNoWord);
    ASSERT_NE(word, 0u);
    ASSERT_FALSE(seen[word]);
    seen[word] = true;
  }
  EXPECT_EQ(words->allocate(), kNoWord);
}

TEST_F(Progress, ValuesGrowAlsoAcrossOwners) {
  const uint32_t word = words->allocate();
  EXPECT_EQ(words->next_value(word), 1u);
  EXPECT_EQ(words->next_value(word), 2u);
  gpu_writes(word, 2);
  words->release(word);
  uint32_t again = kNoWord;
  for (uint32_t i = 1; i < abi::kWordCount && again != word; ++i) again = words->allocate();
  ASSERT_EQ(again, word);
  EXPECT_EQ(words->next_value(word), 3u);
}

TEST_F(Progress, AWordWithAValueOnItsWayHasNoNewOwner) {
  const uint32_t word = words->allocate();
  words->next_value(word);
  words->release(word);
  for (uint32_t i = 2; i < abi::kWordCount; ++i) ASSERT_NE(words->allocate(), word);
  EXPECT_EQ(words->allocate(), kNoWord);
  gpu_writes(word, 1);
  EXPECT_EQ(words->allocate(), word);
}

// An event remembers a value of a stream that is gone since; by now the word is a user object's or
// a graph's.
TEST_F(Progress, WhatWasReachedStaysReachedWhenTheWordBecomesAMailbox) {
  const uint32_t word = words->allocate();
  const uint64_t value = words->next_value(word);
  gpu_writes(word, value);
  words->release(word);
  uint32_t mailbox = kNoWord;
  for (uint32_t i = 1; i < abi::kWordCount && mailbox != word; ++i)
    mailbox = words->allocate_mailbox(0);
  ASSERT_EQ(mailbox, word);
  EXPECT_EQ(words->load(word), 0u);
  EXPECT_TRUE(words->reached(word, value));
  EXPECT_EQ(words->wait(word, value), WaitResult::kDone);
  words->release_mailbox(word);
  EXPECT_TRUE(words->reached(word, value));
  EXPECT_FALSE(words->reached(word, value + 1));
}

TEST_F(Progress, WaitEndsWithTheValue) {
  const uint32_t word = words->allocate();
  const uint64_t value = words->next_value(word);
  EXPECT_FALSE(words->reached(word, value));
  std::thread gpu([&] { gpu_writes(word, value); });
  EXPECT_EQ(words->wait(word, value), WaitResult::kDone);
  gpu.join();
}

TEST_F(Progress, StickyErrorDeathAndStopEndAWaitThatNothingElseEnds) {
  const uint32_t word = words->allocate();
  const uint64_t value = words->next_value(word);
  proxy_store_state(proxy.header(), abi::ProxyState::kStopping);
  EXPECT_EQ(words->wait(word, value), WaitResult::kStopping);
  proxy_store_state(proxy.header(), abi::ProxyState::kRunning);
  proxy_store_sticky_error(proxy.header(), 700);
  EXPECT_EQ(words->wait(word, value), WaitResult::kSticky);
  atomic(proxy.header().sticky_error).store(0);
  proxy_socket.reset();
  EXPECT_EQ(words->wait(word, value), WaitResult::kPeerDead);
}

TEST_F(Progress, WordsReleasedAtTheSessionsEndAreNotTakenForProgress) {
  const uint32_t word = words->allocate();
  const uint64_t value = words->next_value(word);
  proxy_store_state(proxy.header(), abi::ProxyState::kStopping);
  gpu_writes(word, abi::kWordReleased);
  EXPECT_FALSE(words->reached(word, value));
  EXPECT_EQ(words->wait(word, value), WaitResult::kStopping);
}

TEST_F(Progress, CompletedByTheProxyNeverGoesBack) {
  const uint32_t word = words->allocate();
  gpu_writes(word, 7);
  proxy_completes_word(proxy.word(word), 5);
  EXPECT_EQ(words->load(word), 7u);
  proxy_completes_word(proxy.word(word), 9);
  EXPECT_EQ(words->load(word), 9u);
}

TEST_F(Progress, ProbeThatFindsTheFaultEndsTheWait) {
  waiter.set_spin_us(0);
  const uint32_t word = words->allocate();
  const uint64_t value = words->next_value(word);
  Probe probe;
  probe.call = [](void* segment) {
    proxy_store_sticky_error(static_cast<Segment*>(segment)->header(), 719);
  };
  probe.context = &proxy;
  EXPECT_EQ(words->wait(word, value, probe), WaitResult::kSticky);
}

TEST(Indices, OutOfRangeIsRefusedWithoutOverflow) {
  EXPECT_TRUE(valid_word(abi::kWordCount - 1));
  EXPECT_FALSE(valid_word(abi::kWordCount));
  EXPECT_FALSE(valid_word(kNoWord));
  constexpr uint32_t kAll = abi::kChunkCount, kLater = abi::kFirstChunks;
  EXPECT_TRUE(valid_chunk_range(kAll, kAll - 1, 0, abi::kLaterChunkBytes));
  EXPECT_TRUE(valid_chunk_range(kAll, kLater, abi::kLaterChunkBytes, 0));
  EXPECT_TRUE(valid_chunk_range(kAll, kLater - 1, 0, abi::kChunkBytes));
  EXPECT_TRUE(valid_chunk_range(kAll, 0, abi::kChunkBytes, 0));
  EXPECT_FALSE(valid_chunk_range(kAll, kAll, 0, 1));
  EXPECT_FALSE(valid_chunk_range(kAll, ~uint32_t{0}, 0, 1));
  EXPECT_FALSE(valid_chunk_range(kLater, kLater, 0, 1));
  EXPECT_FALSE(valid_chunk_range(kAll, kLater - 1, 0, abi::kChunkBytes + 1));
  EXPECT_FALSE(valid_chunk_range(kAll, kLater - 1, abi::kChunkBytes + 1, 0));
  EXPECT_FALSE(valid_chunk_range(kAll, kLater, 1, abi::kLaterChunkBytes));
  EXPECT_FALSE(valid_chunk_range(kAll, 0, 1, abi::kChunkBytes));
  EXPECT_FALSE(valid_chunk_range(kAll, 0, ~uint64_t{0}, 2));
  EXPECT_FALSE(valid_chunk_range(kAll, 0, 1, ~uint64_t{0}));
}

class Staging : public Pair {
 protected:
  void SetUp() override {
    Pair::SetUp();
    chunks.attach(client, waiter, peer);
  }
  WaitResult claim(uint32_t* chunk) {
    return chunks.claim(chunk, {}, abi::kChunkBytes, [] { return false; });
  }
  ChunkPool chunks;
};

TEST_F(Staging, ChunksAreClaimedOnceAndComeBackFromTheGpu) {
  uint32_t chunk = 0;
  for (uint32_t i = 1; i < abi::kFirstChunks; ++i) ASSERT_TRUE(chunks.try_claim(&chunk));
  EXPECT_FALSE(chunks.try_claim(&chunk));
  ASSERT_TRUE(proxy.allocate_more_chunks());
  chunks.grow();
  for (uint32_t i = abi::kFirstChunks; i < abi::kChunkCount; ++i)
    ASSERT_TRUE(chunks.try_claim(&chunk));
  EXPECT_FALSE(chunks.try_claim(&chunk));
  std::thread gpu([&] { store_word(proxy.chunk_state(17), abi::kChunkFree); });
  EXPECT_EQ(claim(&chunk), WaitResult::kDone);
  EXPECT_EQ(chunk, 17u);
  gpu.join();
}

TEST_F(Staging, TheReserveIsLeftWhenAllOthersAreTaken) {
  uint32_t chunk = 0;
  while (chunks.try_claim(&chunk)) EXPECT_NE(chunk, ChunkPool::kReserve);
  ASSERT_TRUE(chunks.try_claim_reserve(&chunk));
  EXPECT_EQ(chunk, ChunkPool::kReserve);
  EXPECT_FALSE(chunks.try_claim_reserve(&chunk));
  chunks.release(ChunkPool::kReserve);
  EXPECT_FALSE(chunks.try_claim(&chunk));
  EXPECT_TRUE(chunks.try_claim_reserve(&chunk));
}

TEST_F(Staging, WaitForAChunkEndsWhenThereIsEnough) {
  uint32_t chunk = 0;
  while (chunks.try_claim(&chunk)) {
  }
  EXPECT_EQ(chunks.claim(&chunk, {}, abi::kChunkBytes, [] { return true; }), WaitResult::kDone);
  EXPECT_EQ(chunk, ChunkPool::kNoChunk);
}

TEST_F(Staging, LargePiecesTakeLaterChunksOnly) {
  uint32_t chunk = 0;
  EXPECT_EQ(chunks.largest(), abi::kChunkBytes);
  EXPECT_FALSE(chunks.try_claim(&chunk, abi::kLaterChunkBytes));
  ASSERT_TRUE(proxy.allocate_more_chunks());
  chunks.grow();
  EXPECT_EQ(chunks.largest(), abi::kLaterChunkBytes);
  for (uint32_t i = abi::kFirstChunks; i < abi::kChunkCount; ++i) {
    ASSERT_TRUE(chunks.try_claim(&chunk, abi::kChunkBytes + 1));
    EXPECT_EQ(chunk, i);
  }
  EXPECT_FALSE(chunks.try_claim(&chunk, abi::kLaterChunkBytes));
  EXPECT_TRUE(chunks.try_claim(&chunk));
  EXPECT_EQ(chunk, 0u);
}

TEST_F(Staging, DeviceToHostChunkIsFilledThenEmptied) {
  uint32_t chunk = 0;
  ASSERT_TRUE(chunks.try_claim(&chunk));
  EXPECT_FALSE(chunks.filled(chunk));
  std::thread gpu([&] {
    proxy.chunk(chunk)[5] = std::byte{9};
    store_word(proxy.chunk_state(chunk), abi::kChunkFilled);
  });
  EXPECT_EQ(chunks.wait_filled(chunk), WaitResult::kDone);
  EXPECT_EQ(chunks.data(chunk)[5], std::byte{9});
  gpu.join();
  chunks.release(chunk);
  EXPECT_EQ(chunks.wait_free(chunk), WaitResult::kDone);
}

TEST_F(Staging, ThreadsNeverShareAChunk) {
  std::atomic<int> owners[abi::kChunkCount] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        uint32_t chunk = 0;
        ASSERT_EQ(claim(&chunk), WaitResult::kDone);
        EXPECT_EQ(owners[chunk].fetch_add(1), 0);
        owners[chunk].fetch_sub(1);
        chunks.release(chunk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Staging, DeadProxyEndsTheWaitForAChunk) {
  uint32_t chunk = 0;
  while (chunks.try_claim(&chunk)) {
  }
  proxy_socket.reset();
  EXPECT_EQ(claim(&chunk), WaitResult::kPeerDead);
}

class Errors : public Pair {};

TEST_F(Errors, FirstAsynchronousErrorWinsUntilTaken) {
  proxy_store_async_error(proxy.header(), {1, 20, 300});
  proxy_store_async_error(proxy.header(), {2, 21, 301});
  const AsyncError first = client_takes_async_error(client.header());
  EXPECT_EQ(first.error, 1u);
  EXPECT_EQ(first.call, 20u);
  EXPECT_EQ(first.sequence, 300u);
  EXPECT_EQ(client_takes_async_error(client.header()).error, 0u);
  proxy_store_async_error(proxy.header(), {2, 21, 301});
  EXPECT_EQ(client_takes_async_error(client.header()).error, 2u);
}

TEST_F(Errors, StickyErrorIsNeverReplaced) {
  proxy_store_sticky_error(proxy.header(), 700);
  proxy_store_sticky_error(proxy.header(), 719);
  EXPECT_EQ(client_load_sticky_error(client.header()), 700u);
}

}  // namespace
}  // namespace tube::shared

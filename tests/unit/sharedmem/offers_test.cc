// Taking and returning offered blocks: what the client's threads hold is never another's, whatever
// the proxy does meanwhile.
#include "sharedmem/offers.h"

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "sharedmem/accessors.h"
#include "tests/support/units.h"

namespace tube::shared {
namespace {

using abi::OfferState;

class OffersTest : public ::testing::Test {
 protected:
  OffersTest() : segment(Segment::create(1).take()) { offers.attach(segment); }
  // As the proxy does it.
  void offer(uint32_t index, uint64_t generation, uint64_t address, uint64_t bytes,
             OfferState state = OfferState::kReady, uint32_t device = 0) {
    abi::MemoryOffer& o = segment.offer(index);
    atomic(o.address).store(address, std::memory_order_relaxed);
    atomic(o.bytes).store(bytes, std::memory_order_relaxed);
    atomic(o.device).store(device, std::memory_order_relaxed);
    proxy_stores_offer(o, generation, state);
    if (client_loads_offers_used(segment.header()) <= index)
      proxy_stores_offers_used(segment.header(), index + 1);
  }

  Segment segment;
  Offers offers;
};

TEST_F(OffersTest, ANewSegmentOffersNothing) {
  EXPECT_EQ(offers.take(0, 2 * kMiB).number, 0u);
  offers.give_back(0, 0);
  offers.give_back(1, 0);
  offers.give_back(UINT32_MAX, 0);
  EXPECT_EQ(offers.take(0, 2 * kMiB).number, 0u);
}

TEST_F(OffersTest, ARequestGetsTheSizeThatWouldBeMadeForIt) {
  offer(0, 1, 0x1000'0000, 4 * kMiB);
  for (const uint64_t bytes : {uint64_t{1}, kMiB, kMiB + 1, 2 * kMiB, 4 * kMiB + 1, UINT64_MAX})
    EXPECT_EQ(offers.take(0, bytes).number, 0u) << bytes;
  EXPECT_EQ(offers.take(1, 4 * kMiB).number, 0u) << "another GPU's";
  const OfferedBlock block = offers.take(0, 2 * kMiB + 1);
  EXPECT_EQ(block.number, 1u);
  EXPECT_EQ(block.address, 0x1000'0000u);
  EXPECT_EQ(block.generation, 2u) << "it grows with each take";
  EXPECT_EQ(offers.take(0, 4 * kMiB).number, 0u) << "it is taken";
  offers.give_back(block.number, block.generation);
  EXPECT_EQ(offers.take(0, 4 * kMiB).number, 1u);
}

TEST_F(OffersTest, AReturnThatComesLateTouchesNoOtherBlock) {
  offer(0, 1, 0x1000'0000, 2 * kMiB, OfferState::kTaken);
  const OfferedBlock block = offers.granted(1, 0x1000'0000);
  offer(0, 2, 0x2000'0000, 2 * kMiB, OfferState::kTaken);
  offers.give_back(block.number, block.generation);
  EXPECT_EQ(offers.take(0, 2 * kMiB).number, 0u);
  offer(0, 3, 0, 0, OfferState::kEmpty);
  offers.give_back(1, 2);
  EXPECT_EQ(offers.take(0, 2 * kMiB).number, 0u);
}

TEST_F(OffersTest, AllOffersAreFound) {
  for (uint32_t i = 0; i < abi::kOffers; ++i) offer(i, 1, (i + 1) * 2 * kMiB, 2 * kMiB);
  std::map<uint64_t, uint32_t> got;
  while (true) {
    const OfferedBlock block = offers.take(0, 2 * kMiB);
    if (block.number == 0) break;
    ++got[block.address];
  }
  EXPECT_EQ(got.size(), abi::kOffers);
}

// Threads take, hold and return blocks of several sizes while the proxy takes ready ones back and
// offers others in their place. Each block has one owner at any time.
TEST_F(OffersTest, EachBlockHasOneOwner) {
  constexpr uint32_t kSlots = 8, kThreads = 3, kSteps = 20'000;
  constexpr uint64_t kSizes[] = {2 * kMiB, 4 * kMiB, 6 * kMiB};
  static std::atomic<uint32_t> owners[1 << 16];  // by address; 0: the client
  for (auto& owner : owners) owner.store(0);
  const auto owner_of = [](uint64_t address) -> auto& { return owners[address >> 24]; };
  std::atomic<uint64_t> next_address{1};
  for (uint32_t i = 0; i < kSlots; ++i) offer(i, 1, next_address.fetch_add(1) << 24, kSizes[i % 3]);
  std::atomic<bool> wrong{false};
  std::atomic<uint64_t> taken{0};
  const auto client = [&](uint32_t me) {
    std::mt19937 random(me);
    std::vector<OfferedBlock> held;
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (held.size() < 3 && random() % 2 == 0) {
        const uint64_t bytes = kSizes[random() % 3];
        const OfferedBlock block = offers.take(0, bytes);
        if (block.number == 0) continue;
        ++taken;
        if (owner_of(block.address).exchange(me) != 0) wrong = true;
        held.push_back(block);
      } else if (!held.empty()) {
        const size_t which = random() % held.size();
        const OfferedBlock block = held[which];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        if (owner_of(block.address).exchange(0) != me) wrong = true;
        offers.give_back(block.number, block.generation);
      }
    }
    for (const OfferedBlock& block : held) {
      if (owner_of(block.address).exchange(0) != me) wrong = true;
      offers.give_back(block.number, block.generation);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i <= kThreads; ++i) threads.emplace_back(client, i);
  std::mt19937 random(99);
  uint64_t address[kSlots];
  // Here the word itself tells how often a block was taken.
  const auto generation = [&](uint32_t i) { return client_reads_offer(segment.offer(i)) >> 2; };
  for (uint32_t i = 0; i < kSlots; ++i) address[i] = uint64_t{i + 1} << 24;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t i = random() % kSlots;
    const uint64_t seen = generation(i);
    if (next_address.load() >= std::size(owners) ||
        !proxy_changes_offer(segment.offer(i), seen, OfferState::kReady, OfferState::kEmpty))
      continue;
    if (owner_of(address[i]).exchange(UINT32_MAX) != 0) wrong = true;
    address[i] = next_address.fetch_add(1) << 24;
    offer(i, (seen | 0xffffffff) + 1, address[i], kSizes[random() % 3]);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_GT(taken, 0u);
  for (uint32_t i = 0; i < kSlots; ++i) {
    EXPECT_TRUE(proxy_changes_offer(segment.offer(i), generation(i), OfferState::kReady,
                                    OfferState::kEmpty))
        << "all of them came back";
  }
}

}  // namespace
}  // namespace tube::shared

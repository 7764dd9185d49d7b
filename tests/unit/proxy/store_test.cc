// The store's index under writers and readers, and the life of objects: claims, pins, events.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>

#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "proxy/memory/ranges.h"
#include "proxy/store/store.h"
#include "proxy/store/store_client.h"
#include "sharedmem/segment.h"
#include "sharedmem/store_index.h"
#include "tests/support/units.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
namespace {

using Found = shared::StoreIndex::Found;

UniqueFd again(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

abi::StoreBody body_of(const std::string& name) {
  abi::StoreBody body{};
  std::memcpy(body.name, name.data(), name.size());
  body.name_bytes = static_cast<uint32_t>(name.size());
  body.hash = abi::store_hash(body.name, body.name_bytes);
  body.address = body.hash * 3;  // what a reader can check
  body.shape[7] = static_cast<int64_t>(body.hash * 5);
  return body;
}

/**
 * Enters the first `names` of `bodies` and takes them out again, in 60,000 steps: a name wanders
 * from slot to slot, so that entries and buckets are used again.
 */
void let_names_wander(StoreIndexWriter& writer, const std::vector<abi::StoreBody>& bodies,
                      uint32_t names) {
  std::mt19937 chance(3);
  struct Entry {
    uint32_t name = 0;
    uint64_t generation = 0;
    bool live = false;
  };
  std::vector<Entry> slots(names);
  std::vector<bool> taken(names);
  for (int step = 0; step < 60'000; ++step) {
    const uint32_t slot = chance() % names;
    Entry& e = slots[slot];
    if (e.live) {
      writer.doom(slot, e.generation, bodies[e.name].hash);
      writer.free(slot, e.generation);
      e.live = taken[e.name] = false;
      continue;
    }
    const uint32_t name = chance() % names;
    if (taken[name]) continue;
    e = Entry{name, e.generation + 1, true};
    taken[name] = true;
    writer.enter(slot, e.generation, bodies[name]);
    writer.seal(slot, e.generation, true);
  }
}

TEST(StoreIndex, ReadersSeeWholeObjectsOrNone) {
  constexpr uint32_t kNames = 40;
  StoreIndexWriter writer;
  ASSERT_TRUE(writer.open(1).ok());
  std::vector<abi::StoreBody> bodies;
  for (uint32_t i = 0; i < kNames; ++i) bodies.push_back(body_of("name/" + std::to_string(i)));
  bodies.push_back(body_of("always"));
  writer.enter(kNames, 1, bodies.back());
  writer.seal(kNames, 1, true);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0};
  const auto read = [&](unsigned seed) {
    shared::StoreIndex index;
    Result<UniqueFd> pins =
        shared::create_memory_file("pins", abi::kStorePinsBytes, shared::Fill::kAllocated);
    ASSERT_TRUE(index.attach(again(writer.fd()), pins.take()).ok());
    std::mt19937 chance(seed);
    for (int looks = 0; !stop.load() || looks < 100; ++looks) {
      const bool always = looks % 4 == 0;
      const uint32_t which = always ? kNames : chance() % kNames;
      const std::string name(bodies[which].name, bodies[which].name_bytes);
      shared::StoreSight sight;
      const Found answer = index.find(name, &sight);
      if (always) {
        EXPECT_NE(answer, Found::kNo);
      }
      if (answer != Found::kYes) continue;
      EXPECT_EQ(std::memcmp(&sight.body, &bodies[which], sizeof sight.body), 0);
      ++found;
    }
  };
  std::thread one(read, 1), two(read, 2);
  let_names_wander(writer, bodies, kNames);
  stop = true;
  one.join();
  two.join();
  EXPECT_GT(found.load(), 0u);
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest()
      : driver(test::make_fake_driver()),
        gpus(driver),
        map(driver, gpus),
        store(std::make_unique<Store>(driver, map, [](uint32_t) { return 64 * kMiB; })) {
    EXPECT_TRUE(gpus.open().ok());
    while (window < windows::kCandidates && !map.take_window(window)) ++window;
    for (int i = 0; i < 2; ++i) {
      clients[i] = std::make_unique<StoreClient>(*store, ranges[i], i + 1, window,
                                                 "function " + std::to_string(i));
      EXPECT_TRUE(clients[i]->open().ok());
      EXPECT_TRUE(
          index[i].attach(again(clients[i]->index_fd()), again(clients[i]->pins_fd())).ok());
    }
  }
  void expect_empty_behind_clients() {
    for (auto& client : clients) client->leave(true);
    for (const Ranges& each : ranges) EXPECT_EQ(each.size(), 0u);
    EXPECT_EQ(store->counts().objects, 0u);
    EXPECT_EQ(store->counts().gpu_bytes, 0u);
    EXPECT_EQ(map.blocks(), 0u);
    store.reset();
    EXPECT_EQ(test::fake().live_memory, 0);
    EXPECT_EQ(test::fake().live_events, 0);
  }
  StoreGrant make(int client, const std::string& name, uint64_t bytes = 3 * kMiB,
                  uint32_t consumers = 0) {
    StoreRequest request;
    request.bytes = bytes;
    request.consumers = consumers;
    request.body = body_of(name);
    return clients[client]->reserve(request);
  }
  bool find(int client, const std::string& name, shared::StoreSight* sight) {
    return index[client].find(name, sight) == Found::kYes &&
           sight->state() == abi::StoreState::kSealed;
  }

  Driver driver;
  Gpus gpus;
  MemoryMap map;
  std::unique_ptr<Store> store;
  uint32_t window = 0;
  Ranges ranges[2];
  std::unique_ptr<StoreClient> clients[2];
  shared::StoreIndex index[2];
};

TEST_F(StoreTest, WhatIsNotSealedEndsWithItsMaker) {
  const StoreGrant grant = make(0, "a");
  ASSERT_EQ(grant.answer, wire::StoreAnswer::kOk);
  EXPECT_EQ(make(1, "a").answer, wire::StoreAnswer::kExists);
  EXPECT_FALSE(clients[1]->seal(grant.slot, grant.generation, nullptr));
  EXPECT_FALSE(clients[1]->claim(grant.slot, grant.generation));
  clients[0]->leave(true);
  EXPECT_EQ(store->counts().aborted, 1u);
  EXPECT_EQ(make(1, "a").answer, wire::StoreAnswer::kOk);
  expect_empty_behind_clients();
}

TEST_F(StoreTest, APinKeepsWhatIsDeletedUntilItsClaimIsReleased) {
  const StoreGrant grant = make(0, "a");
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, nullptr));
  shared::StoreSight sight;
  ASSERT_TRUE(find(1, "a", &sight));
  bool look_again = false;
  ASSERT_TRUE(index[1].pin(sight, &look_again));
  EXPECT_EQ(store->remove("a"), wire::StoreAnswer::kOk);
  EXPECT_EQ(store->counts().objects, 1u);
  shared::StoreSight late;
  EXPECT_FALSE(find(0, "a", &late));
  EXPECT_FALSE(index[0].pin(sight, &look_again));
  EXPECT_TRUE(look_again);
  store->look(sight.slot);
  EXPECT_EQ(store->counts().objects, 1u);
  EXPECT_TRUE(clients[1]->claim(sight.slot, sight.generation()));
  EXPECT_NE(ranges[1].find(grant.piece.address), nullptr);
  EXPECT_TRUE(clients[1]->release(sight.slot, sight.generation(), true));
  EXPECT_EQ(ranges[1].size(), 0u);
  EXPECT_EQ(store->counts().objects, 0u);
  EXPECT_FALSE(clients[1]->release(sight.slot, sight.generation(), true));
  EXPECT_FALSE(clients[1]->claim(sight.slot, sight.generation()));
  expect_empty_behind_clients();
}

// Who has an object and has not said so yet may write to it, as any holder may.
TEST_F(StoreTest, WhoHasPinnedAndNotClaimedIsNamed) {
  const StoreGrant grant = make(0, "a");
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, nullptr));
  EXPECT_EQ(store->pinning(grant.slot), std::vector<std::string>{});
  shared::StoreSight sight;
  ASSERT_TRUE(find(1, "a", &sight));
  bool look_again = false;
  ASSERT_TRUE(index[1].pin(sight, &look_again));
  EXPECT_EQ(store->pinning(grant.slot), std::vector<std::string>{"function 1"});
  EXPECT_TRUE(clients[1]->claim(sight.slot, sight.generation()));
  EXPECT_TRUE(clients[1]->release(sight.slot, sight.generation(), true));
  EXPECT_EQ(store->pinning(grant.slot), std::vector<std::string>{});
  EXPECT_EQ(store->remove("a"), wire::StoreAnswer::kOk);
  expect_empty_behind_clients();
}

TEST_F(StoreTest, BytesWaitForTheWorkBehindWhichTheyWereSealed) {
  test::fake().events_wait = true;
  const StoreGrant grant = make(0, "a");
  const CUevent written = store->event_for(grant.slot, grant.generation, {});
  ASSERT_NE(written, nullptr);
  ASSERT_EQ(driver.cuEventRecord(written, nullptr), CUDA_SUCCESS);
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, written));
  EXPECT_EQ(store->remove("a"), wire::StoreAnswer::kOk);
  EXPECT_EQ(store->counts().objects, 1u);
  test::fake().events_wait = false;
  store->look(grant.slot);
  EXPECT_EQ(store->counts().objects, 0u);
  expect_empty_behind_clients();
}

TEST_F(StoreTest, ATimeToLiveCountsForWhatIsStillFilled) {
  StoreRequest request;
  request.bytes = 3 * kMiB;
  request.body = body_of("a");
  request.body.expires_ns = 1;  // long ago
  const StoreGrant grant = clients[0]->reserve(request);
  ASSERT_EQ(make(1, "b").answer, wire::StoreAnswer::kOk);  // behind a look at what is over
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, nullptr));
  EXPECT_EQ(make(1, "a").answer, wire::StoreAnswer::kOk);
  expect_empty_behind_clients();
}

TEST_F(StoreTest, UsesThatAreOverMakeRoomForOthers) {
  const StoreGrant grant = make(0, "a");
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, nullptr));
  const StoreStream under_way{1, 1, 0};  // whose event is about to be recorded
  const CUevent event = store->event_for(grant.slot, grant.generation, under_way);
  for (uint64_t stream = 1; stream < 600; ++stream) {
    shared::StoreSight sight;
    bool look_again = false;
    ASSERT_TRUE(find(1, "a", &sight) && index[1].pin(sight, &look_again));
    ASSERT_TRUE(clients[1]->claim(grant.slot, grant.generation));
    ASSERT_NE(store->event_for(grant.slot, grant.generation, {2, stream, 0}), nullptr) << stream;
    ASSERT_TRUE(clients[1]->release(grant.slot, grant.generation, true));
  }
  EXPECT_EQ(store->event_for(grant.slot, grant.generation, under_way), event);
  EXPECT_EQ(store->remove("a"), wire::StoreAnswer::kOk);
  EXPECT_EQ(store->counts().objects, 0u);
  expect_empty_behind_clients();
}

TEST_F(StoreTest, WorkThatNobodyCanWaitForKeepsAnObjectUntilItsClientIsIdle) {
  const StoreGrant grant = make(0, "a");
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, nullptr));
  shared::StoreSight sight;
  bool look_again = false;
  ASSERT_TRUE(find(1, "a", &sight) && index[1].pin(sight, &look_again));
  ASSERT_TRUE(clients[1]->claim(grant.slot, grant.generation));
  clients[1]->keep(grant.slot);
  ASSERT_TRUE(clients[1]->release(grant.slot, grant.generation, true));
  EXPECT_EQ(store->remove("a"), wire::StoreAnswer::kOk);
  EXPECT_EQ(store->counts().objects, 1u);
  clients[1]->leave(true);
  EXPECT_EQ(store->counts().objects, 0u);
  expect_empty_behind_clients();
}

TEST_F(StoreTest, CopiesBehindOneStreamOfAMakerShareAStream) {
  StoreStreams& streams = store->streams();
  test::fake().stream_busy = true;
  const auto of = [&](uint64_t session, uint64_t number) {
    const CUstream stream = streams.of_seal(0, {{session, 1, 0}, number});
    if (stream != nullptr) streams.done(0, stream);
    return stream;
  };
  const CUstream first = of(1, 10);
  EXPECT_EQ(of(1, 11), first);
  EXPECT_EQ(of(1, 12), first);
  // What was sealed before does not wait for what comes behind it.
  EXPECT_NE(of(1, 9), first);
  for (uint64_t session = 2; session < 16; ++session) EXPECT_NE(of(session, 20), nullptr);
  EXPECT_EQ(of(16, 20), nullptr);
  EXPECT_NE(of(1, 8), nullptr);  // but at the limit
  test::fake().stream_busy = false;
  EXPECT_NE(of(16, 20), nullptr);
  expect_empty_behind_clients();
  EXPECT_EQ(test::fake().live_streams, 0);
}

TEST_F(StoreTest, ConsumedObjectsGoAndTheirBlockServesTheNext) {
  const StoreGrant grant = make(0, "a", 3 * kMiB, 1);
  ASSERT_TRUE(clients[0]->seal(grant.slot, grant.generation, nullptr));
  shared::StoreSight sight;
  bool look_again = false;
  ASSERT_TRUE(find(1, "a", &sight) && index[1].pin(sight, &look_again));
  ASSERT_TRUE(clients[1]->claim(sight.slot, sight.generation()));
  ASSERT_TRUE(clients[1]->release(sight.slot, sight.generation(), true));
  EXPECT_EQ(store->counts().objects, 0u);
  EXPECT_EQ(store->counts().idle_bytes, 4 * kMiB);
  EXPECT_EQ(make(1, "b").piece.address, grant.piece.address);
  expect_empty_behind_clients();
}

// A block of host memory is far larger than what both want of it, and takes its time.
TEST_F(StoreTest, WhoWantsHostMemoryAtOnceSharesABlock) {
  std::atomic<int> there{0};
  const auto reserve = [&](int client) {
    StoreRequest request;
    request.bytes = 256;
    request.place = wire::StorePlace::kHost;
    request.body = body_of("of " + std::to_string(client));
    ++there;
    while (there.load() != 2) std::this_thread::yield();
    EXPECT_EQ(clients[client]->reserve(request).answer, wire::StoreAnswer::kOk);
  };
  std::thread one(reserve, 0), two(reserve, 1);
  one.join();
  two.join();
  EXPECT_EQ(store->counts().host_held_bytes, 64 * kMiB);
  expect_empty_behind_clients();
}

}  // namespace
}  // namespace tube::proxy

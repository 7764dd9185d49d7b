// Which records stay behind which, and in what order they go: on plain keys.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "proxy/session/parked_records.h"

namespace tube::proxy {
namespace {

using wire::NamedKind;

ParkKeys stream(uint64_t id) {
  ParkKeys keys;
  keys.add(ParkKeys::object(NamedKind::kStream, id), true);
  return keys;
}

ParkKeys with(ParkKeys keys, NamedKind kind, uint64_t id, bool changes) {
  keys.add(ParkKeys::object(kind, id), changes);
  return keys;
}

class ParkedRecordsTest : public testing::Test {
 protected:
  // As the session does with a record that comes.
  void comes(uint64_t sequence, const ParkKeys& keys) {
    if (!parked.must_stay(keys)) return went.push_back(sequence);
    keep(sequence, keys);
  }
  void keep(uint64_t sequence, const ParkKeys& keys, uint32_t reply_slot = abi::kNoReply) {
    abi::RecordHeader header{};
    header.sequence = sequence;
    header.reply_slot = reply_slot;
    parked.keep(header, {}, keys);
  }
  void lets_go(const ParkKeys& keys) {
    parked.let_go(keys);
    lets_go_nothing();
  }
  void lets_go_nothing() {
    parked.release([&](const abi::RecordHeader& header, std::span<const std::byte>) {
      went.push_back(header.sequence);
      return true;
    });
  }

  ParkedRecords parked{{.records = 1000, .bytes = 1 << 20}};
  std::vector<uint64_t> went;
};

using Went = std::vector<uint64_t>;

TEST_F(ParkedRecordsTest, OnlyTheHeldStreamWaits) {
  parked.hold(stream(1));
  comes(1, stream(1));
  comes(2, stream(2));
  comes(3, stream(1));
  EXPECT_EQ(went, Went{2});
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{2, 1, 3}));
  EXPECT_FALSE(parked.any());
}

TEST_F(ParkedRecordsTest, AnEventWhoseRecordIsKeptHoldsTheStreamThatWaitsForIt) {
  parked.hold(stream(1));
  comes(1, with(stream(1), NamedKind::kEvent, 7, true));
  comes(2, with(stream(2), NamedKind::kEvent, 7, false));
  comes(3, stream(2));
  comes(4, with(stream(3), NamedKind::kEvent, 8, false));
  comes(5, with(stream(3), NamedKind::kKernel, 7, false));
  EXPECT_EQ(went, (Went{4, 5}));
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{4, 5, 1, 2, 3}));
}

TEST_F(ParkedRecordsTest, WhoOnlyUsesAnObjectWaitsForNoOtherUser) {
  parked.hold(stream(1));
  comes(1, with(stream(1), NamedKind::kKernel, 5, false));
  comes(2, with(stream(2), NamedKind::kKernel, 5, false));
  EXPECT_EQ(went, Went{2});
  ParkKeys change;
  change.add(ParkKeys::object(NamedKind::kKernel, 5), true);
  comes(3, change);
  comes(4, with(stream(2), NamedKind::kKernel, 5, false));
  EXPECT_EQ(went, Went{2});
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{2, 1, 3, 4}));
}

TEST_F(ParkedRecordsTest, AFreeStaysBehindAllButKeepsNobodyElse) {
  ParkKeys free;
  free.behind = wire::Behind::kAll;
  comes(1, free);
  parked.hold(stream(1));
  comes(2, free);
  comes(3, stream(2));
  parked.hold(stream(4));
  comes(4, stream(1));
  comes(5, free);
  EXPECT_EQ(went, (Went{1, 3}));
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{1, 3, 4})) << "stream 4 is held";
  lets_go(stream(4));
  EXPECT_EQ(went, (Went{1, 3, 4, 2, 5}));
}

TEST_F(ParkedRecordsTest, WhatTakesThePlaceOfSomethingThatEndsWaitsForItsEnd) {
  ParkKeys free, make;
  free.behind = wire::Behind::kAll;
  make.behind = wire::Behind::kEnds;
  parked.hold(stream(1));
  comes(1, make);
  comes(2, free);
  comes(3, make);
  comes(4, stream(2));
  EXPECT_EQ(went, (Went{1, 4}));
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{1, 4, 2, 3}));
}

TEST_F(ParkedRecordsTest, AnObjectWithTheIndexOfOneThatEndsIsAnotherOne) {
  ParkKeys ends, made;
  ends.add(ParkKeys::object(NamedKind::kEvent, wire::make_id(7, 1)), true);
  made.add(ParkKeys::object(NamedKind::kEvent, wire::make_id(7, 2)), true);
  parked.hold(stream(1));
  comes(1, with(stream(1), NamedKind::kEvent, wire::make_id(7, 1), true));
  comes(2, ends);
  comes(3, made);
  EXPECT_EQ(went, Went{3});
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{3, 1, 2}));
}

TEST_F(ParkedRecordsTest, WhatIsTriedStaysBehindTheEndsOnceItIsKept) {
  ParkKeys free, make = stream(1), tried;
  free.behind = wire::Behind::kAll;
  make.behind = tried.behind = wire::Behind::kTried;
  parked.hold(stream(1));
  comes(1, free);
  comes(2, tried);
  comes(3, make);
  EXPECT_EQ(went, Went{2});
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{2, 1, 3}));
}

// A load of code that waits for the program's streams: what another thread frees is not its own.
TEST_F(ParkedRecordsTest, NothingThatEndsStaysBehindWhatWasTriedAndIsWaitedFor) {
  ParkKeys load, free;
  load.behind = wire::Behind::kTried;
  free.behind = wire::Behind::kAll;
  keep(1, load, 0);
  EXPECT_TRUE(parked.any());
  EXPECT_FALSE(parked.uses());
  comes(2, free);
  EXPECT_EQ(went, Went{2});
  keep(3, load);
  EXPECT_TRUE(parked.uses());
  comes(4, free);
  EXPECT_EQ(went, Went{2}) << "nobody waits for the answer of 3";
  lets_go_nothing();
  EXPECT_EQ(went, (Went{2, 1, 3, 4}));
}

TEST_F(ParkedRecordsTest, WhatWasTriedKeepsWhatItNames) {
  ParkKeys make = with({}, NamedKind::kKernel, 5, true);
  make.behind = wire::Behind::kTried;
  keep(1, make, 0);
  comes(2, with(stream(1), NamedKind::kKernel, 5, false));
  EXPECT_EQ(went, Went{});
  lets_go_nothing();
  EXPECT_EQ(went, (Went{1, 2}));
}

TEST_F(ParkedRecordsTest, WhatIsHeldDuringTheReleaseCountsAtOnce) {
  parked.hold(stream(1));
  for (uint64_t i = 1; i <= 3; ++i) comes(i, stream(1));
  parked.let_go(stream(1));
  parked.release([&](const abi::RecordHeader& header, std::span<const std::byte>) {
    went.push_back(header.sequence);
    parked.hold(stream(1));
    return true;
  });
  EXPECT_EQ(went, Went{1});
  EXPECT_EQ(parked.count(), 2u);
  lets_go(stream(1));
  EXPECT_EQ(went, (Went{1, 2, 3}));
}

// A launch of which a part waits for its turn: what comes behind it stays behind it.
TEST_F(ParkedRecordsTest, ARecordThatIsNotDoneComesAgainInItsPlace) {
  parked.hold(stream(1));
  for (uint64_t i = 1; i <= 3; ++i) comes(i, stream(1));
  comes(4, stream(2));
  int parts = 3;
  while (parts != 0) {
    parked.let_go(stream(1));
    parked.release([&](const abi::RecordHeader& header, std::span<const std::byte>) {
      went.push_back(header.sequence);
      if (header.sequence != 1 || --parts == 0) return true;
      parked.hold(stream(1));
      return false;
    });
  }
  EXPECT_EQ(went, (Went{4, 1, 1, 1, 2, 3}));
  EXPECT_FALSE(parked.any());
  EXPECT_EQ(parked.bytes(), 0u);
}

TEST_F(ParkedRecordsTest, NothingIsHeldWhenARecordGoesThatStayedBehindAll) {
  ParkKeys end;
  end.behind = wire::Behind::kAll;
  parked.hold(stream(1));
  comes(1, end);
  comes(2, with(stream(1), NamedKind::kEvent, 7, true));
  EXPECT_TRUE(parked.holds());
  parked.let_go(stream(1));
  std::vector<bool> held;
  parked.release([&](const abi::RecordHeader& header, std::span<const std::byte>) {
    held.push_back(parked.holds());
    if (header.sequence == 1) {
      EXPECT_TRUE(parked.any()) << "the next one is kept still";
    }
    return true;
  });
  EXPECT_EQ(held, (std::vector<bool>{false, false}));
}

TEST_F(ParkedRecordsTest, ARecordWithMoreNamesThanFitStaysBehindAll) {
  ParkKeys many;
  for (uint64_t i = 0; i < 100; ++i) many.add(ParkKeys::object(NamedKind::kStream, 100 + i), true);
  EXPECT_EQ(many.behind, wire::Behind::kAll);
}

TEST_F(ParkedRecordsTest, BytesAndRecordsAreBounded) {
  ParkedRecords small({.records = 2, .bytes = 100});
  const std::vector<std::byte> payload(60);
  small.hold(stream(1));
  EXPECT_TRUE(small.has_room(100));
  small.keep({}, payload, stream(1));
  EXPECT_FALSE(small.has_room(60));
  EXPECT_TRUE(small.has_room(40));
  small.keep({}, {}, stream(1));
  EXPECT_FALSE(small.has_room(0));
  EXPECT_TRUE(small.has_bytes(40));
  EXPECT_FALSE(small.has_bytes(41));
}

// Random programs: whatever is held and let go when, two records that share an object which one of
// them changes keep their order.
TEST_F(ParkedRecordsTest, RandomProgramsKeepEveryOrderThatTheyHave) {
  std::mt19937 random(11);
  for (int program = 0; program < 200; ++program) {
    went.clear();
    std::map<uint64_t, ParkKeys> records;
    std::vector<uint64_t> held;
    for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
      ParkKeys keys = stream(random() % 5);
      for (int i = random() % 3; i > 0; --i)
        keys = with(keys, NamedKind::kEvent, random() % 4, random() % 2 == 0);
      if (random() % 20 == 0) keys.behind = wire::Behind::kAll;
      records[sequence] = keys;
      if (random() % 8 == 0) parked.hold(stream(held.emplace_back(random() % 5)));
      comes(sequence, keys);
      if (!held.empty() && random() % 8 == 0) {
        const size_t which = random() % held.size();
        const uint64_t id = held[which];
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
        lets_go(stream(id));
      }
    }
    for (const uint64_t id : held) lets_go(stream(id));
    ASSERT_EQ(went.size(), records.size()) << program;
    std::map<uint64_t, size_t> place;
    for (size_t i = 0; i < went.size(); ++i) place[went[i]] = i;
    for (const auto& [earlier, mine] : records) {
      for (const auto& [later, other] : records) {
        if (later <= earlier) continue;
        bool meet = false;
        for (const auto& a : mine.all())
          for (const auto& b : other.all())
            meet |= a.value == b.value && (a.changes || b.changes || b.looks);
        if (meet) {
          ASSERT_LT(place[earlier], place[later]) << program;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tube::proxy

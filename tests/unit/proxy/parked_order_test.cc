// What ParkedRecords lets go, and when, beside a plain search through all that is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proxy/session/parked_records.h"

namespace tube::proxy {
namespace {

using wire::NamedKind;

// The rule itself (parked_records.h): each record is held against everything in front of it.
class SearchedRecords {
 public:
  bool any() const { return any_; }
  bool uses() const { return held_.count != 0 || kept_.count != 0; }
  bool holds() const { return held_.count != 0; }
  bool ends() const { return kept_.ends != 0; }
  size_t count() const { return records_.size(); }
  bool must_stay(ParkKeys keys) const {
    if (!any_) return false;
    if (keys.behind == wire::Behind::kTried) keys.behind = wire::Behind::kNamed;
    return meets(keys, held_) || meets(keys, kept_);
  }
  void keep(const abi::RecordHeader& header, std::span<const std::byte>, ParkKeys keys) {
    keys.uses = keys.behind != wire::Behind::kTried || header.reply_slot == abi::kNoReply;
    records_.push_back({header, keys});
    note(kept_, keys, +1);
    any_ = true;
  }
  void hold(const ParkKeys& keys) {
    note(held_, keys, +1);
    any_ = true;
  }
  void let_go(const ParkKeys& keys) {
    note(held_, keys, -1);
    any_ = held_.count != 0 || !records_.empty();
  }
  template <class Execute>
  void release(Execute&& execute) {
    Uses before;
    for (auto it = records_.begin(); it != records_.end();) {
      if (meets(it->keys, held_) || meets(it->keys, before)) {
        note(before, it->keys, +1);
        ++it;
        continue;
      }
      const Record record = *it;
      it = records_.erase(it);
      note(kept_, record.keys, -1);
      if (execute(record.header, std::span<const std::byte>{})) continue;
      note(before, record.keys, +1);
      note(kept_, record.keys, +1);
      records_.insert(it, record);
    }
    any_ = held_.count != 0 || !records_.empty();
  }

 private:
  struct Record {
    abi::RecordHeader header;
    ParkKeys keys;
  };
  struct Use {
    uint32_t users = 0, changers = 0;
  };
  struct Uses {
    std::unordered_map<uint64_t, Use> keys;
    size_t count = 0, ends = 0;
  };
  static bool meets(const ParkKeys& keys, const Uses& uses) {
    if (keys.behind == wire::Behind::kAll && uses.count != 0) return true;
    if (keys.behind != wire::Behind::kNamed && uses.ends != 0) return true;
    for (const ParkKeys::Key& key : keys.all()) {
      const auto found = uses.keys.find(key.value);
      if (found == uses.keys.end()) continue;
      if (found->second.changers != 0 || (key.looks && found->second.users != 0)) return true;
    }
    return false;
  }
  static void note(Uses& uses, const ParkKeys& keys, int by) {
    if (keys.uses) uses.count += static_cast<size_t>(by);
    if (keys.behind == wire::Behind::kAll) uses.ends += static_cast<size_t>(by);
    for (const ParkKeys::Key& key : keys.all()) {
      Use& use = uses.keys[key.value];
      (key.changes ? use.changers : use.users) += static_cast<uint32_t>(by);
    }
  }

  bool any_ = false;
  Uses held_, kept_;
  std::list<Record> records_;
};

// How often programs do what.
struct OrderHabits {
  uint32_t streams, others, often_held, often_let_go, often_all;
};

ParkKeys random_keys(std::mt19937& random, const OrderHabits& habits) {
  ParkKeys keys;
  const auto stream = [&] {
    keys.add(ParkKeys::object(NamedKind::kStream, random() % habits.streams), true);
    if (random() % 2 == 0) keys.add(ParkKeys::order(ParkKeys::Order::kLegacy, 0), false);
  };
  for (uint32_t i = random() % 3; i > 0; --i)
    keys.add(ParkKeys::object(NamedKind::kEvent, random() % habits.others), random() % 3 == 0);
  if (random() % 8 != 0) stream();
  if (random() % 16 == 0) stream();  // perhaps the same
  if (random() % 16 == 0) keys.add_look(ParkKeys::order(ParkKeys::Order::kLegacy, 0));
  if (random() % 32 == 0) keys.add(ParkKeys::order(ParkKeys::Order::kLegacy, 0), true);
  keys.add(ParkKeys::order(ParkKeys::Order::kUploads, 0), random() % 32 == 0);
  if (random() % habits.often_all == 0) keys.behind = static_cast<wire::Behind>(random() % 4);
  return keys;
}

// What a session does with one of the two. All choices come from the numbers of what happens, so
// both make the same ones as long as the same happens.
template <class Parked>
class OrderRun {
 public:
  OrderRun(Parked& parked, uint32_t seed, const OrderHabits& habits)
      : parked_(parked), random_(seed), habits_(habits), keys_(seed + 1) {}

  void comes(uint64_t sequence) {
    const ParkKeys keys = random_keys(keys_, habits_);
    note(parked_.must_stay(keys), parked_.any());
    abi::RecordHeader header{};
    header.sequence = sequence;
    header.reply_slot = random_() % 2 == 0 ? 0 : abi::kNoReply;
    if (parked_.must_stay(keys)) return parked_.keep(header, {}, keys);
    went_.emplace_back(sequence, 0, 0);
    if (random_() % 16 == 0) parked_.keep(header, {}, keys);  // it was not done
    if (random_() % habits_.often_held == 0) hold();
  }
  void hold() { parked_.hold(held_.emplace_back(random_keys(keys_, habits_))); }
  void let_go() {
    if (held_.empty()) return;
    const size_t which = random_() % held_.size();
    parked_.let_go(held_[which]);
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(which));
  }
  void release() {
    parked_.release([&](const abi::RecordHeader& header, std::span<const std::byte>) {
      note(header.sequence, 1);
      if (random_() % (2 * habits_.often_held) == 0) hold();
      if (random_() % 16 == 0) let_go();
      return random_() % 8 != 0;
    });
    note(parked_.any(), 2);
  }
  // Then everything has gone.
  void end() {
    while (parked_.any()) {
      while (!held_.empty()) let_go();
      release();
    }
  }
  void step(uint64_t sequence) {
    comes(sequence);
    if (random_() % habits_.often_let_go != 0) return;
    let_go();
    if (random_() % 4 != 0) release();
  }
  // Since the last call.
  auto went() { return std::exchange(went_, {}); }

 private:
  void note(uint64_t what, int kind) {
    went_.emplace_back(what, kind,
                       parked_.count() * 8 + parked_.uses() * 4u + parked_.holds() * 2u +
                           static_cast<size_t>(parked_.ends()));
  }

  Parked& parked_;
  std::mt19937 random_;
  const OrderHabits habits_;
  std::mt19937 keys_;
  std::vector<ParkKeys> held_;
  std::vector<std::tuple<uint64_t, int, size_t>> went_;
};

TEST(ParkedOrderTest, RandomProgramsGoAsIfAllWereSearched) {
  constexpr uint32_t kPrograms = 600, kRecords = 300;
  constexpr OrderHabits kHabits[] = {
      {.streams = 5, .others = 4, .often_held = 8, .often_let_go = 8, .often_all = 12},
      {.streams = 20, .others = 40, .often_held = 2, .often_let_go = 3, .often_all = 200},
      {.streams = 2, .others = 2, .often_held = 3, .often_let_go = 3, .often_all = 2}};
  size_t most = 0;
  for (uint32_t program = 0; program < kPrograms; ++program) {
    const OrderHabits& habits = kHabits[program % 3];
    SearchedRecords searched;
    ParkedRecords parked({.records = kRecords, .bytes = 1 << 20});
    OrderRun<SearchedRecords> expected(searched, program, habits);
    OrderRun<ParkedRecords> run(parked, program, habits);
    for (uint64_t sequence = 1; sequence <= kRecords; ++sequence) {
      expected.step(sequence);
      run.step(sequence);
      ASSERT_EQ(run.went(), expected.went()) << program << " at " << sequence;
      most = std::max(most, parked.count());
    }
    expected.end();
    run.end();
    ASSERT_EQ(run.went(), expected.went()) << program;
    EXPECT_EQ(parked.count(), 0u);
  }
  EXPECT_GT(most, 100u) << "hardly anything was kept";
}

ParkKeys work_of(uint64_t stream, uint64_t kernel) {
  ParkKeys keys;
  keys.add(ParkKeys::object(NamedKind::kKernel, kernel), false);
  keys.add(ParkKeys::object(NamedKind::kStream, stream), true);
  keys.add(ParkKeys::order(ParkKeys::Order::kLegacy, 0), false);
  keys.add(ParkKeys::order(ParkKeys::Order::kUploads, 0), false);
  return keys;
}

class LookedAtTest : public testing::Test {
 protected:
  static constexpr uint64_t kMany = 10'000;
  void keep(const ParkKeys& keys) {
    ASSERT_TRUE(parked.must_stay(keys));
    abi::RecordHeader header{};
    header.reply_slot = abi::kNoReply;
    parked.keep(header, {}, keys);
  }
  // Lets go what is held, and the first `goes` records; the last of these holds the keys again. So
  // many records were looked at.
  uint64_t looked_at(const ParkKeys& held, uint64_t goes) {
    const uint64_t before = parked.looked_at();
    uint64_t went = 0;
    parked.let_go(held);
    parked.release([&](const abi::RecordHeader&, std::span<const std::byte>) {
      if (++went == goes) parked.hold(held);
      return true;
    });
    EXPECT_EQ(went, goes);
    return parked.looked_at() - before;
  }
  ParkedRecords parked{{.records = 2 * kMany, .bytes = 1 << 20}};
};

TEST_F(LookedAtTest, NoMoreThanGoOfAStreamWithManyRecords) {
  const ParkKeys stream = work_of(1, 1);
  parked.hold(stream);
  for (uint64_t i = 0; i < kMany; ++i) keep(stream);
  EXPECT_LT(looked_at(stream, 1), 10u);
  EXPECT_LT(looked_at(stream, 4), 20u);
  EXPECT_LT(looked_at(stream, kMany - 5), 3 * kMany);
  EXPECT_EQ(parked.count(), 0u);
}

TEST_F(LookedAtTest, NoMoreThanGoBesideAnotherStreamWithManyRecords) {
  parked.hold(work_of(1, 1));
  for (uint64_t i = 0; i < kMany; ++i) keep(work_of(1, i % 7));
  parked.hold(work_of(2, 1));
  for (int i = 0; i < 3; ++i) keep(work_of(2, 1));
  EXPECT_LT(looked_at(work_of(2, 1), 1), 10u);
  EXPECT_LT(looked_at(work_of(2, 1), 2), 10u);
}

// The legacy stream holds all blocking ones: of each, only the next record is of interest.
TEST_F(LookedAtTest, OneOfEachStreamWhenTheLegacyStreamIsLetGo) {
  ParkKeys legacy;
  legacy.add(ParkKeys::order(ParkKeys::Order::kLegacy, 0), true);
  parked.hold(legacy);
  for (uint64_t i = 0; i < kMany; ++i) keep(work_of(i % 4, 1));
  EXPECT_LT(looked_at(legacy, 1), 20u);
  EXPECT_LT(looked_at(legacy, 2), 30u);
}

TEST_F(LookedAtTest, NoMoreThanGoOfFreesBetweenWork) {
  ParkKeys free;
  free.behind = wire::Behind::kAll;
  parked.hold(work_of(1, 1));
  for (uint64_t i = 0; i < kMany / 2; ++i) {
    keep(work_of(1, 1));
    keep(free);
  }
  EXPECT_LT(looked_at(work_of(1, 1), 1), 10u);
}

}  // namespace
}  // namespace tube::proxy

// Records that are kept back because their turn has not come, while the client's other streams go
// on.
//
// Some work may not go to the driver yet: a copy that waits for its link, a launch that is held,
// memory that comes back. A wait on the GPU for something that is not submitted is no way out: it
// would stand in one of the few hardware queues, perhaps in front of what is to release it. So the
// stream is held: its later records wait here, and the session takes the next one from the ring.
//
// Waiting spreads exactly as order does. A record names objects by keys: streams, events, kernels,
// instances of graphs, the legacy stream's order, what ended streams leave, uploads whose call has
// returned. Some of them it changes (a stream always), the others it only uses. It stays behind an
// earlier record that is kept here when they name one object and either changes it, and behind a
// held stream likewise. A mark on the legacy stream stays behind the blocking streams' records, but
// those that come later do not stay behind it.
// Records that end or move what others may use without naming it (frees, unloads) stay behind all
// that are kept (wire::Behind::kAll). What is made meanwhile takes nobody's place: an object keeps
// its id, and memory its address, until its end is executed. So calls that allocate are tried at
// once, and stay behind the kept ends only where they found no memory (kTried). Their caller waits
// for the answer meanwhile, and so has nothing that another thread's record may end: no record
// stays behind them but by their names.
//
// Nothing is kept: one test of a flag. Otherwise a look-up for each key of a record. Each key has
// its records in a queue; when a stream is let go, or a record goes, only those are looked at
// before which something has left a queue (`may_go_`), however many are kept. Bounded by records
// and bytes. Session thread only, but for ends_kept() and ends_done().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "protocol/handle_id.h"
#include "protocol/wire_support.h"
#include "sharedmem/abi.h"

namespace tube::proxy {

// What a record names. At most as many as the described fields and the orders that come with them.
class ParkKeys {
 public:
  struct Key {
    uint64_t value;
    bool changes;  // users stay behind it
    bool looks;    // it stays behind users
  };
  // What keys are made of beside the described kinds of objects.
  enum class Order : uint8_t { kLegacy = 16, kEnded, kUploads };

  // With the generation: a new object with the index of one whose end is kept is another one
  // (Objects::insert).
  static uint64_t object(wire::NamedKind kind, uint64_t id) {
    return key(static_cast<uint8_t>(kind), id);
  }
  static uint64_t order(Order order, uint64_t number) {
    return key(static_cast<uint8_t>(order), number);
  }

  void add(uint64_t value, bool changes) { add({value, changes, changes}); }
  // It changes nothing, but sees what those before it have left.
  void add_look(uint64_t value) { add({value, false, true}); }
  void change_all() {
    for (Key& key : keys_) key.changes = key.looks = true;
  }
  std::span<const Key> all() const { return {keys_, count_}; }

  wire::Behind behind = wire::Behind::kNamed;
  bool uses = true;  // may use without naming it what others end

 private:
  void add(Key key) {
    if (count_ < kMost) keys_[count_++] = key;
    else behind = wire::Behind::kAll;
  }
  static constexpr size_t kMost = 12;
  // Two objects with one key would only wait for each other without need.
  static uint64_t key(uint8_t kind, uint64_t id) { return id * 0x9e3779b97f4a7c15u + kind; }
  Key keys_[kMost] = {};
  size_t count_ = 0;
};

class ParkedRecords {
 public:
  struct Limits {
    size_t records;
    size_t bytes;
  };
  struct Record {
    abi::RecordHeader header;
    std::unique_ptr<std::byte[]> data;  // 16-byte aligned
    size_t bytes = 0;
    ParkKeys keys;
    std::span<const std::byte> payload() const { return {data.get(), bytes}; }
  };

  explicit ParkedRecords(const Limits& limits) : limits_(limits) {}

  // Whether anything is held or kept; otherwise every record may go.
  bool any() const { return any_; }
  // Whether something is held or kept that may use without naming it what others end.
  bool uses() const { return holds() || !unnamed_.users.empty(); }
  // Whether a stream is held. False inside release() for a record that stays behind all, whatever
  // is kept behind it.
  bool holds() const { return unnamed_.held_users != 0; }
  // Whether something that ends what others may use is kept.
  bool ends() const { return !ends_.changers.empty(); }
  // What comes with these keys must stay: something before it is held or kept. What is tried first
  // stays by its names alone.
  bool must_stay(const ParkKeys& keys) const;
  bool has_room(size_t bytes) const {
    return records_.size() < limits_.records && has_bytes(bytes);
  }
  // For a record that need not stay, but may come again: there is one of a stream at most.
  bool has_bytes(size_t bytes) const { return bytes_ + bytes <= limits_.bytes; }
  void keep(const abi::RecordHeader& header, std::span<const std::byte> payload,
            const ParkKeys& keys);

  // The keys' later records stay until let_go() with the same keys. Several holds add up.
  void hold(const ParkKeys& keys);
  void let_go(const ParkKeys& keys);

  // Hands every kept record that need not stay any longer to `execute`, in their order; what it
  // holds counts at once. It answers whether the record is done: otherwise that comes again, in its
  // place.
  template <class Execute>
  void release(Execute&& execute) {
    uint64_t place = 0;  // what comes to be in front of it meanwhile is for the next time
    for (auto next = may_go_.begin(); next != may_go_.end(); next = may_go_.upper_bound(place)) {
      place = *next;
      may_go_.erase(next);
      ++looked_at_;
      const auto it = records_.find(place);
      if (is_stopped(place, it->second.keys)) continue;
      Record record = take(it);
      if (!execute(record.header, record.payload())) put_back(place, std::move(record));
      else if (record.keys.behind == wire::Behind::kAll) count(ends_done_);
    }
    any_ = holds() || !records_.empty();
  }
  // Forgets all: the client is gone.
  void clear();
  // In their order, `see(header, payload)`.
  template <class See>
  void each(See&& see) const {
    for (const auto& [place, record] : records_) see(record.header, record.payload());
  }

  // Of the records that stay behind all, which keep their order: how many were ever kept, and how
  // many of these are executed. Any thread.
  uint64_t ends_kept() const { return ends_kept_.load(std::memory_order_acquire); }
  uint64_t ends_done() const { return ends_done_.load(std::memory_order_acquire); }

  size_t count() const { return records_.size(); }
  size_t bytes() const { return bytes_; }
  // How many records release() has ever looked at.
  uint64_t looked_at() const { return looked_at_; }

 private:
  // Who names one thing. Records by their places, which grow in the order in which they came.
  struct Queue {
    uint32_t held_users = 0, held_changers = 0;  // by hold()
    std::set<uint64_t> users, changers;          // kept
    std::set<uint64_t> waiting;                  // of them: not looked at before a changer is gone

    bool idle() const;
    // Whether a record at `place` stays behind what is held or kept in front of it.
    bool stops(uint64_t place, bool looks) const;
  };

  // `see(queue, key)` for each thing that the record names, and those that it stays behind unnamed.
  template <class See>
  void each_queue(const ParkKeys& keys, See&& see) {
    for (const ParkKeys::Key& key : keys.all()) {
      const auto it = queues_.try_emplace(key.value).first;
      see(it->second, key);
      if (it->second.idle()) queues_.erase(it);
    }
    const bool all = keys.behind == wire::Behind::kAll;
    if (keys.uses) see(unnamed_, ParkKeys::Key{.value = 0, .changes = false, .looks = all});
    if (keys.behind != wire::Behind::kNamed)
      see(ends_, ParkKeys::Key{.value = 0, .changes = all, .looks = false});
  }
  static void count(std::atomic<uint64_t>& ends) { ends.fetch_add(1, std::memory_order_release); }
  // Whether the kept record must not go. Then it is in `may_go_` again when what stops it is gone.
  bool is_stopped(uint64_t place, const ParkKeys& keys);
  void join(uint64_t place, const ParkKeys& keys);
  // Something has left the queue.
  void moves(Queue& queue);
  Record take(std::map<uint64_t, Record>::iterator it);
  void put_back(uint64_t place, Record record);

  const Limits limits_;
  bool any_ = false;
  size_t bytes_ = 0;
  uint64_t looked_at_ = 0;
  std::map<uint64_t, Record> records_;  // by place
  uint64_t last_place_ = 0;
  std::unordered_map<uint64_t, Queue> queues_;  // by key
  Queue unnamed_;              // users: what may use what others end; what is kAll looks at it
  Queue ends_;                 // changers: kAll; users: kEnds and kTried
  std::set<uint64_t> may_go_;  // all kept records that nothing stops, and some others
  std::atomic<uint64_t> ends_kept_{0}, ends_done_{0};
};

}  // namespace tube::proxy

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
// Nothing is kept: one test of a flag. Otherwise a look-up for each key of a record, and for each
// that is kept whenever a stream is let go. Bounded by records and bytes. Session thread only, but
// for ends_kept() and ends_done().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>

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
  bool uses() const { return held_.count != 0 || kept_.count != 0; }
  // Whether a stream is held. False inside release() for a record that stays behind all, whatever
  // is kept behind it.
  bool holds() const { return held_.count != 0; }
  // Whether something that ends what others may use is kept.
  bool ends() const { return kept_.ends != 0; }
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
    Uses before;
    for (auto it = records_.begin(); it != records_.end();) {
      if (stays(it->keys, before)) {
        note(before, it->keys, +1);
        ++it;
        continue;
      }
      Record record = take(it++);
      if (execute(record.header, record.payload())) {
        if (record.keys.behind == wire::Behind::kAll) count(ends_done_);
        continue;
      }
      note(before, record.keys, +1);
      put_back(it, std::move(record));
    }
    any_ = held_.count != 0 || !records_.empty();
  }
  // Forgets all: the client is gone.
  void clear();
  // In their order, `see(header, payload)`.
  template <class See>
  void each(See&& see) const {
    for (const Record& record : records_) see(record.header, record.payload());
  }

  // Of the records that stay behind all, which keep their order: how many were ever kept, and how
  // many of these are executed. Any thread.
  uint64_t ends_kept() const { return ends_kept_.load(std::memory_order_acquire); }
  uint64_t ends_done() const { return ends_done_.load(std::memory_order_acquire); }

  size_t count() const { return records_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Use {
    uint32_t users = 0;
    uint32_t changers = 0;
  };
  // What stands before a record: held streams, or kept records.
  struct Uses {
    std::unordered_map<uint64_t, Use> keys;
    size_t count = 0;  // that may use what others end
    size_t ends = 0;   // kAll
  };

  static bool meets(const ParkKeys& keys, const Uses& uses);
  static void note(Uses& uses, const ParkKeys& keys, int by);
  // Whether a record behind these must not go.
  bool stays(const ParkKeys& keys, const Uses& before) const {
    return meets(keys, held_) || meets(keys, before);
  }
  static void count(std::atomic<uint64_t>& ends) { ends.fetch_add(1, std::memory_order_release); }
  Record take(std::list<Record>::iterator it);
  void put_back(std::list<Record>::iterator before, Record record);

  const Limits limits_;
  bool any_ = false;
  size_t bytes_ = 0;
  Uses held_;  // by hold()
  Uses kept_;  // by the records
  std::list<Record> records_;
  std::atomic<uint64_t> ends_kept_{0}, ends_done_{0};
};

}  // namespace tube::proxy

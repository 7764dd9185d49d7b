// Handles that programs hold: pointer-like values that name an object of this process.
//
// A handle is an address inside one inaccessible reserved range, so it never equals anything the
// program owns, and a program that dereferences it faults at once. Its bits are kind, generation
// and index:
//
//   base + (kind << 35 | generation << 24 | index << 4)        5, 11, 20 bits; 1 TiB in all
//
// find() is lock-free: slots and objects are never given back to the allocator, only reused with
// the next generation, so a lookup of a stale handle reads valid memory and sees another
// generation. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hook/process/lock.h"
#include "protocol/handle_id.h"

namespace tube::hook {

using wire::Kind;

struct Slot {
  std::atomic<uint32_t> live{0};  // generation while the object lives, else 0
  uint32_t last_generation = 0;
  uint32_t index = 0;
  Kind kind{};
  uint32_t uses = 0;  // the generation that travels: no id comes again
  uint64_t id = 0;    // what travels: make_id(index, uses), or the proxy's own id
  void* object =
      nullptr;  // a T of that kind, reused with the slot; nullptr for kinds that need none
  Slot* next_retired = nullptr;
};

class Objects {
 public:
  static constexpr uint32_t kMaxIndex = 1u << 20;
  static constexpr uint32_t kMaxGeneration = (1u << 11) - 1;

  constexpr Objects() = default;
  // Once, before use. Falls back to addresses that no process can map when the range cannot be
  // reserved (ulimit -v).
  void start();

  // A slot that nobody finds yet, with its id set; its object is what the previous owner left
  // there, or nullptr. nullptr when the table is full. publish() makes it findable.
  Slot* allocate(Kind kind);
  void publish(Slot* slot);
  // Takes the handle out of use; the slot may be reused at once, which is right where the proxy
  // knows no object of that id (any more). False when somebody else was faster.
  bool remove(Slot* slot);

  Slot* find(Kind kind, const void* handle) const;
  // The handle named an object of that kind once and no longer does.
  bool gone(Kind kind, const void* handle) const;
  void* handle_of(const Slot* slot) const;
  Slot* at(Kind kind, uint32_t index) const;  // by index, live or not; nullptr when never allocated

 private:
  friend class Retired;
  bool retire(Slot* slot);
  void reuse(Slot* slot);

  static constexpr uint32_t kSlotsPerBlock = 1024;
  static constexpr uint32_t kBlocks = kMaxIndex / kSlotsPerBlock;
  static constexpr uint32_t kKinds = static_cast<uint32_t>(Kind::kCount);
  static_assert(kKinds <= 32);

  struct Table {
    Lock lock;  // rank 2: free list and growth
    std::atomic<Slot*> blocks[kBlocks] = {};
    uint32_t next_index = 1;
    uint32_t* free_ring = nullptr;  // indices, oldest first, so that a generation lasts
    uint32_t free_capacity = 0, free_first = 0, free_count = 0;
  };
  // The slot a handle belongs to, live or not, and the generation it names.
  Slot* decode(Kind kind, const void* handle, uint32_t* generation) const;
  Slot* grow(Table& table, Kind kind);
  static bool push_free(Table& table, uint32_t index);

  uintptr_t base_ = 0;
  Table tables_[kKinds] = {};
};

// Objects whose end the proxy has yet to hear of. Their handles are out of use from add() on; their
// slots are given out again when this goes, which must be after the record was published: another
// thread's record that creates an object in the same slot has to come behind the one that destroys
// this one.
class Retired {
 public:
  explicit Retired(Objects& objects) : objects_(objects) {}
  ~Retired() {
    while (first_ != nullptr) objects_.reuse(std::exchange(first_, first_->next_retired));
  }
  Retired(const Retired&) = delete;
  Retired& operator=(const Retired&) = delete;
  // False when somebody else was faster.
  bool add(Slot* slot) {
    if (!objects_.retire(slot)) return false;
    slot->next_retired = std::exchange(first_, slot);
    return true;
  }

 private:
  Objects& objects_;
  Slot* first_ = nullptr;
};

}  // namespace tube::hook

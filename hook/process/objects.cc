#include "hook/process/objects.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace tube::hook {
namespace {

constexpr uint64_t kRangeBytes = 1ull << 40;
// Not canonical on x86-64 with four- or five-level tables: nothing can ever be mapped there.
constexpr uintptr_t kUnmappableBase = 0x0200'0000'0000'0000ull;

}  // namespace

void Objects::start() {
  if (base_ != 0) return;
  void* range =
      mmap(nullptr, kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  base_ = range == MAP_FAILED ? kUnmappableBase : reinterpret_cast<uintptr_t>(range);
}

Slot* Objects::grow(Table& table, Kind kind) {
  const uint32_t index = table.next_index;
  // No slot is free here, so as many are alive.
  if (index >= kMaxIndex || index > wire::most_alive(kind)) return nullptr;
  std::atomic<Slot*>& block = table.blocks[index / kSlotsPerBlock];
  if (block.load(std::memory_order_relaxed) == nullptr) {
    void* memory = std::calloc(kSlotsPerBlock, sizeof(Slot));
    if (memory == nullptr) return nullptr;
    block.store(static_cast<Slot*>(memory), std::memory_order_release);
  }
  table.next_index = index + 1;
  Slot* slot = block.load(std::memory_order_relaxed) + index % kSlotsPerBlock;
  slot->index = index;
  slot->kind = kind;
  return slot;
}

bool Objects::push_free(Table& table, uint32_t index) {
  if (table.free_count == table.free_capacity) {
    const uint32_t capacity = table.free_capacity == 0 ? 64 : table.free_capacity * 2;
    auto* ring = static_cast<uint32_t*>(std::malloc(capacity * sizeof(uint32_t)));
    if (ring == nullptr) return false;  // the slot is lost, nothing else
    for (uint32_t i = 0; i < table.free_count; ++i)
      ring[i] = table.free_ring[(table.free_first + i) % table.free_capacity];
    std::free(table.free_ring);
    table.free_ring = ring;
    table.free_capacity = capacity;
    table.free_first = 0;
  }
  table.free_ring[(table.free_first + table.free_count++) % table.free_capacity] = index;
  return true;
}

Slot* Objects::allocate(Kind kind) {
  Table& table = tables_[static_cast<uint32_t>(kind)];
  Locked locked(table.lock);
  Slot* slot = nullptr;
  if (table.free_count != 0) {
    const uint32_t index = table.free_ring[table.free_first];
    table.free_first = (table.free_first + 1) % table.free_capacity;
    --table.free_count;
    slot = table.blocks[index / kSlotsPerBlock].load(std::memory_order_relaxed) +
           index % kSlotsPerBlock;
  } else {
    slot = grow(table, kind);
  }
  if (slot == nullptr) return nullptr;
  slot->last_generation = slot->last_generation % kMaxGeneration + 1;
  slot->id = wire::make_id(slot->index, ++slot->uses);
  return slot;
}

void Objects::publish(Slot* slot) {
  slot->live.store(slot->last_generation, std::memory_order_release);
}

bool Objects::retire(Slot* slot) { return slot->live.exchange(0, std::memory_order_acq_rel) != 0; }

void Objects::reuse(Slot* slot) {
  Table& table = tables_[static_cast<uint32_t>(slot->kind)];
  Locked locked(table.lock);
  push_free(table, slot->index);
}

bool Objects::remove(Slot* slot) {
  if (!retire(slot)) return false;
  reuse(slot);
  return true;
}

Slot* Objects::at(Kind kind, uint32_t index) const {
  if (index == 0 || index >= kMaxIndex) return nullptr;
  Slot* block = tables_[static_cast<uint32_t>(kind)].blocks[index / kSlotsPerBlock].load(
      std::memory_order_acquire);
  return block == nullptr ? nullptr : block + index % kSlotsPerBlock;
}

Slot* Objects::decode(Kind kind, const void* handle, uint32_t* generation) const {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - base_;
  if (offset >= kRangeBytes || (offset & 15) != 0 || offset >> 35 != static_cast<uint32_t>(kind))
    return nullptr;
  *generation = static_cast<uint32_t>(offset >> 24) & kMaxGeneration;
  return *generation == 0 ? nullptr
                          : at(kind, static_cast<uint32_t>(offset >> 4) & (kMaxIndex - 1));
}

Slot* Objects::find(Kind kind, const void* handle) const {
  uint32_t generation = 0;
  Slot* slot = decode(kind, handle, &generation);
  return slot != nullptr && slot->live.load(std::memory_order_acquire) == generation ? slot
                                                                                     : nullptr;
}

bool Objects::gone(Kind kind, const void* handle) const {
  uint32_t generation = 0;
  const Slot* slot = decode(kind, handle, &generation);
  // Generations come again after 2047 objects in a slot; a handle that old may be told for one of
  // nobody's.
  return slot != nullptr && generation <= slot->last_generation &&
         slot->live.load(std::memory_order_acquire) != generation;
}

void* Objects::handle_of(const Slot* slot) const {
  return reinterpret_cast<void*>(base_ + (uint64_t{static_cast<uint32_t>(slot->kind)} << 35 |
                                          uint64_t{slot->last_generation} << 24 |
                                          uint64_t{slot->index} << 4));
}

}  // namespace tube::hook

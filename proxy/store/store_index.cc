#include "proxy/store/store_index.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <climits>
#include <memory>

#include "base/futex.h"
#include "sharedmem/segment.h"
#include "sharedmem/store_accessors.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tube::proxy {
namespace {

constexpr uint32_t kMask = abi::kStoreBuckets - 1;
static_assert((abi::kStoreBuckets & kMask) == 0);

}  // namespace

Status StoreIndexWriter::open(uint64_t id) {
  Result<UniqueFd> file = shared::create_index_file("tube-store", abi::kStoreIndexBytes);
  if (!file.ok()) return file.error();
  Result<Mapping> memory =
      Mapping::map(file->get(), 0, abi::kStoreIndexBytes, PROT_READ | PROT_WRITE);
  if (!memory.ok()) return memory.error();
  // From here on nobody maps it for writing. Kernels before 5.1 do not know the seal: a client that
  // wants to can then write there, which harms its neighbours' look-ups and not the proxy.
  (void)fcntl(file->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  table_ = std::make_unique<uint32_t[]>(abi::kStoreBuckets);
  hashes_ = std::make_unique<uint64_t[]>(abi::kStoreSlots);
  fd_ = file.take();
  memory_ = memory.take();
  abi::StoreHeader& h = header();
  h.slots = abi::kStoreSlots;
  h.buckets = abi::kStoreBuckets;
  h.store_id = id;
  h.magic = abi::kStoreMagic;
  return {};
}

void StoreIndexWriter::insert(uint32_t slot, uint64_t hash) {
  uint32_t at = static_cast<uint32_t>(hash) & kMask;
  while (table_[at] != 0) at = (at + 1) & kMask;
  hashes_[slot] = hash;
  table_[at] = slot + 1;
  shared::proxy_stores_bucket(buckets()[at], slot + 1);
}

// What stands behind the gap moves up, so that no probe ends early. A reader that misses a name
// meanwhile sees that the version changed.
void StoreIndexWriter::remove(uint32_t slot, uint64_t hash) {
  uint32_t gap = static_cast<uint32_t>(hash) & kMask;
  while (table_[gap] != slot + 1) gap = (gap + 1) & kMask;
  for (uint32_t at = (gap + 1) & kMask; table_[at] != 0; at = (at + 1) & kMask) {
    const uint32_t home = static_cast<uint32_t>(hashes_[table_[at] - 1]) & kMask;
    if (((at - home) & kMask) < ((at - gap) & kMask)) continue;  // its home is behind the gap
    table_[gap] = table_[at];
    shared::proxy_stores_bucket(buckets()[gap], table_[gap]);
    gap = at;
  }
  table_[gap] = 0;
  shared::proxy_stores_bucket(buckets()[gap], 0);
}

void StoreIndexWriter::enter(uint32_t slot, uint64_t generation, const abi::StoreBody& body) {
  abi::StoreEntry& e = entry(slot);
  shared::proxy_writes_body(e, body);
  shared::proxy_stores_ready(e, false);
  for (abi::StoreOther& other : e.others) shared::proxy_stores_other(other, 0, 0);
  shared::proxy_stores_store_state(e, abi::store_word(generation, abi::StoreState::kReserved));
  shared::proxy_begins_table(header());
  insert(slot, body.hash);
  shared::proxy_ends_table(header());
}

void StoreIndexWriter::seal(uint32_t slot, uint64_t generation, bool ready) {
  if (ready) shared::proxy_stores_ready(entry(slot), true);
  shared::proxy_stores_store_state(entry(slot),
                                   abi::store_word(generation, abi::StoreState::kSealed));
  shared::proxy_counts_change(header());
}

void StoreIndexWriter::set_ready(uint32_t slot) { shared::proxy_stores_ready(entry(slot), true); }

void StoreIndexWriter::set_other(uint32_t slot, uint32_t other, uint64_t address, int32_t device) {
  shared::proxy_stores_other(entry(slot).others[other], address, device);
}

void StoreIndexWriter::begin_move(uint32_t slot, uint64_t generation) {
  shared::proxy_dooms(entry(slot), abi::store_word(generation, abi::StoreState::kDoomed));
}

void StoreIndexWriter::stay(uint32_t slot, uint64_t generation) {
  shared::proxy_stores_store_state(entry(slot),
                                   abi::store_word(generation, abi::StoreState::kSealed));
  shared::proxy_counts_change(header());
}

void StoreIndexWriter::moved(uint32_t slot, uint64_t generation, const abi::StoreBody& body) {
  abi::StoreEntry& e = entry(slot);
  shared::proxy_stores_store_state(e, abi::store_word(generation, abi::StoreState::kFree));
  shared::proxy_writes_body(e, body);
  for (abi::StoreOther& other : e.others) shared::proxy_stores_other(other, 0, 0);
  shared::proxy_stores_ready(e, true);
  shared::proxy_stores_store_state(e, abi::store_word(generation, abi::StoreState::kSealed));
  shared::proxy_counts_change(header());
}

void StoreIndexWriter::doom(uint32_t slot, uint64_t generation, uint64_t hash) {
  shared::proxy_begins_table(header());
  remove(slot, hash);
  shared::proxy_ends_table(header());
  shared::proxy_dooms(entry(slot), abi::store_word(generation, abi::StoreState::kDoomed));
  shared::proxy_counts_change(header());
}

void StoreIndexWriter::free(uint32_t slot, uint64_t generation) {
  shared::proxy_stores_store_state(entry(slot),
                                   abi::store_word(generation, abi::StoreState::kFree));
}

void StoreIndexWriter::wake() { (void)futex_wake(&header().changes, INT_MAX); }

}  // namespace tube::proxy

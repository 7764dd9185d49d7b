#include "sharedmem/store_index.h"

#include <sys/mman.h>

#include <cstring>

#include "sharedmem/segment.h"
#include "sharedmem/store_accessors.h"

namespace tube::shared {
namespace {

constexpr int kLooks = 16;  // before a look-up gives up that a writer keeps disturbing

}  // namespace

Status StoreIndex::attach(UniqueFd index, UniqueFd pins) {
  if (Status s = verify_memory_file(index.get(), abi::kStoreIndexBytes, false); !s) return s;
  if (Status s = verify_memory_file(pins.get(), abi::kStorePinsBytes, false); !s) return s;
  Result<Mapping> mapped = Mapping::map(index.get(), 0, abi::kStoreIndexBytes, PROT_READ);
  if (!mapped) return mapped.error();
  Result<Mapping> own = Mapping::map(pins.get(), 0, abi::kStorePinsBytes, PROT_READ | PROT_WRITE);
  if (!own) return own.error();
  const auto& header = *reinterpret_cast<const abi::StoreHeader*>(mapped->data());
  if (header.magic != abi::kStoreMagic || header.slots != abi::kStoreSlots ||
      header.buckets != abi::kStoreBuckets)
    return errorf("the proxy's store is of another version of Tube");
  index_ = mapped.take();
  pins_ = own.take();
  return {};
}

bool StoreIndex::look(uint32_t slot, StoreSight* sight) const {
  const abi::StoreEntry& e = entry(slot);
  const uint64_t word = client_reads_store_state(e);
  if (abi::store_state(word) == abi::StoreState::kFree) return false;
  client_copies_body(e, &sight->body);
  if (load_index(e.state, std::memory_order_relaxed) != word) return false;
  sight->slot = slot;
  sight->word = word;
  return true;
}

// `changed`: the entry is not what the bucket was about any more.
bool StoreIndex::holds_name(uint32_t slot, uint64_t hash, std::string_view name, StoreSight* sight,
                            bool* changed) const {
  if (load_index(entry(slot).body.hash, std::memory_order_relaxed) != hash) return false;
  if (!look(slot, sight)) {
    *changed = true;
    return false;
  }
  const abi::StoreBody& body = sight->body;
  if (body.hash != hash || body.name_bytes != name.size() ||
      std::memcmp(body.name, name.data(), name.size()) != 0)
    return false;
  if (sight->state() != abi::StoreState::kDoomed) return true;
  *changed = true;
  return false;
}

StoreIndex::Found StoreIndex::find(std::string_view name, StoreSight* sight) const {
  if (name.empty() || name.size() >= abi::kStoreNameBytes) return Found::kNo;
  const uint64_t hash = abi::store_hash(name.data(), static_cast<uint32_t>(name.size()));
  const auto* buckets = reinterpret_cast<const uint32_t*>(index_.data() + abi::kStoreBucketsOffset);
  for (int look = 0; look < kLooks; ++look) {
    const uint64_t version = client_begins_lookup(header());
    bool changed = false;
    for (uint32_t i = 0; i < abi::kStoreBuckets; ++i) {
      const uint32_t value = client_reads_bucket(buckets[(hash + i) % abi::kStoreBuckets]);
      if (value == 0) break;
      if (value > abi::kStoreSlots) continue;
      if (holds_name(value - 1, hash, name, sight, &changed)) return Found::kYes;
    }
    if (!changed && client_ends_lookup(header(), version)) return Found::kNo;
    __builtin_ia32_pause();
  }
  return Found::kUnsure;
}

bool StoreIndex::pin(const StoreSight& sight, bool* look_again) const {
  auto& own = reinterpret_cast<uint32_t*>(pins_.data())[sight.slot];
  const abi::StoreEntry& e = entry(sight.slot);
  *look_again = false;
  client_pins(own);
  if (client_reads_store_state(e) == sight.word) return true;
  client_unpins(own);
  *look_again = abi::store_state(client_reads_store_state(e)) == abi::StoreState::kDoomed;
  return false;
}

}  // namespace tube::shared

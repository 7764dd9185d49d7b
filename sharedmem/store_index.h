// The index of a workflow's store, as a client reads it (store_abi.h): a look-up by name without a
// lock, a call or a store to shared memory. A tenth of a microsecond. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/mapping.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "sharedmem/store_abi.h"

namespace tube::shared {

// An object as it was found: a copy of one moment.
struct StoreSight {
  uint32_t slot = 0;
  uint64_t word = 0;  // the entry's state
  abi::StoreBody body;

  abi::StoreState state() const { return abi::store_state(word); }
  uint64_t generation() const { return abi::store_generation(word); }
};

class StoreIndex {
 public:
  // Verifies and maps. The files are closed.
  Status attach(UniqueFd index, UniqueFd pins);
  bool attached() const { return index_.valid(); }

  enum class Found : uint32_t {
    kYes,
    kNo,
    kUnsure,  // the table changed under the look, several times: look again, or ask the proxy
  };
  Found find(std::string_view name, StoreSight* sight) const;
  // What is in a slot. False: nothing, or it changes just now.
  bool look(uint32_t slot, StoreSight* sight) const;

  // Precondition of all below: slot < abi::kStoreSlots.
  const abi::StoreEntry& entry(uint32_t slot) const {
    return reinterpret_cast<const abi::StoreEntry*>(index_.data() + abi::kStoreEntriesOffset)[slot];
  }
  // Whether the object that was seen is pinned from now on. `look_again`: it is not, and the proxy
  // has to be asked to look at the slot.
  bool pin(const StoreSight& sight, bool* look_again) const;

  const abi::StoreHeader& header() const {
    return *reinterpret_cast<const abi::StoreHeader*>(index_.data());
  }

 private:
  bool holds_name(uint32_t slot, uint64_t hash, std::string_view name, StoreSight* sight,
                  bool* changed) const;

  Mapping index_;
  Mapping pins_;
};

}  // namespace tube::shared

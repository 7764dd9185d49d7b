// The index of the store as the proxy writes it (sharedmem/store_abi.h): entries, and the table of
// names. The caller's lock covers all of it; clients read meanwhile.
#pragma once

#include <cstdint>
#include <memory>

#include "base/mapping.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "sharedmem/store_abi.h"

namespace tube::proxy {

class StoreIndexWriter {
 public:
  // Makes the file. `id`: random.
  Status open(uint64_t id);
  bool is_open() const { return memory_.valid(); }
  int fd() const { return fd_.get(); }

  // An entry that is free gets an object, reserved or sealed, and its name comes into the table.
  void enter(uint32_t slot, uint64_t generation, const abi::StoreBody& body);
  void seal(uint32_t slot, uint64_t generation, bool ready);
  void set_ready(uint32_t slot);
  // Copy number `other` of the object is at `address`; 0: it is gone.
  void set_other(uint32_t slot, uint32_t other, uint64_t address, int32_t device);
  // The name goes, the object is doomed: who pins it from now on sees that. Then the pins may be
  // looked at.
  void doom(uint32_t slot, uint64_t generation, uint64_t hash);
  // A sealed object is about to move: as doom(), but it keeps its name. One of the next two
  // follows.
  void begin_move(uint32_t slot, uint64_t generation);
  void stay(uint32_t slot, uint64_t generation);
  // It is of that generation now, sealed, its bytes are there, and it has no copies.
  void moved(uint32_t slot, uint64_t generation, const abi::StoreBody& body);
  // Nobody has it any more.
  void free(uint32_t slot, uint64_t generation);
  // Wakes clients that wait for news.
  void wake();

 private:
  abi::StoreHeader& header() const { return *reinterpret_cast<abi::StoreHeader*>(memory_.data()); }
  abi::StoreEntry& entry(uint32_t slot) const {
    return reinterpret_cast<abi::StoreEntry*>(memory_.data() + abi::kStoreEntriesOffset)[slot];
  }
  uint32_t* buckets() const {
    return reinterpret_cast<uint32_t*>(memory_.data() + abi::kStoreBucketsOffset);
  }
  void insert(uint32_t slot, uint64_t hash);
  void remove(uint32_t slot, uint64_t hash);

  UniqueFd fd_;
  Mapping memory_;
  // What the shared buckets and hashes say, for the proxy trusts nothing that it shares.
  std::unique_ptr<uint32_t[]> table_;
  std::unique_ptr<uint64_t[]> hashes_;
};

}  // namespace tube::proxy

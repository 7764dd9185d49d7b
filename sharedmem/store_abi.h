// The specification of the shared bytes of a workflow's store (docs/store.md): named, immutable
// objects that all functions of a proxy may have.
//
// Two memory files, made by the proxy when its first client asks for the store:
//
//   index   what objects there are; the proxy alone writes it, every client maps it for reading
//
//           +0        StoreHeader      one page
//           +4 KiB    entries          kStoreSlots x sizeof(StoreEntry)
//           +...      buckets          kStoreBuckets x u32: slot + 1, 0 is empty
//
//   pins    one for each client: kStoreSlots x u32, written by that client and by the proxy
//
// An entry's `state` is its generation << 2 | StoreState. Everything else of an entry is written
// while the state says kFree, and stays as it is until the state says kFree again; `ready` and
// `others` alone change in between. A reader loads the state, copies the body, loads the state
// again: when both are equal the copy is of that generation. An object that moves gets another
// generation in the same entry, and keeps its name.
//
// Buckets are an open-addressed table by hash of the name, probed upwards; only reserved and sealed
// objects are in it. A reader that finds its name needs no more. One that does not looks whether
// `table_version` is what it was (and even): only then was the name in no bucket.
//
// Pins. pins[slot] counts what a client holds of the object in that slot. To take an object a
// client adds 1, fences, and loads the state again; it has the object when that is still sealed and
// of the same generation. Who ends or moves an object, or drops a copy of it, stores the state
// kDoomed, fences, and reads the pins of all clients; a move that finds one stores the old state
// again. Both fences are sequentially consistent: either the client sees that the
// object is doomed, or the proxy sees the pin, and the object's bytes stay where they are. The
// client that has seen kDoomed takes its 1 back, fences, and, as long as the state is kDoomed, asks
// the proxy to look again (tubeStoreLook).
//
// The client then posts tubeStoreClaim, from which the proxy knows by itself that the client holds
// the object, and later tubeStoreRelease. The proxy takes the pin back when it has executed that:
// from the first store of a pin to its end either the pin or the proxy's own count says that the
// object is held.
//
// Trust. A client may write anything into its pins. The proxy takes a pin for a reason to keep an
// object that was deleted, until that client ends, and for nothing else: it holds no other client
// to it, indexes nothing by it, and believes of a claim what its own records say.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tube::abi {

inline constexpr uint64_t kStoreMagic = 0x32524f5453425554ull;  // "TUBSTOR2"
inline constexpr uint32_t kStoreSlots = 16384;
inline constexpr uint32_t kStoreBuckets = 32768;
inline constexpr uint32_t kStoreNameBytes = 96;  // with the NUL
inline constexpr uint32_t kStoreGroupBytes = 64;
inline constexpr uint32_t kStoreDims = 8;
static_assert(kStoreBuckets >= 2 * kStoreSlots, "probes stay short");

struct alignas(128) StoreHeader {
  // written once
  uint64_t magic;
  uint32_t slots;
  uint32_t buckets;
  uint64_t store_id;  // random: names made of it are unique
  uint8_t pad0[128 - 24];

  uint64_t table_version;  // atomic; odd while buckets change
  uint32_t changes;        // atomic futex: grows when an object is sealed or ends
  uint32_t reserved0;
  uint8_t pad1[128 - 16];
};
static_assert(sizeof(StoreHeader) == 256);

enum class StoreState : uint32_t { kFree = 0, kReserved = 1, kSealed = 2, kDoomed = 3 };

// Atomic words, so that a reader may copy what is being written.
struct StoreBody {
  uint64_t hash;
  uint64_t bytes;
  uint64_t address;     // in `window`
  uint64_t created_ns;  // CLOCK_MONOTONIC, as is the next one
  uint64_t expires_ns;  // 0: never
  uint32_t place;       // wire::StorePlace: where it was put; it may have moved since
  int32_t device;       // where it is: the proxy's ordinal; -1: host memory
  uint32_t window;
  uint32_t dtype;  // DLPack: code | bits << 8 | lanes << 16
  uint32_t ndim;
  uint32_t name_bytes;
  char name[kStoreNameBytes];
  char group[kStoreGroupBytes];
  int64_t shape[kStoreDims];
  int64_t strides[kStoreDims];
};
static_assert(sizeof(StoreBody) == 352 && offsetof(StoreBody, name) == 64);

// A copy in another place: all of it is there.
struct StoreOther {
  uint64_t address;  // atomic; 0: none
  uint64_t device;   // atomic; as in StoreBody, in its low half
};
inline constexpr uint32_t kStoreOthers = 8;

struct StoreEntry {
  uint64_t state;  // atomic
  uint64_t ready;  // atomic; 1: the bytes are written, no stream has to wait
  StoreOther others[kStoreOthers];
  StoreBody body;
  uint8_t pad[16];
};
static_assert(sizeof(StoreEntry) == 512 && offsetof(StoreEntry, body) == 144);

inline constexpr uint64_t kStoreEntriesOffset = 4096;
inline constexpr uint64_t kStoreBucketsOffset =
    kStoreEntriesOffset + uint64_t{kStoreSlots} * sizeof(StoreEntry);
inline constexpr uint64_t kStoreIndexBytes =
    kStoreBucketsOffset + uint64_t{kStoreBuckets} * sizeof(uint32_t);
inline constexpr uint64_t kStorePinsBytes = uint64_t{kStoreSlots} * sizeof(uint32_t);
static_assert(kStoreIndexBytes % 4096 == 0 && kStorePinsBytes % 4096 == 0);

constexpr uint64_t store_word(uint64_t generation, StoreState state) {
  return generation << 2 | static_cast<uint64_t>(state);
}
constexpr StoreState store_state(uint64_t word) { return static_cast<StoreState>(word & 3); }
constexpr uint64_t store_generation(uint64_t word) { return word >> 2; }

// Of a name, by both sides.
constexpr uint64_t store_hash(const char* name, uint32_t bytes) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (uint32_t i = 0; i < bytes; ++i) h = (h ^ static_cast<uint8_t>(name[i])) * 0x100000001b3ull;
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15ull;
  return h ^ h >> 29;
}

}  // namespace tube::abi

// Every access to the shared bytes of the store (store_abi.h) that is not a plain copy, by name:
// its order and its partner in the other process.
#pragma once

#include <cstring>

#include "sharedmem/accessors.h"
#include "sharedmem/store_abi.h"

namespace tube::shared {

// A file that is mapped for reading alone may be loaded from all the same.
template <class T>
T load_index(const T& field, std::memory_order order) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(order);
}

// ---- the state of an entry ----
// Proxy, behind the body: who reads this word as it was stored sees the body. Partner:
// client_reads_store_state.
inline void proxy_stores_store_state(abi::StoreEntry& e, uint64_t word) {
  atomic(e.state).store(word, std::memory_order_release);
}
// Proxy: the object is doomed, or about to move. Fenced: either a client's pin is seen by the reads
// behind this, or that client sees the state. Partner: client_pins.
inline void proxy_dooms(abi::StoreEntry& e, uint64_t word) {
  atomic(e.state).store(word, std::memory_order_relaxed);
  full_fence();
}
// Partner: proxy_stores_store_state.
inline uint64_t client_reads_store_state(const abi::StoreEntry& e) {
  return load_index(e.state, std::memory_order_acquire);
}
// The body is the caller's copy, of the generation that a look at the state behind this confirms:
// the fence keeps the copy in front of it.
inline void client_copies_body(const abi::StoreEntry& e, abi::StoreBody* copy) {
  uint64_t words[sizeof(abi::StoreBody) / 8];
  const auto* from = reinterpret_cast<const uint64_t*>(&e.body);
  for (size_t i = 0; i < sizeof(words) / 8; ++i)
    words[i] = load_index(from[i], std::memory_order_relaxed);
  std::memcpy(copy, words, sizeof words);
  std::atomic_thread_fence(std::memory_order_acquire);
}
// Proxy, while the state says kFree. Fenced: whoever reads anything of this body finds that state,
// or a later one, at its next look. Partner: client_copies_body.
inline void proxy_writes_body(abi::StoreEntry& e, const abi::StoreBody& body) {
  uint64_t words[sizeof(abi::StoreBody) / 8];
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(words, &body, sizeof words);
  auto* to = reinterpret_cast<uint64_t*>(&e.body);
  for (size_t i = 0; i < sizeof(words) / 8; ++i)
    atomic(to[i]).store(words[i], std::memory_order_relaxed);
}

// ---- what changes while an object lives ----
// Proxy: the bytes are written. Partner: client_sees_ready.
inline void proxy_stores_ready(abi::StoreEntry& e, bool ready) {
  atomic(e.ready).store(ready ? 1 : 0, std::memory_order_release);
}
inline bool client_sees_ready(const abi::StoreEntry& e) {
  return load_index(e.ready, std::memory_order_acquire) != 0;
}
// Proxy: there is a copy in another place, the device first; address 0: it is gone, and no client
// has pinned the object. Partner: client_reads_other.
inline void proxy_stores_other(abi::StoreOther& other, uint64_t address, int32_t device) {
  atomic(other.device).store(static_cast<uint32_t>(device), std::memory_order_relaxed);
  atomic(other.address).store(address, std::memory_order_release);
}
// The device is that of the address as long as the caller has the object pinned.
inline uint64_t client_reads_other(const abi::StoreOther& other, int32_t* device) {
  const uint64_t address = load_index(other.address, std::memory_order_acquire);
  *device = static_cast<int32_t>(load_index(other.device, std::memory_order_relaxed));
  return address;
}

// ---- buckets ----
// Proxy, around a change of buckets. Partner: client_begins_lookup, client_ends_lookup.
inline void proxy_begins_table(abi::StoreHeader& h) {
  atomic(h.table_version).fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}
inline void proxy_ends_table(abi::StoreHeader& h) {
  atomic(h.table_version).fetch_add(1, std::memory_order_release);
}
inline void proxy_stores_bucket(uint32_t& bucket, uint32_t value) {
  atomic(bucket).store(value, std::memory_order_release);
}
inline uint64_t client_begins_lookup(const abi::StoreHeader& h) {
  return load_index(h.table_version, std::memory_order_acquire);
}
inline uint32_t client_reads_bucket(const uint32_t& bucket) {
  return load_index(bucket, std::memory_order_acquire);
}
// True: no bucket changed since client_begins_lookup() gave `version`.
inline bool client_ends_lookup(const abi::StoreHeader& h, uint64_t version) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return version % 2 == 0 && load_index(h.table_version, std::memory_order_relaxed) == version;
}

// ---- news ----
// Proxy, behind a state that waiters look for. Partner: client_reads_changes.
inline void proxy_counts_change(abi::StoreHeader& h) {
  atomic(h.changes).fetch_add(1, std::memory_order_release);
}
// Read before the look that finds nothing: the futex then is not slept on when something came
// meanwhile.
inline uint32_t client_reads_changes(const abi::StoreHeader& h) {
  return load_index(h.changes, std::memory_order_acquire);
}

// ---- pins ----
// Client: fenced, see store_abi.h. Partner: proxy_dooms, proxy_reads_pin.
inline void client_pins(uint32_t& pin) {
  atomic(pin).fetch_add(1, std::memory_order_relaxed);
  full_fence();
}
// Client: it did not get the object. Fenced: either the proxy's next look finds the pin gone, or
// the client's next look finds the state doomed. Partner: proxy_dooms, proxy_reads_pin.
inline void client_unpins(uint32_t& pin) {
  atomic(pin).fetch_sub(1, std::memory_order_release);
  full_fence();
}
// Proxy, in the client's name: the release is executed. Never below 0, whatever the client wrote.
inline void proxy_unpins(uint32_t& pin) {
  uint32_t now = atomic(pin).load(std::memory_order_relaxed);
  while (now != 0 && !atomic(pin).compare_exchange_weak(now, now - 1, std::memory_order_release,
                                                        std::memory_order_relaxed)) {
  }
}
// Proxy, behind proxy_dooms(). Partner: client_pins. Acquire: what the client read of the object is
// read before the proxy gives its memory away.
inline bool proxy_reads_pin(uint32_t& pin) {
  return atomic(pin).load(std::memory_order_acquire) != 0;
}

}  // namespace tube::shared

// Every access to shared memory that is not a plain copy, by name.
//
// Each function says its order and its partner in the other process. The fields are plain integers
// in abi.h; nothing else may read or write them. Fences are part of the accessors that need them
// (the two sleep protocols of abi.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "base/sanitizer.h"
#include "sharedmem/abi.h"

namespace tube::shared {

template <class T>
std::atomic_ref<T> atomic(T& field) {
  static_assert(std::atomic_ref<T>::is_always_lock_free);
  return std::atomic_ref<T>(field);
}

// Sequentially consistent fence. ThreadSanitizer does not model fences, so there it is a
// read-modify-write instead.
inline void full_fence() {
  if constexpr (kThreadSanitizer) {
    static std::atomic<uint32_t> fence_word{0};
    fence_word.fetch_add(1, std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

// ---- ring positions ----
// Client publishes a record: its bytes are visible to whoever reads this tail. Partner:
// proxy_load_tail.
inline void client_store_tail(abi::SegmentHeader& h, uint64_t tail) {
  atomic(h.tail).store(tail, std::memory_order_release);
}
// Partner: client_store_tail. The value is the client's: a hint until validated.
inline uint64_t proxy_load_tail(abi::SegmentHeader& h) {
  return atomic(h.tail).load(std::memory_order_acquire);
}
// Proxy hands ring space back: its reads of the record are over. Partner: client_load_head.
inline void proxy_store_head(abi::SegmentHeader& h, uint64_t head) {
  atomic(h.head).store(head, std::memory_order_release);
}
// Partner: proxy_store_head; bytes below the returned head may be overwritten.
inline uint64_t client_load_head(abi::SegmentHeader& h) {
  return atomic(h.head).load(std::memory_order_acquire);
}

// ---- the session sleeps for records ----

// Proxy, before
// its last look at the tail. Fenced: either that look sees the tail, or the client sees the flag.
// Partner: client_takes_proxy_asleep.
inline void proxy_announces_sleep(abi::SegmentHeader& h) {
  atomic(h.proxy_asleep).store(1, std::memory_order_relaxed);
  full_fence();
}
inline void proxy_is_awake(abi::SegmentHeader& h) {
  atomic(h.proxy_asleep).store(0, std::memory_order_relaxed);
}
// Client, after storing tail: true when it must wake the futex, and then only one caller gets true.
// Partner: proxy_announces_sleep.
inline bool client_takes_proxy_asleep(abi::SegmentHeader& h) {
  full_fence();
  if (atomic(h.proxy_asleep).load(std::memory_order_relaxed) == 0) return false;
  return atomic(h.proxy_asleep).exchange(0, std::memory_order_relaxed) != 0;
}

// ---- the client sleeps for ring space ----

// Client, before
// its last look at head. Fenced like the above. Partner: proxy_takes_space_wanted.
inline void client_announces_space_wanted(abi::SegmentHeader& h) {
  atomic(h.client_wants_space).store(1, std::memory_order_relaxed);
  full_fence();
}
inline void client_has_space(abi::SegmentHeader& h) {
  atomic(h.client_wants_space).store(0, std::memory_order_relaxed);
}
// Unfenced look, free on the hot path: may miss a sleeper for a while, never after the ring is
// drained (next function).
inline bool proxy_hint_space_wanted(abi::SegmentHeader& h) {
  return atomic(h.client_wants_space).load(std::memory_order_relaxed) != 0;
}
// Proxy, after storing head: true when it must wake the futex. Partner:
// client_announces_space_wanted.
inline bool proxy_takes_space_wanted(abi::SegmentHeader& h) {
  full_fence();
  if (atomic(h.client_wants_space).load(std::memory_order_relaxed) == 0) return false;
  return atomic(h.client_wants_space).exchange(0, std::memory_order_relaxed) != 0;
}

// ---- replies ----
// Client, before it publishes the record that names the slot (ordered by that publish).
inline void client_opens_reply(abi::ReplyHeader& r) {
  atomic(r.state).store(static_cast<uint32_t>(abi::ReplyState::kWaiting),
                        std::memory_order_relaxed);
}
// Partner: proxy_closes_reply; when true, result and payload are visible.
inline bool client_sees_reply(abi::ReplyHeader& r) {
  return atomic(r.state).load(std::memory_order_acquire) ==
         static_cast<uint32_t>(abi::ReplyState::kDone);
}
// Client goes to sleep: false when the reply is already there. One compare-exchange decides against
// proxy_closes_reply.
inline bool client_sleeps_for_reply(abi::ReplyHeader& r) {
  uint32_t expected = static_cast<uint32_t>(abi::ReplyState::kWaiting);
  const bool swapped = atomic(r.state).compare_exchange_strong(
      expected, static_cast<uint32_t>(abi::ReplyState::kAsleep), std::memory_order_acq_rel,
      std::memory_order_acquire);
  return swapped || expected == static_cast<uint32_t>(abi::ReplyState::kAsleep);
}
inline void client_frees_reply(abi::ReplyHeader& r) {
  atomic(r.state).store(static_cast<uint32_t>(abi::ReplyState::kIdle), std::memory_order_relaxed);
}
// Proxy, behind result and payload: true when the client sleeps and must be woken. Partner:
// client_sees_reply.
inline bool proxy_closes_reply(abi::ReplyHeader& r) {
  return atomic(r.state).exchange(static_cast<uint32_t>(abi::ReplyState::kDone),
                                  std::memory_order_acq_rel) ==
         static_cast<uint32_t>(abi::ReplyState::kAsleep);
}

// ---- words and chunk states (the other side is the GPU, or the proxy in its name) ----

// Partner: the GPU's stream write; what the stream wrote to
// host memory before it is visible.
inline uint64_t load_word(uint64_t& word) { return atomic(word).load(std::memory_order_acquire); }
// Client completes a host function, or hands a chunk back. Partner: the GPU's stream wait, the next
// claim.
inline void store_word(uint64_t& word, uint64_t value) {
  atomic(word).store(value, std::memory_order_release);
}
// Proxy, for events of which several are told in one word. Partner: load_word.
inline void proxy_sets_bits(uint64_t& word, uint64_t bits) {
  atomic(word).fetch_or(bits, std::memory_order_release);
}
// Proxy, for a signal that the GPU will not deliver: never makes the word smaller. Partner:
// load_word.
inline void proxy_completes_word(uint64_t& word, uint64_t value) {
  uint64_t now = atomic(word).load(std::memory_order_relaxed);
  while (now < value && !atomic(word).compare_exchange_weak(now, value, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
  }
}
// Two threads of one client may claim at once; the GPU never writes a free chunk's state.
inline bool client_claims_chunk(uint64_t& state) {
  uint64_t expected = abi::kChunkFree;
  return atomic(state).compare_exchange_strong(
      expected, abi::kChunkClaimed, std::memory_order_acquire, std::memory_order_relaxed);
}

// ---- offers of memory ----
constexpr uint64_t offer_word(uint64_t generation, abi::OfferState state) {
  return generation << 2 | static_cast<uint64_t>(state);
}
// Proxy, whose other fields are written: they are visible to whoever reads this word. Also for an
// offer that becomes empty. Partner: client_reads_offer.
inline void proxy_stores_offer(abi::MemoryOffer& o, uint64_t generation, abi::OfferState state) {
  atomic(o.state).store(offer_word(generation, state), std::memory_order_release);
}
// Proxy takes the block back, or makes ready for the client what that freed in stream order. False:
// the word was another one. Partner: client_takes_offer.
inline bool proxy_changes_offer(abi::MemoryOffer& o, uint64_t generation, abi::OfferState from,
                                abi::OfferState to) {
  uint64_t expected = offer_word(generation, from);
  return atomic(o.state).compare_exchange_strong(expected, offer_word(generation, to),
                                                 std::memory_order_acq_rel);
}
inline void proxy_stores_offers_used(abi::SegmentHeader& h, uint32_t count) {
  atomic(h.offers_used).store(count, std::memory_order_release);
}
// Partner: proxy_stores_offers_used.
inline uint32_t client_loads_offers_used(abi::SegmentHeader& h) {
  return atomic(h.offers_used).load(std::memory_order_acquire);
}
// Partner: proxy_stores_offer. What is read behind it is of that generation, if
// client_takes_offer() then finds the word as it was.
inline uint64_t client_reads_offer(abi::MemoryOffer& o) {
  return atomic(o.state).load(std::memory_order_acquire);
}
// One of several threads, and not the proxy: the block is this client's, with the next generation.
// Partner: proxy_changes_offer.
inline bool client_takes_offer(abi::MemoryOffer& o, uint64_t seen) {
  return atomic(o.state).compare_exchange_strong(
      seen, offer_word((seen >> 2) + 1, abi::OfferState::kTaken), std::memory_order_acq_rel);
}
// Client, behind the record that frees the block. Nothing, when that is no longer the offer's.
inline void client_returns_offer(abi::MemoryOffer& o, uint64_t generation) {
  uint64_t taken = offer_word(generation, abi::OfferState::kTaken);
  atomic(o.state).compare_exchange_strong(taken, offer_word(generation, abi::OfferState::kReady),
                                          std::memory_order_acq_rel);
}

// ---- spinning ----
// A hint to the client, which nothing depends on but time. The session writes it, only when it
// changes.
inline void proxy_store_spin(abi::SegmentHeader& h, uint32_t spin_us) {
  if (atomic(h.spin_us).load(std::memory_order_relaxed) != spin_us)
    atomic(h.spin_us).store(spin_us, std::memory_order_relaxed);
}

// ---- statistics ----
// Numbers that stand alone. Several threads count, the proxy's control thread reads; of a client's
// it believes nothing.
inline void count_one(uint64_t& counter) {
  atomic(counter).fetch_add(1, std::memory_order_relaxed);
}
inline uint64_t load_count(uint64_t& counter) {
  return atomic(counter).load(std::memory_order_relaxed);
}

// ---- errors and state ----
inline abi::ProxyState client_load_proxy_state(abi::SegmentHeader& h) {
  return static_cast<abi::ProxyState>(atomic(h.proxy_state).load(std::memory_order_acquire));
}
// `reason` counts for kPoisoned only. Partner: client_load_proxy_state.
inline void proxy_store_state(abi::SegmentHeader& h, abi::ProxyState state,
                              abi::PoisonReason reason = abi::PoisonReason::kNone) {
  if (state == abi::ProxyState::kPoisoned)
    atomic(h.poison_reason).store(static_cast<uint32_t>(reason), std::memory_order_relaxed);
  atomic(h.proxy_state).store(static_cast<uint32_t>(state), std::memory_order_release);
}
inline abi::PoisonReason client_load_poison_reason(abi::SegmentHeader& h) {
  return static_cast<abi::PoisonReason>(atomic(h.poison_reason).load(std::memory_order_relaxed));
}

struct AsyncError {
  uint32_t error = 0;  // CUresult, 0 = none
  uint32_t call = 0;
  uint64_t sequence = 0;
};
// First error wins until the client takes it. One session thread writes. Partner:
// client_takes_async_error.
inline void proxy_store_async_error(abi::SegmentHeader& h, const AsyncError& e) {
  if (atomic(h.async_error).load(std::memory_order_relaxed) != 0) return;
  atomic(h.async_error_call).store(e.call, std::memory_order_relaxed);
  atomic(h.async_error_sequence).store(e.sequence, std::memory_order_relaxed);
  atomic(h.async_error).store(e.error, std::memory_order_release);
}
// The plain load first keeps the line shared in the common case of no error.
inline AsyncError client_takes_async_error(abi::SegmentHeader& h) {
  AsyncError e;
  if (atomic(h.async_error).load(std::memory_order_relaxed) == 0) return e;
  e.call = atomic(h.async_error_call).load(std::memory_order_relaxed);
  e.sequence = atomic(h.async_error_sequence).load(std::memory_order_relaxed);
  e.error = atomic(h.async_error).exchange(0, std::memory_order_acq_rel);
  return e;
}
// Before proxy_store_sticky_error, which publishes it; of two calls the second does nothing. What
// is longer than the field is cut off. The proxy's callers exclude each other.
inline void proxy_store_fault(char* field, std::string_view why) {
  if (field[0] != '\0') return;
  const size_t bytes = std::min<size_t>(why.size(), abi::kFaultTextBytes - 1);
  std::memcpy(field, why.data(), bytes);
}
// Behind client_load_sticky_error: what was stored before it.
inline std::string_view client_load_fault(const char* field) {
  return {field, strnlen(field, abi::kFaultTextBytes)};
}
// Never cleared. Any proxy thread. Partner: client_load_sticky_error.
inline void proxy_store_sticky_error(abi::SegmentHeader& h, uint32_t error) {
  uint32_t none = 0;
  atomic(h.sticky_error).compare_exchange_strong(none, error, std::memory_order_acq_rel);
}
inline uint32_t client_load_sticky_error(abi::SegmentHeader& h) {
  return atomic(h.sticky_error).load(std::memory_order_acquire);
}

}  // namespace tube::shared

// The command ring: RingWriter in the client, RingReader in the proxy (abi.h has the layout and the
// sleep protocol).
//
// The writer's caller holds the connection's producer lock from reserve() to publish(). A post
// costs the copy of the record, one store and one fence; a system call only when the session
// sleeps. The reader copies each record out of shared memory exactly once, header first, and
// validates the copy, so a client that rewrites a record meanwhile harms nobody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "base/check.h"
#include "base/futex.h"
#include "sharedmem/abi.h"
#include "sharedmem/accessors.h"
#include "sharedmem/segment.h"
#include "sharedmem/wait.h"

namespace tube::shared {

constexpr uint32_t record_bytes(uint32_t payload_bytes) {
  return (static_cast<uint32_t>(sizeof(abi::RecordHeader)) + payload_bytes + 15u) & ~15u;
}
inline constexpr uint64_t kRingMask = abi::kRingBytes - 1;
static_assert((abi::kRingBytes & kRingMask) == 0);
inline constexpr uint32_t kMaxPayloadBytes =
    abi::kMaxRecordBytes - static_cast<uint32_t>(sizeof(abi::RecordHeader));

class RingWriter {
 public:
  // `segment`, `waiter` and `peer` outlive the writer.
  void attach(const Segment& segment, Waiter& waiter, const Peer& peer);

  // Room for one record. On kDone `*record` points at a header with size_bytes, payload_bytes,
  // sequence and reply_slot (kNoReply) filled in and the other fields zero; the payload follows it,
  // not zeroed, and record + payload may be written in any order until publish(). Waits while the
  // ring is full. payload_bytes <= kMaxPayloadBytes. A second reserve() without publish() starts
  // over: an abandoned record costs nothing.
  WaitResult reserve(uint32_t payload_bytes, abi::RecordHeader** record);
  // Makes the reserved record visible and wakes the session if it sleeps.
  void publish();
  // Sequence of the last published record.
  uint64_t sequence() const { return sequence_; }

 private:
  uint64_t free_bytes() const { return abi::kRingBytes - (tail_ - cached_head_); }
  WaitResult make_room(uint32_t bytes);

  abi::SegmentHeader* header_ = nullptr;
  std::byte* ring_ = nullptr;
  Waiter* waiter_ = nullptr;
  Peer peer_;
  uint64_t tail_ = 0;
  uint64_t cached_head_ = 0;
  uint64_t sequence_ = 0;
  uint32_t reserved_bytes_ = 0;
};

// In every call that posts, so here for the compiler to see.
inline WaitResult RingWriter::reserve(uint32_t payload_bytes, abi::RecordHeader** record) {
  *record = nullptr;
  if (!TUBE_EXPECT(payload_bytes <= kMaxPayloadBytes)) return WaitResult::kSticky;
  const uint32_t bytes = record_bytes(payload_bytes);
  if (free_bytes() < bytes) [[unlikely]] {
    if (const WaitResult result = make_room(bytes); result != WaitResult::kDone) return result;
  }
  reserved_bytes_ = bytes;
  auto* header = new (ring_ + (tail_ & kRingMask)) abi::RecordHeader{};
  header->size_bytes = bytes;
  header->payload_bytes = payload_bytes;
  header->sequence = sequence_ + 1;
  header->reply_slot = abi::kNoReply;
  *record = header;
  return WaitResult::kDone;
}

inline void RingWriter::publish() {
  if (!TUBE_EXPECT(reserved_bytes_ != 0)) return;
  tail_ += reserved_bytes_;
  reserved_bytes_ = 0;
  ++sequence_;
  client_store_tail(*header_, tail_);
  if (client_takes_proxy_asleep(*header_)) [[unlikely]]
    futex_wake(&header_->proxy_asleep, 1);
}

class RingReader {
 public:
  enum class Next : uint32_t {
    kRecord,  // header() and payload() hold a validated copy
    kEmpty,
    kBad,  // the client broke the protocol: bad_reason(); poison the session
  };

  // `segment` outlives the reader. Allocates the private buffer once.
  explicit RingReader(const Segment& segment);
  // The same over bare memory, for fuzzing: `ring` is kRingBytes mapped twice (or 2 * kRingBytes).
  RingReader(abi::SegmentHeader* header, const std::byte* ring);

  // Copies the next record out. Not again before consume().
  Next next();
  const abi::RecordHeader& header() const {
    return *reinterpret_cast<const abi::RecordHeader*>(buffer_.get());
  }
  // 16-byte aligned, payload_bytes long.
  std::span<const std::byte> payload() const;
  // The record was executed: gives its space back and wakes a client that waits for it.
  void consume();

  // Sleeps until there is a record, `peer.nudged` is set or `peer.at_most_ns` are over (kDone),
  // `peer.stop` is set (kPeerDead), or
  // the socket hung up. Wakes a client that waits for space first, so call it whenever next() says
  // kEmpty. `awake` is one less while this one sleeps; may be nullptr.
  WaitResult wait(Waiter& waiter, const Peer& peer, std::atomic<uint32_t>* awake = nullptr);

  const char* bad_reason() const { return bad_reason_; }
  // What was consumed, in bytes since the start. Any thread.
  uint64_t head() const { return consumed_.load(std::memory_order_acquire); }
  // What the client has posted, by its own word, in the same bytes. Any thread.
  uint64_t posted() const;

  // A record is there, or what the client claims to be one. Costs a load.
  bool has_record();

 private:
  Next bad(const char* reason) {
    bad_reason_ = reason;
    return Next::kBad;
  }

  abi::SegmentHeader* shared_;
  const std::byte* ring_;
  struct FreeBuffer {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], FreeBuffer> buffer_;
  uint64_t head_ = 0;
  std::atomic<uint64_t> consumed_{0};  // the same, for all threads
  uint64_t available_until_ = 0;       // validated tail
  uint64_t sequence_ = 0;
  const char* bad_reason_ = "";
};

// Client, any thread: the session, if it sleeps, wakes and spins for a record that will come soon.
// Waking takes tens of microseconds, which then pass while the client does something else. Costs a
// fence and a load when it is awake.
void rouse_reader(abi::SegmentHeader& header);

// Proxy, any thread: makes a session that sleeps in RingReader::wait look at its flags. Store the
// flag first.
void wake_reader(abi::SegmentHeader& header);

}  // namespace tube::shared

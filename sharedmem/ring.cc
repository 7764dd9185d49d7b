#include "sharedmem/ring.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tube::shared {
namespace {

// A client that sleeps for space is woken in the middle of a backlog only when it can then write
// for a while.
constexpr uint64_t kWorthWaking = 256u << 10;
static_assert(kWorthWaking >= abi::kMaxRecordBytes && kWorthWaking <= abi::kRingBytes / 4);

}  // namespace

// ---- client ----

void RingWriter::attach(const Segment& segment, Waiter& waiter, const Peer& peer) {
  header_ = &segment.header();
  ring_ = segment.ring();
  waiter_ = &waiter;
  peer_ = peer;
}

WaitResult RingWriter::make_room(uint32_t bytes) {
  cached_head_ = client_load_head(*header_);
  if (free_bytes() >= bytes) return WaitResult::kDone;
  // For a while of writing, not for one record: a writer that is let in for each freed record takes
  // its core from the reader.
  const uint64_t wanted = std::max<uint64_t>(bytes, kWorthWaking);
  const auto has_room = [this, wanted] {
    cached_head_ = client_load_head(*header_);
    return free_bytes() >= wanted;
  };
  Sleep sleep;
  sleep.word = &header_->client_wants_space;
  sleep.announce = [](void* header) {
    client_announces_space_wanted(*static_cast<abi::SegmentHeader*>(header));
    return true;
  };
  sleep.withdraw = [](void* header) {
    client_has_space(*static_cast<abi::SegmentHeader*>(header));
  };
  sleep.context = header_;
  return waiter_->until(WaitReason::kRingSpace, peer_, sleep, has_room);
}

// ---- proxy ----

void RingReader::FreeBuffer::operator()(std::byte* p) const {
  ::operator delete[](p, std::align_val_t{64});
}

RingReader::RingReader(const Segment& segment) : RingReader(&segment.header(), segment.ring()) {}

RingReader::RingReader(abi::SegmentHeader* header, const std::byte* ring)
    : shared_(header),
      ring_(ring),
      buffer_(
          static_cast<std::byte*>(::operator new[](abi::kMaxRecordBytes, std::align_val_t{64}))) {}

std::span<const std::byte> RingReader::payload() const {
  return {buffer_.get() + sizeof(abi::RecordHeader), header().payload_bytes};
}

bool RingReader::has_record() {
  return available_until_ != head_ || proxy_load_tail(*shared_) != head_;
}

// A tail that no ring could have says nothing: the session ends when it comes to it.
uint64_t RingReader::posted() const {
  const uint64_t untrusted_tail = proxy_load_tail(*shared_);
  const uint64_t done = head();
  return untrusted_tail - done <= abi::kRingBytes ? untrusted_tail : done;
}

RingReader::Next RingReader::next() {
  if (available_until_ == head_) {
    const uint64_t untrusted_tail = proxy_load_tail(*shared_);
    if (untrusted_tail == head_) return Next::kEmpty;
    // Unsigned: a tail behind head_ is a huge distance and fails too.
    if (untrusted_tail - head_ > abi::kRingBytes) return bad("tail is outside the ring");
    if (untrusted_tail % 16 != 0) return bad("tail is not a multiple of 16");
    available_until_ = untrusted_tail;
  }
  const uint64_t available = available_until_ - head_;
  if (available < sizeof(abi::RecordHeader)) return bad("tail ends inside a record's header");

  // The header is copied once and only the copy is looked at; the client may be rewriting the
  // original.
  const std::byte* source = ring_ + (head_ & kRingMask);
  std::memcpy(buffer_.get(), source, sizeof(abi::RecordHeader));
  const abi::RecordHeader& copy = header();
  if (copy.size_bytes < sizeof(abi::RecordHeader) || copy.size_bytes > abi::kMaxRecordBytes)
    return bad("record size out of range");
  if (copy.size_bytes > available) return bad("record reaches behind tail");
  if (copy.payload_bytes > kMaxPayloadBytes ||
      record_bytes(copy.payload_bytes) != copy.size_bytes) {
    return bad("payload size does not match record size");
  }
  if (copy.call == 0) return bad("call number 0");
  if (copy.sequence != sequence_ + 1) return bad("sequence number out of order");
  if (copy.reply_slot != abi::kNoReply && copy.reply_slot >= abi::kReplySlots)
    return bad("reply slot out of range");
  std::memcpy(buffer_.get() + sizeof(abi::RecordHeader), source + sizeof(abi::RecordHeader),
              copy.payload_bytes);
  return Next::kRecord;
}

void RingReader::consume() {
  head_ += header().size_bytes;
  ++sequence_;
  consumed_.store(head_, std::memory_order_release);
  proxy_store_head(*shared_, head_);
  if (proxy_hint_space_wanted(*shared_) &&
      abi::kRingBytes - (available_until_ - head_) >= kWorthWaking &&
      proxy_takes_space_wanted(*shared_)) {
    futex_wake(&shared_->client_wants_space, 1);
  }
}

WaitResult RingReader::wait(Waiter& waiter, const Peer& peer, std::atomic<uint32_t>* awake) {
  // Everything is consumed, so whoever sleeps for space has it. Fenced: a sleeper the hint missed
  // is seen here.
  if (proxy_takes_space_wanted(*shared_)) futex_wake(&shared_->client_wants_space, 1);
  Sleep sleep;
  sleep.word = &shared_->proxy_asleep;
  struct Sleeper {
    abi::SegmentHeader& header;
    std::atomic<uint32_t>* awake;
    bool asleep = false;
  } sleeper{*shared_, awake};
  sleep.announce = [](void* context) {
    auto& s = *static_cast<Sleeper*>(context);
    if (s.awake != nullptr && !s.asleep) s.awake->fetch_sub(1, std::memory_order_relaxed);
    s.asleep = true;
    proxy_announces_sleep(s.header);
    return true;
  };
  sleep.withdraw = [](void* context) {
    auto& s = *static_cast<Sleeper*>(context);
    proxy_is_awake(s.header);
    if (s.awake != nullptr && s.asleep) s.awake->fetch_add(1, std::memory_order_relaxed);
    s.asleep = false;
  };
  sleep.context = &sleeper;
  // A stop or a nudge that comes while we spin is seen at once as well.
  const auto set = [](const std::atomic<bool>* flag) {
    return flag != nullptr && flag->load(std::memory_order_acquire);
  };
  const auto ready = [this, &peer, &set] {
    return has_record() || set(peer.stop) || set(peer.nudged);
  };
  const WaitResult result = waiter.until(WaitReason::kRecord, peer, sleep, ready);
  const bool stopped = result == WaitResult::kDone && !has_record() && set(peer.stop);
  return stopped ? WaitResult::kPeerDead : result;
}

void rouse_reader(abi::SegmentHeader& header) {
  if (client_takes_proxy_asleep(header)) futex_wake(&header.proxy_asleep, 1);
}

void wake_reader(abi::SegmentHeader& header) {
  full_fence();
  proxy_is_awake(header);
  futex_wake(&header.proxy_asleep, 1);
}

}  // namespace tube::shared

// A hostile client: sends mutated records into a live proxy and checks that it stays.
//
// It greets like a hook, sends a prologue of valid records (context, allocations) so that there is
// something to hit, and then, from a seeded generator, records of every call: fields that are
// plausible (small ids, addresses of the allocations, sizes near limits) with random bytes flipped,
// blobs pointing anywhere, truncated payloads, and now and then a broken header, a rewritten ring
// position or scribbles over reply slots and words. A proxy may execute, refuse, or poison the
// session; then the client connects anew. It never waits for ever: a record that blocks (a wait for
// a value nobody writes) is left behind with its connection. The runner (mutate_records.py) owns
// the proxy and says whether it survived.
//
//   mutate_records SOCKET COUNT SEED [rewrite]
//
// `rewrite`: a second thread writes all over the segment meanwhile (bench/attacks). COUNT 0:
// without end; "begun" is said once a session has been attacked.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/handle_id.h"
#include "protocol/visit.gen.h"
#include "protocol/wire.gen.h"
#include "sharedmem/accessors.h"
#include "sharedmem/greeting.h"
#include "sharedmem/ring.h"
#include "sharedmem/segment.h"
#include "sharedmem/socket.h"
#include "sharedmem/windows.h"

namespace tube {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  uint64_t below(uint64_t limit) { return (next() >> 11) % limit; }
  uint32_t index(uint64_t limit) { return static_cast<uint32_t>(below(limit)); }
  bool one_in(uint64_t odds) { return below(odds) == 0; }

 private:
  uint64_t state_;
};

// Fills a message's fields with values that come near to what a hook would send.
class Plausible {
 public:
  Plausible(Random& random, std::vector<std::byte>& payload, const std::vector<uint64_t>& addresses)
      : random_(random), payload_(payload), addresses_(addresses) {}

  template <class T>
  void number(const char*, T& field, wire::FieldKind kind) {
    uint64_t value = kind == wire::FieldKind::kId        ? id()
                     : kind == wire::FieldKind::kAddress ? address()
                                                         : plain();
    std::memcpy(&field, &value, sizeof(field));
  }
  template <class T>
  void choice(const char*, T& field) {
    field = static_cast<T>(random_.one_in(8) ? random_.next() : random_.below(4));
  }
  template <class T, size_t kCount>
  void array(const char* name, T (&fields)[kCount]) {
    for (T& field : fields) number(name, field, wire::FieldKind::kNumber);
  }
  template <class T>
  void opaque(const char*, T& field) {
    auto* bytes = reinterpret_cast<unsigned char*>(&field);
    for (size_t i = 0; i < sizeof(field); ++i)
      bytes[i] = random_.one_in(3) ? static_cast<unsigned char>(random_.next()) : 0;
  }
  void blob(const char*, wire::BlobRef& field, uint32_t element_bytes, uint32_t) {
    uint32_t size = static_cast<uint32_t>(random_.below(24)) * std::max(1u, element_bytes);
    append(&field, size, [&](size_t) {
      return random_.one_in(2) ? static_cast<std::byte>(random_.next()) : std::byte{0};
    });
  }
  void name(const char*, wire::BlobRef& field) {
    append(&field, static_cast<uint32_t>(random_.below(20)),
           [&](size_t) { return static_cast<std::byte>('a' + random_.below(26)); });
  }

 private:
  uint64_t id() {
    return random_.one_in(4)
               ? random_.next()
               : wire::make_id(static_cast<uint32_t>(random_.below(6)), random_.below(2) != 0);
  }
  uint64_t address() {
    if (addresses_.empty() || random_.one_in(5)) return random_.next() >> random_.below(64);
    return addresses_[random_.below(addresses_.size())] + random_.below(8) * 64;
  }
  uint64_t plain() {
    static constexpr uint64_t kInteresting[] = {0,
                                                1,
                                                2,
                                                4,
                                                16,
                                                255,
                                                256,
                                                4096,
                                                65536,
                                                1u << 21,
                                                0x7fffffff,
                                                0xffffffff,
                                                uint64_t{1} << 40,
                                                ~uint64_t{0}};
    return random_.one_in(6)   ? address()
           : random_.one_in(6) ? random_.next()
                               : kInteresting[random_.below(std::size(kInteresting))];
  }
  template <class Fill>
  void append(wire::BlobRef* field, uint32_t size, Fill fill) {
    uint32_t offset = wire::align8(static_cast<uint32_t>(payload_.size()));
    payload_.resize(offset);
    for (uint32_t i = 0; i < size; ++i) payload_.push_back(fill(i));
    *field = {offset, size};
  }

  Random& random_;
  std::vector<std::byte>& payload_;
  const std::vector<uint64_t>& addresses_;
};

using Payload = std::vector<std::byte>;

template <class Message>
Payload plausible(Random& random, const std::vector<uint64_t>& addresses) {
  Payload payload(Message::kFixedBytes);
  if constexpr (Message::kFixedBytes != 0) {
    Message message{};
    wire::visit(message, Plausible(random, payload, addresses));
    std::memcpy(payload.data(), &message, Message::kFixedBytes);
  }
  return payload;
}

struct Maker {
  wire::Call call;
  const char* name;
  Payload (*make)(Random&, const std::vector<uint64_t>&);
};
constexpr Maker kMakers[] = {
#define TUBE_MAKER(call) {wire::Call::call, #call, plausible<wire::call>},
    TUBE_FOR_EACH_CALL(TUBE_MAKER)
#undef TUBE_MAKER
};

enum class Fate { kExecuted, kPoisoned, kGone, kBlocked };

// One connection, driven by hand: nothing of the hook's care is in it.
class Connection {
 public:
  static std::optional<Connection> open(const std::string& path) {
    auto socket = shared::connect_unix(path, SOCK_SEQPACKET);
    if (!socket.ok()) return std::nullopt;
    Connection connection;
    connection.socket_ = socket.take();
    auto hello = shared::make_hello(wire::kProtocolHash, "mutator", TUBE_VERSION, nullptr, 0xf);
    auto greeted = shared::greet(connection.socket_.get(), hello, 20000);
    if (!greeted.ok()) {
      fprintf(stderr, "mutate_records: refused: %s\n", greeted.error().message.c_str());
      return std::nullopt;
    }
    auto segment = shared::Segment::attach(std::move(greeted->segment));
    if (!segment.ok()) return std::nullopt;
    connection.segment_ = segment.take();
    connection.window_ = greeted->welcome.window;
    connection.client_slot_ = greeted->welcome.client_slot;
    return connection;
  }

  uint64_t device_base() const { return windows::device_base(window_); }
  uint64_t pinned_base() const { return windows::pinned_base(window_, client_slot_); }
  const shared::Segment& segment() const { return segment_; }
  // How many looks at a record that is not consumed, a millisecond each but the first 200.
  void set_patience(int looks) { patience_ = looks; }

  // Publishes one record, as it is; a later mutate of the header is the caller's.
  template <class Spoil>
  Fate send(wire::Call call, const Payload& payload, uint32_t context, bool wants_reply,
            Spoil spoil) {
    abi::SegmentHeader& shared = segment_.header();
    auto* record = reinterpret_cast<abi::RecordHeader*>(segment_.ring() + tail_ % abi::kRingBytes);
    uint32_t size =
        (static_cast<uint32_t>(sizeof(abi::RecordHeader) + payload.size()) + 15u) & ~15u;
    *record = {};
    record->size_bytes = size;
    record->call = static_cast<uint32_t>(call);
    record->sequence = ++sequence_;
    record->context = context;
    record->payload_bytes = static_cast<uint32_t>(payload.size());
    record->reply_slot =
        wants_reply ? static_cast<uint32_t>(sequence_ % abi::kReplySlots) : abi::kNoReply;
    std::memcpy(record + 1, payload.data(), payload.size());
    if (wants_reply) {
      last_slot_ = record->reply_slot;
      __atomic_store_n(&segment_.reply(last_slot_).state,
                       static_cast<uint32_t>(abi::ReplyState::kWaiting), __ATOMIC_SEQ_CST);
    }
    spoil(*record, segment_);
    tail_ += size;
    __atomic_store_n(&shared.tail, tail_, __ATOMIC_SEQ_CST);
    if (__atomic_exchange_n(&shared.proxy_asleep, 0u, __ATOMIC_SEQ_CST) != 0)
      shared::wake_reader(shared);
    return wait_consumed();
  }

  // The reply to the last record that wanted one; empty when there is none.
  Payload reply() const {
    const abi::ReplyHeader& header = segment_.reply(last_slot_);
    if (__atomic_load_n(&header.state, __ATOMIC_ACQUIRE) !=
            static_cast<uint32_t>(abi::ReplyState::kDone) ||
        header.result != 0)
      return {};
    const std::byte* bytes = segment_.reply_payload(last_slot_);
    return Payload(bytes, bytes + std::min(header.payload_bytes, abi::kMaxReplyBytes));
  }

 private:
  Connection() = default;

  Fate wait_consumed() {
    const abi::SegmentHeader& shared = segment_.header();
    for (int round = 0; round < patience_; ++round) {
      if (__atomic_load_n(&shared.proxy_state, __ATOMIC_ACQUIRE) ==
          static_cast<uint32_t>(abi::ProxyState::kPoisoned))
        return Fate::kPoisoned;
      if (__atomic_load_n(&shared.head, __ATOMIC_ACQUIRE) == tail_) return Fate::kExecuted;
      pollfd socket = {socket_.get(), POLLIN, 0};
      if (poll(&socket, 1, round < 200 ? 0 : 1) > 0 && (socket.revents & (POLLHUP | POLLERR)) != 0)
        return Fate::kGone;
      if (socket.revents & POLLIN) drain();
    }
    return Fate::kBlocked;
  }
  // fds that the proxy hands out are dropped.
  void drain() { (void)shared::receive_fd(socket_.get(), 0); }

  UniqueFd socket_;
  shared::Segment segment_;
  uint32_t window_ = 0, client_slot_ = 0;
  uint64_t tail_ = 0, sequence_ = 0;
  uint32_t last_slot_ = 0;
  int patience_ = 4000;
};

// Breaks the record's header or the shared memory around it; true when it did.
bool spoil_shared(Random& random, abi::RecordHeader& record, const shared::Segment& segment) {
  switch (random.below(9)) {
    case 0: record.size_bytes = static_cast<uint32_t>(random.next()); return true;
    case 1:
      record.payload_bytes = static_cast<uint32_t>(random.next()) >> random.below(32);
      return true;
    case 2: record.sequence += random.below(3) - 1; return true;
    case 3: record.call = static_cast<uint32_t>(random.below(wire::kCallCount + 40)); return true;
    case 4:
      record.reply_slot = static_cast<uint32_t>(random.next()) >> random.below(32);
      return true;
    case 5: record.context = static_cast<uint32_t>(random.below(0x104)); return true;
    case 6: segment.header().head = random.next(); return true;
    case 7:
      for (int i = 0; i < 64; ++i)
        segment.reply_payload(static_cast<uint32_t>(random.below(abi::kReplySlots)))[i] =
            std::byte{0xa5};
      return true;
    default:
      for (int i = 0; i < 16; ++i)
        segment.word(static_cast<uint32_t>(random.below(abi::kWordCount))) = random.next();
      return true;
  }
}

void flip_bytes(Random& random, Payload& payload) {
  if (payload.empty()) return;
  for (uint64_t i = 0, count = 1 + random.below(4); i < count; ++i)
    payload[random.below(payload.size())] =
        static_cast<std::byte>(random.one_in(3) ? 0xff : random.next());
}

// A thread that writes into everything that a session's segment has while records are on their way:
// the records themselves, both ends of the ring, flags, reply slots, words, states of chunks.
class Rewriter {
 public:
  Rewriter(const shared::Segment& segment, uint64_t seed)
      : segment_(segment), random_(seed), thread_([this] { run(); }) {}
  ~Rewriter() {
    stop_ = true;
    thread_.join();
  }
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

 private:
  static constexpr int kAtOnce = 16;
  static constexpr useconds_t kPauseUs = 50;  // or no session would live to its second record

  void run() {
    // Half of the sessions keep their ring's ends, so that the records are read.
    const uint64_t kinds = random_.one_in(2) ? 4 : 7;
    while (!stop_) {
      for (int i = 0; i < kAtOnce; ++i) one(random_.below(kinds));
      usleep(kPauseUs);
    }
  }

  template <class T>
  void put(T& field, uint64_t value) {
    __atomic_store_n(&field, static_cast<T>(value), __ATOMIC_RELAXED);
  }

  unsigned char& ring_byte(uint64_t at) {
    return *reinterpret_cast<unsigned char*>(segment_.ring() + at);
  }

  void one(uint64_t kind) {
    abi::SegmentHeader& shared = segment_.header();
    const uint64_t head = __atomic_load_n(&shared.head, __ATOMIC_RELAXED);
    switch (kind) {
      case 0: put(ring_byte(random_.below(abi::kRingBytes)), random_.next()); break;
      case 1: put(ring_byte((head + random_.below(4096)) % abi::kRingBytes), random_.next()); break;
      case 2: put(segment_.word(random_.index(abi::kWordCount)), random_.next()); break;
      case 3: put(segment_.reply(random_.index(abi::kReplySlots)).state, random_.next()); break;
      case 4:
        if (random_.one_in(50)) put(shared.tail, head + random_.below(4096) * 16);
        break;
      case 5: put(shared.head, random_.next()); break;
      default:
        put(shared.proxy_asleep, random_.next());
        put(shared.client_wants_space, random_.next());
    }
  }

  const shared::Segment& segment_;
  Random random_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Attack {
 public:
  Attack(std::string path, uint64_t seed) : path_(std::move(path)), random_(seed) {}

  [[noreturn]] void run_for_ever() {
    constexpr useconds_t kRefusedUs = 10'000;  // sessions that were cut off have their places still
    rewrites_ = true;
    for (uint64_t sessions = 0;;) {
      if (!connect()) {
        usleep(kRefusedUs);
        continue;
      }
      for (int i = 0; i < kRecordsOfSession && connection_; ++i) one_record();
      finish(Fate::kGone);
      if (sessions++ != 0) continue;
      printf("begun\n");
      fflush(stdout);
    }
  }

  int run(uint64_t count, bool rewrites) {
    rewrites_ = rewrites;
    for (uint64_t i = 0; i < count; ++i) {
      if (!connection_ && !connect()) {
        fprintf(stderr, "mutate_records: cannot connect before record %" PRIu64 "\n", i);
        return 1;
      }
      one_record();
    }
    printf("%" PRIu64 " records: %" PRIu64 " executed or refused, %" PRIu64
           " poisoned their session, %" PRIu64 " cut off, %" PRIu64 " blocked\n",
           count, fates_[0], fates_[1], fates_[2], fates_[3]);
    return 0;
  }

 private:
  bool connect() {
    connection_ = Connection::open(path_);
    if (!connection_) return false;
    addresses_ = {connection_->device_base(), connection_->pinned_base()};
    for (const char* name : {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuEventCreate",
                             "cuMemAlloc_v2", "cuMemAlloc_v2"})
      prologue(name);
    if (connection_ && rewrites_) {
      connection_->set_patience(kRewrittenPatience);
      rewriter_.emplace(connection_->segment(), random_.next());
    }
    return connection_.has_value();
  }

  // A first record of this call with small ids and sizes; remembers an address when the reply holds
  // one.
  void prologue(const char* name) {
    for (const Maker& maker : kMakers) {
      if (strcmp(maker.name, name) != 0 || !connection_) continue;
      Random calm(1);
      Payload payload = maker.make(calm, addresses_);
      for (size_t i = 0; i + 8 <= payload.size(); i += 8) {
        uint64_t value = 4096;
        std::memcpy(payload.data() + i, &value, 8);
      }
      finish(connection_->send(maker.call, payload, 1, true,
                               [](abi::RecordHeader&, const shared::Segment&) {}));
      Payload reply = connection_ ? connection_->reply() : Payload();
      uint64_t address = 0;
      if (reply.size() >= 8) std::memcpy(&address, reply.data(), 8);
      if (address >= windows::device_base(0)) addresses_.push_back(address);
    }
  }

  void one_record() {
    const Maker& maker = kMakers[random_.below(std::size(kMakers))];
    Payload payload = maker.make(random_, addresses_);
    if (random_.one_in(2)) flip_bytes(random_, payload);
    if (random_.one_in(12)) payload.resize(random_.below(payload.size() + 40));
    bool reply = wire::call_info(static_cast<uint32_t>(maker.call))->lane == wire::Lane::kPost
                     ? random_.one_in(10)
                     : !random_.one_in(10);
    bool spoil = random_.one_in(10);
    Fate fate = connection_->send(maker.call, payload, random_.one_in(8) ? 0 : 1, reply,
                                  [&](abi::RecordHeader& record, const shared::Segment& segment) {
                                    if (spoil) spoil_shared(random_, record, segment);
                                  });
    ++fates_[static_cast<size_t>(fate)];
    if (fate == Fate::kBlocked && !rewrites_) fprintf(stderr, "blocked: %s\n", maker.name);
    finish(fate);
  }

  void finish(Fate fate) {
    if (fate == Fate::kExecuted) return;
    rewriter_.reset();
    connection_.reset();
  }

  // A ring whose ends are rewritten may never be seen to be empty.
  static constexpr int kRewrittenPatience = 210;
  static constexpr int kRecordsOfSession = 400;

  std::string path_;
  Random random_;
  std::optional<Connection> connection_;
  std::optional<Rewriter> rewriter_;
  bool rewrites_ = false;
  std::vector<uint64_t> addresses_;
  uint64_t fates_[4] = {};
};

}  // namespace
}  // namespace tube

int main(int argc, char** argv) {
  const bool rewrites = argc == 5 && std::string(argv[4]) == "rewrite";
  if (argc != 4 && !rewrites) {
    fprintf(stderr, "usage: mutate_records SOCKET COUNT SEED [rewrite]\n");
    return 2;
  }
  const uint64_t count = strtoull(argv[2], nullptr, 10);
  tube::Attack attack(argv[1], strtoull(argv[3], nullptr, 10));
  if (count == 0) attack.run_for_ever();
  return attack.run(count, rewrites);
}

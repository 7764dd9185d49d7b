// A live session under hostile records: proxy::Session on the simulated GPU, in this process, fed
// through the real ring.
//
// An input is a program: per record one byte that picks the call, one of flags, and bytes for its
// fields. With the "sensible" flag the fields are bent towards values that get past the first
// checks (small ids, addresses of memory the session owns, blobs that lie inside the payload);
// without it they go out as they are. Whatever comes, the session may execute, refuse or poison; it
// may not crash, leak fds or hand memory to the wrong owner.
//
// One session serves many inputs (making one allocates 70 MiB) and is replaced when it is poisoned;
// TUBE_FUZZ_FRESH=1 makes one per input, to reproduce a finding alone. A helper thread lets the
// GPU's waits on words pass, because a record may ask a stream to wait for a word that no client
// will ever write.
//
// Needs TUBE_SIM_LIB (the sim's libcuda.so.1).
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "protocol/handle_id.h"
#include "protocol/visit.gen.h"
#include "protocol/wire.gen.h"
#include "proxy/code/image_store.h"
#include "proxy/code/module_cache.h"
#include "proxy/common/backend.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/memory_map.h"
#include "proxy/session/session.h"
#include "sharedmem/accessors.h"
#include "sharedmem/ring.h"

namespace tube {
namespace {

using proxy::Backend;
using proxy::BackendChoice;
using proxy::BackendOptions;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "session_fuzz: %s\n", what);
  std::exit(77);  // skipped, aloud
}

// The input, byte by byte; zeros behind its end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  void take(void* to, size_t count) {
    const size_t have = std::min(count, size_);
    std::memset(to, 0, count);
    std::memcpy(to, data_, have);
    data_ += have;
    size_ -= have;
  }
  uint8_t byte() {
    uint8_t b;
    take(&b, 1);
    return b;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

using Payload = std::vector<std::byte>;

// Bends a message's fields towards what a session accepts.
class Sensible {
 public:
  Sensible(Bytes& bytes, Payload& payload, uint64_t device_base, uint64_t pinned_base)
      : bytes_(bytes), payload_(payload), device_base_(device_base), pinned_base_(pinned_base) {}

  template <class T>
  void number(const char*, T& field, wire::FieldKind kind) {
    uint64_t value = 0;
    std::memcpy(&value, &field, sizeof(field));
    if (kind == wire::FieldKind::kId)
      value = wire::make_id(static_cast<uint32_t>(value & 3), value >> 2 & 1);
    if (kind == wire::FieldKind::kAddress)
      value = (value & 1 ? pinned_base_ : device_base_) + (value >> 1 & 0x3ffff0);
    if (kind == wire::FieldKind::kNumber && (bytes_.byte() & 7) != 7) value &= 0x7f;
    std::memcpy(&field, &value, sizeof(field));
  }
  template <class T>
  void choice(const char* name, T& field) {
    number(name, field, wire::FieldKind::kNumber);
    if ((bytes_.byte() & 7) != 7) field = static_cast<T>(static_cast<uint32_t>(field) & 3);
  }
  template <class T, size_t kCount>
  void array(const char* name, T (&fields)[kCount]) {
    for (T& field : fields) number(name, field, wire::FieldKind::kNumber);
  }
  template <class T>
  void opaque(const char*, T&) {}
  void blob(const char*, wire::BlobRef& field, uint32_t element_bytes, uint32_t) {
    append(field, std::max(1u, element_bytes) * (bytes_.byte() & 15u));
  }
  void name(const char*, wire::BlobRef& field) {
    append(field, bytes_.byte() & 15u);
    for (uint32_t i = 0; i < field.size; ++i) {
      if (payload_[field.offset + i] == std::byte{0}) payload_[field.offset + i] = std::byte{'a'};
    }
  }

 private:
  void append(wire::BlobRef& field, uint32_t size) {
    field = {wire::align8(static_cast<uint32_t>(payload_.size())), size};
    payload_.resize(field.offset + size);
    bytes_.take(payload_.data() + field.offset, size);
  }

  Bytes& bytes_;
  Payload& payload_;
  uint64_t device_base_, pinned_base_;
};

template <class Message>
void fill(Payload& payload, Bytes& bytes, bool sensible, uint64_t device_base,
          uint64_t pinned_base) {
  payload.resize(Message::kFixedBytes);
  bytes.take(payload.data(), payload.size());
  if constexpr (Message::kFixedBytes != 0) {
    if (!sensible) return;
    Message message;
    std::memcpy(&message, payload.data(), Message::kFixedBytes);
    wire::visit(message, Sensible(bytes, payload, device_base, pinned_base));
    std::memcpy(payload.data(), &message, Message::kFixedBytes);
  }
}

// A stream may wait for a value that nobody writes; the session's end then waits in vain and leaks
// on purpose (teardown.cc). Known and wanted, and five seconds each.
constexpr bool may_never_end(wire::Call call) {
  return call == wire::Call::cuStreamWaitValue32_v2 || call == wire::Call::cuStreamWaitValue64_v2 ||
         call == wire::Call::cuStreamBatchMemOp_v2;
}

struct Maker {
  wire::Call call;
  void (*fill)(Payload&, Bytes&, bool, uint64_t, uint64_t);
};
constexpr Maker kMakers[] = {
#define TUBE_MAKER(call) {wire::Call::call, fill<wire::call>},
    TUBE_FOR_EACH_CALL(TUBE_MAKER)
#undef TUBE_MAKER
};

int count_fds() {
  int count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

// What each is, on the standard error output.
void list_fds() {
  DIR* dir = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(dir)) {
    char target[256] = {};
    if (::readlinkat(::dirfd(dir), entry->d_name, target, sizeof(target) - 1) >= 0)
      std::fprintf(stderr, "fd %s: %s\n", entry->d_name, target);
  }
  ::closedir(dir);
}

// The proxy without its server: one backend, one session at a time. Lives as long as the process.
class World {
 public:
  World()
      : gpus_(driver_),
        memory_((load(), driver_), gpus_),
        pool_(memory_, gpus_, policies::kDefaultPoolBytes),
        modules_(driver_, gpus_, true),
        shared_{driver_, gpus_, memory_, images_, modules_, 0, 0, {}, {}} {
    shared_.blocks = &pool_;
    for (window_ = 0; window_ < windows::kCandidates && !memory_.take_window(window_);) ++window_;
    if (window_ == windows::kCandidates) give_up("no address window is free in this process");
    std::thread([this] { release_waits(); }).detach();
  }

  void run(const uint8_t* data, size_t size) {
    static const bool fresh = std::getenv("TUBE_FUZZ_FRESH") != nullptr;
    if (!session_) open();
    Bytes bytes(data, size);
    for (int i = 0; i < 64 && !bytes.empty() && !session_->poisoned(); ++i) record(bytes);
    if (session_->poisoned() || fresh || ++inputs_ % 256 == 0) close();
  }

 private:
  static constexpr uint64_t kClient = 1;

  void load() {
    BackendOptions options;
    options.choice = BackendChoice::kSim;
    Result<Backend> backend = load_backend(options, driver_);
    if (!backend.ok()) give_up(backend.error().message.c_str());
    if (Status opened = gpus_.open(); !opened.ok()) give_up(opened.error().message.c_str());
  }

  void open() {
    if (fds_ == 0) fds_ = count_fds();
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) give_up("socketpair");
    client_socket_.reset(ends[0]);
    proxy::Client client;
    client.id = kClient;
    client.window = window_;
    client.name = "fuzzer";
    auto session = std::make_unique<proxy::Session>(shared_, client, UniqueFd(ends[1]));
    if (Status opened = session->open(); !opened.ok()) give_up(opened.error().message.c_str());
    Result<shared::Segment> segment =
        shared::Segment::attach(UniqueFd(::dup(session->segment().fd())));
    if (!segment.ok()) give_up(segment.error().message.c_str());
    std::lock_guard lock(mutex_);
    segment_ = segment.take();
    session_ = std::move(session);
    writer_ = {};
    writer_.attach(segment_, waiter_, shared::Peer{});
    prologue();
  }

  void close() {
    session_->teardown_for_test();
    if (session_->abandoned()) {
      std::fprintf(stderr, "calls of this session, newest last:");
      for (uint32_t call : calls_) std::fprintf(stderr, " %s", wire::call_name(call));
      die("\nGPU work did not end");
    }
    calls_.clear();
    std::lock_guard lock(mutex_);
    session_.reset();
    segment_ = {};
    client_socket_.reset();
    if (memory_.blocks() != 0 || memory_.regions() != 0)
      die("device memory is left after the session");
    // The sim may open files lazily the first time; after that the count is exact.
    if (sessions_++ == 0) fds_ = count_fds();
    if (count_fds() > fds_) {
      list_fds();
      die("fds are left after the session");
    }
  }

  [[noreturn]] static void die(const char* what) {
    std::fprintf(stderr, "session_fuzz: %s\n", what);
    std::abort();
  }

  // What a record may hit: a stream, an event, device and pinned memory. The message structs are
  // the wire's own.
  void prologue() {
    const auto post = [&](auto message, uint32_t slot) {
      abi::RecordHeader* record =
          begin(static_cast<uint32_t>(decltype(message)::kCall), decltype(message)::kFixedBytes);
      record->reply_slot = slot;
      std::memcpy(record + 1, &message, decltype(message)::kFixedBytes);
      end();
    };
    wire::tubeStreamCreate stream{};
    stream.stream = wire::make_id(1, 1);
    post(stream, abi::kNoReply);
    wire::tubeEventCreate event{};
    event.event = wire::make_id(2, 1);
    post(event, abi::kNoReply);
    wire::tubeMemAlloc memory{};
    memory.bytes = 1 << 20;
    post(memory, 0);
    memory.bytes = 4 << 20;  // with an offer
    post(memory, 0);
    wire::tubePinnedAlloc pinned{};
    pinned.bytes = 1 << 20;
    post(pinned, 0);
  }

  abi::RecordHeader* begin(uint32_t call, uint32_t payload_bytes) {
    abi::RecordHeader* record = nullptr;
    if (writer_.reserve(payload_bytes, &record) != shared::WaitResult::kDone)
      die("the ring is full although it was drained");
    calls_.push_back(call);
    record->call = call;
    record->context = 1;
    return record;
  }
  void end() {
    writer_.publish();
    session_->drain_for_test();
  }

  void record(Bytes& bytes) {
    const Maker& maker = kMakers[bytes.byte() % std::size(kMakers)];
    if (may_never_end(maker.call)) return;
    const uint8_t flags = bytes.byte();
    const bool sensible =
        (flags & 7) != 7;  // a poisoned session tests little, and a new one is dear
    Payload payload;
    maker.fill(payload, bytes, sensible, windows::device_base(window_),
               windows::pinned_base(window_, 0));
    if ((flags & 0x0f) == 0x0f) payload.resize(payload.size() * (flags >> 4) / 16);
    abi::RecordHeader* record =
        begin(static_cast<uint32_t>(maker.call), static_cast<uint32_t>(payload.size()));
    if (!payload.empty()) std::memcpy(record + 1, payload.data(), payload.size());
    if ((flags & 0x10) != 0) record->reply_slot = flags & 0x7f;
    if ((flags & 0x60) == 0x60) record->context = flags >> 7;
    end();
  }

  // A wait for a word is satisfied at the latest 20 ms after it began; nothing else depends on this
  // thread's timing.
  void release_waits() {
    while (true) {
      ::usleep(20000);
      std::lock_guard lock(mutex_);
      if (!segment_.valid()) continue;
      for (uint32_t word = 0; word < abi::kWordCount; ++word)
        shared::store_word(segment_.word(word), abi::kWordReleased);
    }
  }

  proxy::Driver driver_;
  proxy::Gpus gpus_;
  proxy::MemoryMap memory_;
  proxy::BlockPool pool_;  // without its thread
  proxy::ImageStore images_;
  proxy::ModuleCache modules_;
  proxy::Shared shared_;
  uint32_t window_ = 0;
  uint64_t inputs_ = 0, sessions_ = 0;
  std::vector<uint32_t> calls_;
  int fds_ = 0;

  std::mutex mutex_;  // guards segment_ against the helper thread
  UniqueFd client_socket_;
  shared::Segment segment_;
  std::unique_ptr<proxy::Session> session_;
  shared::Waiter waiter_;
  shared::RingWriter writer_;
};

}  // namespace
}  // namespace tube

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* world = [] {
    ::setenv("TUBE_LOG_FILE", "/dev/null", 0);  // a line for every poisoned session otherwise
    return new tube::World;
  }();
  world->run(data, size);
  return 0;
}

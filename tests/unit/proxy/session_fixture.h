// A session fed through its real ring, over a driver that does nothing: what the tests of a
// session's handlers share.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "protocol/wire.gen.h"
#include "proxy/code/image_store.h"
#include "proxy/code/module_cache.h"
#include "proxy/common/client_limits.h"
#include "proxy/gpu/gpus.h"
#include "proxy/session/session.h"
#include "sharedmem/accessors.h"
#include "sharedmem/ring.h"
#include "tests/unit/proxy/fake_driver.h"

namespace tube::proxy {
using wire::Kind;
using wire::make_id;

inline int open_fds() {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest()
      : driver(test::make_fake_driver()),
        gpus(driver),
        map(driver, gpus),
        modules(driver, gpus, true),
        shared{driver, gpus, map, images, modules, 0, 0, {}, {}} {
    set_log_level(LogLevel::kError);
    EXPECT_TRUE(gpus.open().ok());
    while (window < windows::kCandidates && !map.take_window(window)) ++window;
    fds_before = open_fds();
    restart();
  }
  ~SessionTest() override { session.reset(); }

  void restart() {
    session.reset();
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    client_socket.reset(pair[1]);
    Client client;
    client.id = 1;
    client.name = "test";
    client.window = window;
    session = std::make_unique<Session>(shared, client, UniqueFd(pair[0]));
    Status opened = session->open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Result<shared::Segment> attached =
        shared::Segment::attach(UniqueFd(fcntl(session->segment().fd(), F_DUPFD_CLOEXEC, 3)));
    ASSERT_TRUE(attached.ok());
    client_segment = attached.take();
    writer = std::make_unique<shared::RingWriter>();
    waiter = std::make_unique<shared::Waiter>(0);
    writer->attach(client_segment, *waiter,
                   shared::Peer{client_socket.get(), &client_segment.header(), nullptr});
  }

  void post_bytes(uint32_t call, const void* payload, uint32_t bytes, uint32_t context = 1,
                  uint32_t slot = abi::kNoReply) {
    abi::RecordHeader* record = nullptr;
    ASSERT_EQ(writer->reserve(bytes, &record), shared::WaitResult::kDone);
    record->call = call;
    record->context = context;
    record->reply_slot = slot;
    if (bytes != 0) std::memcpy(record + 1, payload, bytes);
    writer->publish();
    if (drains) session->drain_for_test();
  }
  void make_stream_in_a_created_context() {
    wire::tubeContextCreate create{};
    create.number = wire::kFirstCreatedContext;
    post(create);
    wire::tubeStreamCreate stream{};
    stream.stream = make_id(9, 1);
    post_bytes(static_cast<uint32_t>(wire::Call::tubeStreamCreate), &stream, sizeof(stream),
               wire::kFirstCreatedContext);
  }
  template <class X>
  void post(const X& x) {
    post_bytes(static_cast<uint32_t>(X::kCall), &x, X::kFixedBytes);
  }
  // Publishes with reply slot 0 and returns the CUresult; the fixed reply goes to *reply.
  template <class X>
  CUresult call(const X& x, typename X::Reply* reply) {
    abi::ReplyHeader& slot = client_segment.reply(0);
    shared::client_opens_reply(slot);
    post_bytes(static_cast<uint32_t>(X::kCall), &x, X::kFixedBytes, 1, 0);
    EXPECT_TRUE(shared::client_sees_reply(slot));
    if (X::Reply::kFixedBytes != 0)
      std::memcpy(static_cast<void*>(reply), client_segment.reply_payload(0),
                  X::Reply::kFixedBytes);
    const auto result = static_cast<CUresult>(slot.result);
    shared::client_frees_reply(slot);
    return result;
  }
  CUresult ask_for_chunks() {
    wire::tubeMoreChunks_reply none{};
    return call(wire::tubeMoreChunks{}, &none);
  }
  // A record with bytes behind its fixed part.
  template <class X>
  struct WithBytes {
    std::string payload;
  };
  template <class X>
  static WithBytes<X> with(X x, wire::BlobRef X::*field, const std::string& bytes) {
    x.*field = {X::kFixedBytes, static_cast<uint32_t>(bytes.size())};
    return {std::string(reinterpret_cast<const char*>(&x), X::kFixedBytes) + bytes};
  }
  template <class X>
  void post(const WithBytes<X>& x) {
    post_bytes(static_cast<uint32_t>(X::kCall), x.payload.data(),
               static_cast<uint32_t>(x.payload.size()));
  }
  template <class X>
  CUresult call(const WithBytes<X>& x) {
    abi::ReplyHeader& slot = client_segment.reply(0);
    shared::client_opens_reply(slot);
    post_bytes(static_cast<uint32_t>(X::kCall), x.payload.data(),
               static_cast<uint32_t>(x.payload.size()), 1, 0);
    EXPECT_TRUE(shared::client_sees_reply(slot));
    const auto result = static_cast<CUresult>(slot.result);
    shared::client_frees_reply(slot);
    return result;
  }
  uint32_t async_error() { return shared::client_takes_async_error(client_segment.header()).error; }

  uint64_t allocate(uint64_t bytes) {
    wire::tubeMemAlloc alloc{};
    alloc.bytes = bytes;
    wire::tubeMemAlloc_reply reply{};
    EXPECT_EQ(call(alloc, &reply), CUDA_SUCCESS);
    return reply.dptr;
  }
  // A library of `text`, and its kernel `name`, which takes 16 bytes of parameters.
  void load(const std::string& text, uint64_t library = make_id(1, 1),
            uint64_t kernel = make_id(1, 1), const std::string& name = "k") {
    wire::tubeLoadImage image{};
    image.library = library;
    ASSERT_EQ(call(with(image, &wire::tubeLoadImage::image, text)), CUDA_SUCCESS);
    look_up(library, kernel, name);
  }
  void look_up(uint64_t library, uint64_t kernel, const std::string& name) {
    wire::tubeGetKernel get{};
    get.library = library;
    get.kernel = kernel;
    ASSERT_EQ(call(with(get, &wire::tubeGetKernel::name, name)), CUDA_SUCCESS);
  }
  void launch(uint64_t kernel, uint64_t stream = 0) {
    wire::tubeLaunch one{};
    one.kernel = kernel;
    one.stream = stream;
    std::fill_n(one.grid, 3, 1u);
    std::fill_n(one.block, 3, 1u);
    post(with(one, &wire::tubeLaunch::parameters, std::string(16, '\0')));
  }
  void create_stream(uint64_t id, uint32_t flags = 0) {
    wire::tubeStreamCreate create{};
    create.stream = id;
    create.flags = flags;
    post(create);
  }

  Driver driver;
  Gpus gpus;
  MemoryMap map;
  ImageStore images;
  ModuleCache modules;
  Shared shared;
  uint32_t window = 0;
  bool drains = true;  // after each record; false: the test does it
  int fds_before = 0;
  UniqueFd client_socket;
  std::unique_ptr<Session> session;
  shared::Segment client_segment;
  std::unique_ptr<shared::RingWriter> writer;
  std::unique_ptr<shared::Waiter> waiter;
};

}  // namespace tube::proxy

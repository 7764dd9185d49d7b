// What the transport's tests share: a connection without a proxy, children, fd counts.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "sharedmem/chunks.h"
#include "sharedmem/replies.h"
#include "sharedmem/ring.h"
#include "sharedmem/segment.h"
#include "sharedmem/wait.h"
#include "sharedmem/words.h"

namespace tube::shared {

inline int count_fds() {
  int count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count - 3;  // ".", ".." and the folder itself
}

// Runs `body` in a child; its return value is the exit code.
inline pid_t in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::_exit(body());
}
inline int exit_code(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Both ends of one connection in one process: the proxy's segment, the client's mapping of it, a
// socket pair.
class Pair : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Segment> made = Segment::create(1);
    ASSERT_TRUE(made) << made.error().message;
    proxy = made.take();
    Result<Segment> attached = Segment::attach(UniqueFd(::dup(proxy.fd())));
    ASSERT_TRUE(attached) << attached.error().message;
    client = attached.take();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    client_socket.reset(ends[0]);
    proxy_socket.reset(ends[1]);
    peer = Peer{client_socket.get(), &client.header(), nullptr};
    session_peer = Peer{-1, nullptr, &stop};
    writer.attach(client, waiter, peer);
  }

  abi::RecordHeader* reserve(uint32_t payload_bytes) {
    abi::RecordHeader* record = nullptr;
    EXPECT_EQ(writer.reserve(payload_bytes, &record), WaitResult::kDone);
    return record;
  }
  void post(uint32_t call, uint32_t payload_bytes, std::byte fill = std::byte{0}) {
    abi::RecordHeader* record = reserve(payload_bytes);
    ASSERT_NE(record, nullptr);
    record->call = call;
    std::fill_n(reinterpret_cast<std::byte*>(record + 1), payload_bytes, fill);
    writer.publish();
  }

  Segment proxy;
  Segment client;
  UniqueFd client_socket;
  UniqueFd proxy_socket;
  std::atomic<bool> stop{false};
  Waiter waiter{20};
  Waiter session_waiter{20};
  Peer peer;
  Peer session_peer;
  RingWriter writer;
};

}  // namespace tube::shared

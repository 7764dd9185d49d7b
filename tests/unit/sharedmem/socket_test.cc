// Sockets: borders kept, fds arrive CLOEXEC or are closed, and every failure names its cause. fds
// are counted.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "sharedmem/greeting.h"
#include "sharedmem/socket.h"
#include "tests/unit/sharedmem/support.h"

namespace tube::shared {
namespace {

class Sockets : public ::testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/tube-socket-test-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
    path_ = dir_ + "/w.sock";
    before_ = count_fds();
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
    listening_.reset();
    EXPECT_EQ(count_fds(), before_);
    ::unlink(path_.c_str());
    ::rmdir(dir_.c_str());
  }
  void connect() {
    Result<UniqueFd> listening = listen_unix(path_, SOCK_SEQPACKET);
    ASSERT_TRUE(listening) << listening.error().message;
    listening_ = listening.take();
    Result<UniqueFd> a = connect_unix(path_, SOCK_SEQPACKET);
    ASSERT_TRUE(a) << a.error().message;
    a_ = a.take();
    Result<UniqueFd> b = accept_unix(listening_.get());
    ASSERT_TRUE(b) << b.error().message;
    b_ = b.take();
  }
  std::string dir_, path_;
  int before_ = 0;
  UniqueFd listening_, a_, b_;
};

TEST_F(Sockets, MessagesKeepTheirBorders) {
  connect();
  ASSERT_TRUE(send_message(a_.get(), "one", 3));
  ASSERT_TRUE(send_message(a_.get(), "second", 6));
  char buffer[16];
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 0, 1000)->size_bytes, 3u);
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 0, 1000)->size_bytes, 6u);
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 0, 0).error().code, EAGAIN);
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 0, 5).error().code, ETIMEDOUT);
}

TEST_F(Sockets, FdsArriveCloseOnExec) {
  connect();
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fds[] = {file.get(), file.get(), file.get()};
  ASSERT_TRUE(send_message(a_.get(), "x", 1, fds));
  char buffer[4];
  Result<Received> received = receive_message(b_.get(), buffer, sizeof(buffer), 3, 1000);
  ASSERT_TRUE(received);
  ASSERT_EQ(received->fds.size(), 3u);
  for (const UniqueFd& fd : received->fds)
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(Sockets, UnexpectedFdsAndLongMessagesAreRefusedAndTheirFdsClosed) {
  connect();
  const int before = count_fds();
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int two[] = {file.get(), file.get()};
  char buffer[4];
  ASSERT_TRUE(send_message(a_.get(), "x", 1, two));
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 1, 1000).error().code, EMSGSIZE);
  ASSERT_TRUE(send_message(a_.get(), "longer than four", 16, two));
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 2, 1000).error().code, EMSGSIZE);
  file.reset();
  EXPECT_EQ(count_fds(), before);
}

TEST_F(Sockets, MoreFdsThanAnyMessageMayCarryLeaveNothingOpen) {
  connect();
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int before = count_fds();
  // Past our own limit on purpose: what a hostile sender can do.
  constexpr int kMany = 40;
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kMany * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(kMany * sizeof(int));
  for (int i = 0; i < kMany; ++i) {
    const int fd = file.get();
    std::memcpy(CMSG_DATA(c) + static_cast<size_t>(i) * sizeof(int), &fd, sizeof(int));
  }
  ASSERT_EQ(::sendmsg(a_.get(), &header, MSG_NOSIGNAL), 1);
  char buffer[4];
  EXPECT_EQ(receive_message(b_.get(), buffer, sizeof(buffer), 8, 1000).error().code, EMSGSIZE);
  EXPECT_EQ(count_fds(), before);
}

TEST_F(Sockets, HangUpIsSeenAndSendingIntoItRaisesNoSignal) {
  connect();
  EXPECT_FALSE(hung_up(a_.get()));
  b_.reset();
  EXPECT_TRUE(hung_up(a_.get()));
  EXPECT_EQ(send_message(a_.get(), "x", 1).error().code, EPIPE);
  char buffer[4];
  EXPECT_EQ(receive_message(a_.get(), buffer, sizeof(buffer), 0, 1000).error().code, ENODATA);
}

TEST_F(Sockets, SenderThatMustNotBlockIsToldThatNobodyReads) {
  connect();
  const char block[4096] = {};
  Status status;
  for (int i = 0; i < 10000 && status; ++i)
    status = send_message(a_.get(), block, sizeof(block), {}, SendMode::kNeverBlock);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, EAGAIN);
}

TEST_F(Sockets, PeerIsWhoeverTheKernelSays) {
  connect();
  Result<PeerCredentials> peer = peer_credentials(b_.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::geteuid());
}

TEST_F(Sockets, SocketIsClosedToOtherUsers) {
  connect();
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(Sockets, ServedPathIsRefusedADeadOneReplacedAFileKept) {
  connect();
  EXPECT_EQ(listen_unix(path_, SOCK_SEQPACKET).error().code, EADDRINUSE);
  listening_.reset();
  a_.reset();
  b_.reset();
  EXPECT_EQ(connect_unix(path_, SOCK_SEQPACKET).error().code, ECONNREFUSED);
  {
    Result<UniqueFd> again = listen_unix(path_, SOCK_SEQPACKET);
    EXPECT_TRUE(again) << again.error().message;
  }
  ::unlink(path_.c_str());
  EXPECT_EQ(connect_unix(path_, SOCK_SEQPACKET).error().code, ENOENT);
  UniqueFd file(::open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(listen_unix(path_, SOCK_SEQPACKET).error().code, EADDRINUSE);
  EXPECT_EQ(::access(path_.c_str(), F_OK), 0);
}

TEST_F(Sockets, TooLongAPathIsWorded) {
  const std::string path = "/tmp/" + std::string(200, 'x');
  for (const Error& error :
       {listen_unix(path, SOCK_STREAM).error(), connect_unix(path, SOCK_STREAM).error()}) {
    EXPECT_EQ(error.code, ENAMETOOLONG);
    EXPECT_NE(error.message.find("107"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("TUBE_DIR"), std::string::npos);
  }
}

// ---- the handshake ----

class Greeting : public Sockets {
 protected:
  void SetUp() override {
    Sockets::SetUp();
    connect();
    ASSERT_FALSE(HasFatalFailure());
  }
  static constexpr uint64_t kHash = 0x1234;
};

TEST_F(Greeting, BothHalvesMeet) {
  const pid_t child = in_child([&] {
    Result<Received> nothing = Error{};
    while (true) {
      Result<handshake::Hello> hello = receive_hello(b_.get());
      if (!hello && hello.error().code == EAGAIN) continue;
      if (!hello || std::string(hello->function_name) != "resize" || hello->free_windows != 0xe)
        return 1;
      if (hello->visible_devices[0] != '\x01') return 2;
      std::string why;
      if (check_versions(*hello, kHash, "0.1.0", &why) != handshake::Refusal::kNone) return 3;
      break;
    }
    Result<Segment> segment = Segment::create(77);
    Result<UniqueFd> pinned = create_memory_file("pinned", 1 << 20, Fill::kSparse);
    Result<UniqueFd> info = create_constant_file("info", "device", 6);
    handshake::Welcome welcome = make_welcome(kHash, "0.1.0");
    welcome.session_id = 77;
    welcome.info_bytes = 6;
    return send_welcome(b_.get(), welcome, segment->fd(), pinned->get(), info->get()) ? 0 : 4;
  });
  Result<Greeted> greeted =
      greet(a_.get(), make_hello(kHash, "resize", "0.1.0", nullptr, 0xe), 10000);
  ASSERT_TRUE(greeted) << greeted.error().message;
  EXPECT_EQ(greeted->welcome.session_id, 77u);
  Result<Segment> segment = Segment::attach(std::move(greeted->segment));
  ASSERT_TRUE(segment) << segment.error().message;
  EXPECT_EQ(segment->header().session_id, 77u);
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(Greeting, RefusalIsTheProxysOwnWords) {
  ASSERT_TRUE(send_refusal(b_.get(), kHash, "0.1.0", handshake::Refusal::kTooManyClients,
                           "128 functions are connected,\nno more"));
  Result<Greeted> greeted = greet(a_.get(), make_hello(kHash, "f", "0.1.0", "0", 1), 1000);
  ASSERT_FALSE(greeted);
  EXPECT_EQ(greeted.error().code,
            kRefusalBase + static_cast<int>(handshake::Refusal::kTooManyClients));
  EXPECT_EQ(greeted.error().message, "128 functions are connected,?no more");
}

TEST_F(Greeting, AnotherProtocolIsRefusedByBothSidesWithBothVersions) {
  std::string why;
  EXPECT_EQ(check_versions(make_hello(kHash + 1, "f", "0.2.0", nullptr, 1), kHash, "0.1.0", &why),
            handshake::Refusal::kVersion);
  EXPECT_EQ(check_versions(make_hello(kHash, "f", "0.2.0", nullptr, 1), kHash, "0.1.0", &why),
            handshake::Refusal::kVersion);
  EXPECT_NE(why.find("0.2.0"), std::string::npos);
  EXPECT_NE(why.find("0.1.0"), std::string::npos);
  EXPECT_LT(why.size(), sizeof(handshake::Welcome::message));
  ASSERT_TRUE(send_refusal(b_.get(), kHash, "0.1.0", handshake::Refusal::kVersion, why));
  Result<Greeted> greeted = greet(a_.get(), make_hello(kHash + 1, "f", "0.2.0", nullptr, 1), 1000);
  EXPECT_EQ(greeted.error().message, why);
}

TEST_F(Greeting, SilentOrForeignProxyIsAnErrorAndLeavesNoFd) {
  const handshake::Hello hello = make_hello(kHash, "f", "0.1.0", nullptr, 1);
  EXPECT_EQ(greet(a_.get(), hello, 5).error().code, ETIMEDOUT);
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fd = file.get();
  ASSERT_TRUE(send_message(b_.get(), "HTTP/1.1 400", 12, {&fd, 1}));
  EXPECT_EQ(greet(a_.get(), hello, 1000).error().code, EPROTO);
}

TEST_F(Greeting, UnsealedFilesAreNotTrusted) {
  UniqueFd file(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), 6), 0);
  handshake::Welcome welcome = make_welcome(kHash, "0.1.0");
  welcome.info_bytes = 6;
  ASSERT_TRUE(send_welcome(b_.get(), welcome, file.get(), file.get(), file.get()));
  Result<Greeted> greeted = greet(a_.get(), make_hello(kHash, "f", "0.1.0", nullptr, 1), 1000);
  EXPECT_EQ(greeted.error().code, EPERM);
}

TEST_F(Greeting, WrongHelloIsRefusedAndItsFdsAreClosed) {
  char buffer[384] = {};
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fd = file.get();
  ASSERT_TRUE(send_message(a_.get(), buffer, sizeof(buffer)));
  EXPECT_EQ(receive_hello(b_.get()).error().code, EPROTO);
  ASSERT_TRUE(send_message(a_.get(), buffer, 10));
  EXPECT_EQ(receive_hello(b_.get()).error().code, EPROTO);
  ASSERT_TRUE(send_message(a_.get(), buffer, sizeof(buffer), {&fd, 1}));
  EXPECT_EQ(receive_hello(b_.get()).error().code, EMSGSIZE);
}

TEST_F(Greeting, HelloTextIsTerminatedAndPrintable) {
  handshake::Hello hello = make_hello(kHash, std::string(200, 'n'), "0.1.0", "0,1", 1);
  EXPECT_EQ(std::strlen(hello.function_name), 63u);
  std::memset(hello.function_name, '\x1b', sizeof(hello.function_name));
  ASSERT_TRUE(send_message(a_.get(), &hello, sizeof(hello)));
  Result<handshake::Hello> received = receive_hello(b_.get());
  ASSERT_TRUE(received);
  EXPECT_EQ(std::string(received->function_name), std::string(63, '?'));
  EXPECT_STREQ(received->visible_devices, "0,1");
}

TEST_F(Greeting, FdMessageNamesItsToken) {
  UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(receive_fd(b_.get(), 0).error().code, EAGAIN);
  ASSERT_TRUE(send_fd(a_.get(), 42, file.get()));
  Result<TokenFd> received = receive_fd(b_.get(), 1000);
  ASSERT_TRUE(received) << received.error().message;
  EXPECT_EQ(received->token, 42u);
  EXPECT_TRUE(received->fd.valid());
  ASSERT_TRUE(send_message(a_.get(), "no fd at all!!!!", 16));
  EXPECT_EQ(receive_fd(b_.get(), 1000).error().code, EPROTO);
}

}  // namespace
}  // namespace tube::shared

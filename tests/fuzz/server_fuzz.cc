// A live server under hostile connections: proxy::Server on the simulated GPU, on a thread of this
// process, met through its real sockets.
//
// The first byte of an input says where it goes. To the data socket as a greeting: a good Hello,
// changed by the rest of the input (exclusive or, so that zeros change nothing), of the length that
// the second byte cuts it to; what comes behind a good one are further messages, some of them with
// a descriptor. Or to the control socket as it is, in pieces. Whatever comes, the server may
// answer, refuse or hang up; it may not crash, stand, or keep a descriptor of the connection.
//
// A verb `stop` in the input ends the server, and another one begins. Needs TUBE_SIM_LIB (the sim's
// libcuda.so.1).
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/runtime_dir.h"
#include "protocol/driver_table.gen.h"
#include "protocol/wire.gen.h"
#include "proxy/common/backend.h"
#include "proxy/common/version.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"
#include "proxy/server/server.h"
#include "sharedmem/greeting.h"
#include "sharedmem/socket.h"

namespace tube {
namespace {

constexpr int kPatienceMs = 60'000;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "server_fuzz: %s\n", what);
  std::exit(77);  // skipped, aloud
}

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "server_fuzz: %s\n", what);
  std::abort();
}

std::string new_folder() {
  char name[] = "/tmp/tube-fuzz-XXXXXX";
  if (::mkdtemp(name) == nullptr) give_up("no temporary folder");
  return name;
}

int count_fds() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

class World {
 public:
  World() : folder_(new_folder()), gpus_(driver_) {
    proxy::BackendOptions options;
    options.choice = proxy::BackendChoice::kSim;
    Result<proxy::Backend> backend = load_backend(options, driver_);
    if (!backend.ok()) give_up(backend.error().message.c_str());
    proxy::wrap_driver(driver_, gpus_.gate());
    if (Status opened = gpus_.open(); !opened.ok()) give_up(opened.error().message.c_str());
    begin();
  }

  void run(const uint8_t* data, size_t size) {
    if (size < 2) return;
    if ((data[0] & 1) == 0) ask({reinterpret_cast<const char*>(data + 1), size - 1});
    else greet(data + 1, size - 1);
    if (++inputs_ % 256 == 0) look();
  }

 private:
  void begin() {
    proxy::ServerOptions options;
    options.workflow = "fuzz";
    options.runtime_dir = folder_;
    options.is_sim = true;
    options.stall_s = 0;
    options.teardown_ms = 200;
    options.host = {uint64_t{4} << 30, uint64_t{64} << 20};
    server_ = std::make_unique<proxy::Server>(driver_, gpus_, options);
    if (Status listens = server_->listen(); !listens.ok()) give_up(listens.error().message.c_str());
    thread_ = std::thread([this] { (void)server_->run(); });
  }

  UniqueFd connect(int kind, const std::string& path) {
    for (int i = 0; i < 2; ++i) {
      Result<UniqueFd> socket = shared::connect_unix(path, kind);
      if (socket.ok()) return socket.take();
      thread_.join();  // it was told to stop
      server_.reset();
      begin();
    }
    die("nobody answers");
  }

  // Until the other side hangs up; closes what descriptors come with it.
  void read_all(int fd) {
    while (true) {
      pollfd ready{fd, POLLIN, 0};
      const int got = ::poll(&ready, 1, kPatienceMs);
      if (got < 0 && errno == EINTR) continue;  // the fuzzer's own alarm
      if (got != 1) die("the server stands");
      char bytes[4096], control[256];
      iovec part{bytes, sizeof bytes};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      if (::recvmsg(fd, &message, MSG_CMSG_CLOEXEC) <= 0) return;
      for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
           head = CMSG_NXTHDR(&message, head)) {
        const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          int fd_of_it;
          std::memcpy(&fd_of_it, CMSG_DATA(head) + i * sizeof(int), sizeof fd_of_it);
          ::close(fd_of_it);
        }
        welcome_ = true;
      }
      if (welcome_) return;
    }
  }

  void ask(std::string_view text) {
    UniqueFd socket = connect(SOCK_STREAM, control_socket_path(folder_, "fuzz"));
    const size_t half = text.size() / 2;
    (void)::send(socket.get(), text.data(), half, MSG_NOSIGNAL);
    (void)::send(socket.get(), text.data() + half, text.size() - half, MSG_NOSIGNAL);
    (void)::send(socket.get(), "\n", 1, MSG_NOSIGNAL);
    ::shutdown(socket.get(), SHUT_WR);
    read_all(socket.get());
  }

  void greet(const uint8_t* data, size_t size) {
    handshake::Hello hello =
        shared::make_hello(wire::kProtocolHash, "fuzzer", proxy::kVersion, nullptr, 0xf);
    uint8_t bytes[sizeof hello + 64] = {};
    std::memcpy(bytes, &hello, sizeof hello);
    const size_t length = data[0] == 0 ? sizeof hello : (data[0] * size_t{7}) % sizeof bytes;
    ++data, --size;
    const size_t changed = std::min(size, sizeof bytes);
    for (size_t i = 0; i < changed; ++i) bytes[i] ^= data[i];
    UniqueFd socket = connect(SOCK_SEQPACKET, data_socket_path(folder_, "fuzz"));
    if (::send(socket.get(), bytes, length, MSG_NOSIGNAL) < 0) return;
    welcome_ = false;
    if (length == 0) ::shutdown(socket.get(), SHUT_WR);
    read_all(socket.get());
    if (!welcome_) return;
    for (size_t at = changed; at + 17 <= size; at += 17) {  // it joined
      handshake::FdMessage more;
      std::memcpy(&more, data + at + 1, sizeof more);
      if ((data[at] & 1) != 0) {
        (void)shared::send_fd(socket.get(), more.token, socket.get(),
                              shared::SendMode::kNeverBlock);
      } else {
        (void)::send(socket.get(), &more, sizeof more, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
    welcome_ = false;
  }

  // What a connection had goes with it, soon.
  void look() {
    for (int i = 0; i < kPatienceMs; ++i) {
      const int now = count_fds();
      if (most_fds_ == 0 && i == 1000) most_fds_ = now + 16;  // spares and pools come and go
      if (most_fds_ != 0 && now <= most_fds_) return;
      ::poll(nullptr, 0, 1);
    }
    die("descriptors are left");
  }

  const std::string folder_;
  proxy::Driver driver_;
  proxy::Gpus gpus_;
  std::unique_ptr<proxy::Server> server_;
  std::thread thread_;
  uint64_t inputs_ = 0;
  int most_fds_ = 0;
  bool welcome_ = false;
};

}  // namespace
}  // namespace tube

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* world = [] {
    ::setenv("TUBE_LOG_FILE", "/dev/null", 0);
    return new tube::World;
  }();
  world->run(data, size);
  return 0;
}

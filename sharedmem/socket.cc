#include "sharedmem/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.h"

namespace tube::shared {
namespace {

Status fill_address(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) {
    return Error{ENAMETOOLONG, "socket path " + path + " has " + std::to_string(path.size()) +
                                   " characters, a socket's may have " +
                                   std::to_string(sizeof(address->sun_path) - 1) +
                                   "; set TUBE_DIR to a shorter folder"};
  }
  std::memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return {};
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Names are ours and short.
socklen_t abstract_address(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t bytes =
      name.size() < sizeof(address->sun_path) - 1 ? name.size() : sizeof(address->sun_path) - 1;
  std::memcpy(address->sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

// Of connecting and sending; 0: none.
void limit_patience(int fd, int timeout_ms) {
  const timeval patience{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

// A socket file outlives a killed server; connecting tells the two apart.
bool somebody_serves(const sockaddr_un& address, int type) {
  UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return true;
  if (::connect(probe.get(), generic(address), sizeof(address)) == 0) return true;
  return errno != ECONNREFUSED && errno != ENOENT;
}

// Collects every fd of a control message, so that none leaks whatever the message looks like.
void take_fds(msghdr& header, std::vector<UniqueFd>* fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds->emplace_back(fd);
    }
  }
}

Status wait_readable(int fd, int timeout_ms) {
  if (timeout_ms == 0) return {};
  const uint64_t end_ns =
      now_ns() + static_cast<uint64_t>(timeout_ms < 0 ? 0 : timeout_ms) * 1'000'000;
  int left_ms = timeout_ms;
  while (true) {
    pollfd p{fd, POLLIN, 0};
    const int n = ::poll(&p, 1, left_ms);
    if (n > 0) return {};
    if (n == 0) return Error{ETIMEDOUT, "no answer within " + std::to_string(timeout_ms) + " ms"};
    if (errno != EINTR) return errno_error(errno, "cannot wait for a message");
    if (timeout_ms < 0) continue;
    const uint64_t now = now_ns();
    left_ms = now >= end_ns ? 0 : static_cast<int>((end_ns - now) / 1'000'000);
  }
}

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path, int type) {
  sockaddr_un address;
  Status status = fill_address(path, &address);
  if (!status) return status.error();
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error(errno, "cannot make a socket");
  // The folder is already closed to others; the mode is the second wall. Binding with the umask
  // would race with threads.
  if (::fchmod(fd.get(), 0600) != 0) return errno_error(errno, "cannot protect socket " + path);
  if (::bind(fd.get(), generic(address), sizeof(address)) != 0) {
    if (errno != EADDRINUSE) return errno_error(errno, "cannot bind socket " + path);
    if (somebody_serves(address, type))
      return Error{EADDRINUSE, "socket " + path + " is served by a running proxy"};
    struct stat info;
    if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
      return Error{EADDRINUSE, path + " is in the way and is not a socket"};
    }
    if (::unlink(path.c_str()) != 0 || ::bind(fd.get(), generic(address), sizeof(address)) != 0) {
      return errno_error(errno, "cannot replace the dead socket " + path);
    }
  }
  if (::listen(fd.get(), 128) != 0) return errno_error(errno, "cannot listen on socket " + path);
  return fd;
}

SocketFile socket_file(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

void unlink_socket(const std::string& path, const SocketFile& file) {
  if (file.number != 0 && socket_file(path) == file) (void)::unlink(path.c_str());
}

bool is_served(const std::string& path, int type) {
  sockaddr_un address;
  return fill_address(path, &address).ok() && somebody_serves(address, type);
}

Result<UniqueFd> connect_unix(const std::string& path, int type, int timeout_ms) {
  sockaddr_un address;
  Status status = fill_address(path, &address);
  if (!status) return status.error();
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_error(errno, "cannot make a socket");
  limit_patience(fd.get(), timeout_ms);
  int result;
  do {
    result = ::connect(fd.get(), generic(address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno_error(errno, "cannot connect to " + path);
  return fd;
}

Result<UniqueFd> listen_abstract(const std::string& name, int type) {
  sockaddr_un address;
  const socklen_t size = abstract_address(name, &address);
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error(errno, "cannot make a socket");
  if (::bind(fd.get(), generic(address), size) != 0)
    return errno_error(errno, "cannot bind socket @" + name);
  if (::listen(fd.get(), 128) != 0) return errno_error(errno, "cannot listen on socket @" + name);
  return fd;
}

Result<UniqueFd> connect_abstract(const std::string& name, int type, int timeout_ms) {
  sockaddr_un address;
  const socklen_t size = abstract_address(name, &address);
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_error(errno, "cannot make a socket");
  limit_patience(fd.get(), timeout_ms);
  int result;
  do {
    result = ::connect(fd.get(), generic(address), size);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno_error(errno, "cannot connect to @" + name);
  return fd;
}

Result<UniqueFd> accept_unix(int listening_fd) {
  int fd;
  do {
    fd = ::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return errno_error(errno, "cannot accept a connection");
  return UniqueFd(fd);
}

Result<PeerCredentials> peer_credentials(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return errno_error(errno, "cannot ask who connected");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Status send_message(int fd, const void* data, size_t size_bytes, std::span<const int> fds,
                    SendMode mode) {
  if (fds.size() > kMaxFdsPerMessage)
    return Error{EINVAL, "too many file descriptors in one message"};
  iovec part{const_cast<void*>(data), size_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent =
        ::sendmsg(fd, &header, MSG_NOSIGNAL | (mode == SendMode::kNeverBlock ? MSG_DONTWAIT : 0));
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno_error(errno, "cannot send a message");
  if (static_cast<size_t>(sent) != size_bytes) return Error{EIO, "a message was cut while sending"};
  return {};
}

Result<Received> receive_message(int fd, void* buffer, size_t buffer_bytes, size_t max_fds,
                                 int timeout_ms) {
  Status readable = wait_readable(fd, timeout_ms);
  if (!readable) return readable.error();
  iovec part{buffer, buffer_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC | (timeout_ms == 0 ? MSG_DONTWAIT : 0));
  } while (size < 0 && errno == EINTR);
  if (size < 0) return errno_error(errno, "cannot receive a message");
  Received received;
  take_fds(header, &received.fds);
  if (size == 0) return Error{ENODATA, "the other side closed the connection"};
  if ((header.msg_flags & MSG_CTRUNC) != 0 || received.fds.size() > max_fds) {
    return Error{EMSGSIZE,
                 "a message carried more file descriptors than expected, or this process has none "
                 "left (ulimit -n)"};
  }
  if ((header.msg_flags & MSG_TRUNC) != 0)
    return Error{EMSGSIZE, "a message was longer than expected"};
  received.size_bytes = static_cast<size_t>(size);
  return received;
}

uint64_t socket_inode(int fd) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? static_cast<uint64_t>(info.st_ino) : 0;
}

bool is_socket(int fd, uint64_t inode) { return inode != 0 && socket_inode(fd) == inode; }

bool hung_up(int fd) {
  const int saved = errno;
  pollfd p{fd, POLLRDHUP, 0};
  int n;
  do {
    n = ::poll(&p, 1, 0);
  } while (n < 0 && errno == EINTR);
  errno = saved;
  return n > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace tube::shared

// Connections that have not become functions yet: how they are accepted, how long they may take to
// say what they are, and what happens when the proxy has no descriptors left.
//
// A program sends its greeting right behind its connection. A connection that does not is worth
// nothing, so it has a deadline; one process may have a few of them, and when all places are taken
// the oldest makes room. A listening socket for which nothing can be accepted (no descriptors, no
// memory) is shut for a moment instead of being asked again at once; who stands there is told so
// with the descriptor that is kept for that.
//
// Server's thread.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/common/client_limits.h"
#include "proxy/common/contained.h"
#include "proxy/common/descriptors.h"
#include "proxy/common/version.h"
#include "proxy/server/server.h"
#include "sharedmem/greeting.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

namespace {

constexpr uint64_t kShutNs = 100'000'000;
constexpr const char* kNoDescriptors = "the proxy has no file descriptors left (ulimit -n)";

bool has_run_out(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM ||
         error_number == ENOBUFS;
}

// A function that closed its connection to us asks so whether we live (hook/process/proxy_life.h).
bool left_without_a_word(int fd) {
  char byte;
  return recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool is_overdue(uint64_t since_ns, uint32_t allowed_ms) {
  return now_ns() - since_ns >= uint64_t{allowed_ms} * 1'000'000;
}

}  // namespace

// ---- doors

void Server::open_door(Source source, int fd) { doors_[static_cast<size_t>(source)] = {fd, 0}; }

void Server::shut_door(Source source, bool until_told) {
  Door& door = doors_[static_cast<size_t>(source)];
  door.shut_until_ns = until_told ? UINT64_MAX : now_ns() + kShutNs;
  (void)watch(door.fd, source, 0, 0, EPOLL_CTL_MOD);
}

void Server::open_doors() {
  for (const Source source : {Source::kListen, Source::kControlListen, Source::kBrokerListen}) {
    Door& door = doors_[static_cast<size_t>(source)];
    if (door.shut_until_ns == 0 || door.shut_until_ns > now_ns()) continue;
    if (watch(door.fd, source, 0, EPOLLIN, EPOLL_CTL_MOD).ok()) door.shut_until_ns = 0;
  }
  if (!spare_fd_.valid()) spare_fd_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool Server::any_door_shut() const {
  return std::any_of(doors_.begin(), doors_.end(), [](const Door& door) {
    return door.shut_until_ns != 0 && door.shut_until_ns != UINT64_MAX;
  });
}

// The next connection; an error when there is none, or none can be had.
Result<UniqueFd> Server::accept(Source source) {
  Door& door = doors_[static_cast<size_t>(source)];
  Result<UniqueFd> socket = shared::accept_unix(door.fd);
  if (socket.ok() && !is_scarce(socket->get())) return socket;
  if (!socket.ok()) {
    if (!has_run_out(socket.error().code)) return socket;
    spare_fd_.reset();
    socket = shared::accept_unix(door.fd);
  }
  if (socket.ok()) turn_away(source, socket->get());
  shut_door(source, false);
  return Error{EMFILE, kNoDescriptors};
}

void Server::turn_away(Source source, int fd) {
  if (source == Source::kListen) {
    (void)shared::send_refusal(fd, wire::kProtocolHash, kVersion, handshake::Refusal::kOutOfMemory,
                               kNoDescriptors);
  } else if (source == Source::kControlListen) {
    constexpr char kAnswer[] =
        "{\"ok\":false,\"error\":\"the proxy has no file descriptors left (ulimit -n)\"}\n";
    (void)send(fd, kAnswer, sizeof(kAnswer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  log_warn("a connection is turned away: %s", kNoDescriptors);
}

// ---- greetings

// Whether this process has too many connections that have not greeted. Those of other PID
// namespaces have no number here (0) and are not told apart: only place_to_greet() bounds them.
bool Server::has_enough(pid_t pid) const {
  if (pid == 0) return false;
  const auto of_it = [pid](const auto& entry) {
    return entry.second.pid == pid && !entry.second.waits;
  };
  return std::count_if(greeting_.begin(), greeting_.end(), of_it) >= int{limits::kGreetingsOfOne};
}

// Whether there is a place for one more connection; makes room where that is due.
bool Server::place_to_greet() {
  if (greeting_.size() < limits::kGreetings) return true;
  auto oldest = greeting_.end();
  for (auto it = greeting_.begin(); it != greeting_.end(); ++it) {
    if (!it->second.waits && (oldest == greeting_.end() || it->first < oldest->first)) oldest = it;
  }
  if (oldest == greeting_.end() || !is_overdue(oldest->second.came_ns, limits::kGreetingSoonMs))
    return false;
  greeting_.erase(oldest);
  return true;
}

void Server::accept_function() {
  while (true) {
    if (!place_to_greet()) return shut_door(Source::kListen, false);
    Result<UniqueFd> socket = accept(Source::kListen);
    if (!socket.ok()) {
      if (socket.error().code != EAGAIN)
        log_warn("a function could not connect: %s", socket.error().message.c_str());
      return;
    }
    const Result<shared::PeerCredentials> peer = shared::peer_credentials(socket->get());
    if (!peer.ok() || has_enough(peer->pid)) continue;
    expect_greeting(socket.take(), peer->pid);
  }
}

void Server::expect_greeting(UniqueFd socket, pid_t pid) {
  const uint64_t id = next_id_++;
  const int fd = socket.get();
  greeting_.emplace(id, Greeting{std::move(socket), pid, now_ns(), false});
  if (!watch(fd, Source::kGreeting, id, EPOLLIN | EPOLLRDHUP).ok()) greeting_.erase(id);
}

void Server::drop_late_greetings() {
  std::erase_if(greeting_, [](const auto& entry) {
    if (entry.second.waits || !is_overdue(entry.second.came_ns, limits::kGreetingMs)) return false;
    log_info("a connection of process %d that did not say what it is is dropped", entry.second.pid);
    return true;
  });
}

void Server::greet(uint64_t id) {
  auto it = greeting_.find(id);
  if (it == greeting_.end()) return;
  if (left_without_a_word(it->second.fd.get())) {  // before it could stand in a line
    greeting_.erase(it);
    return;
  }
  if (about_to_restart() || only_unfinished() ||
      place_to_come(id)) {  // unread: we greet it later, or the next proxy does
    epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, it->second.fd.get(), nullptr);
    it->second.waits = true;
    waiting_.push_back(id);
    return;
  }
  UniqueFd socket = std::move(it->second.fd);
  greeting_.erase(it);
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  const int fd = socket.get();
  Result<handshake::Hello> hello = shared::receive_hello(fd);
  if (!hello.ok()) {
    log_info("a connection ended before it said what it is: %s", hello.error().message.c_str());
    return;
  }
  handshake::Refusal refusal = handshake::Refusal::kNone;
  UniqueFd spare(fcntl(fd, F_DUPFD_CLOEXEC, 0));  // admit may consume the socket before it fails
  Status admitted;
  if (!contained("the start of a function",
                 [&] { admitted = admit(std::move(socket), *hello, &refusal); })) {
    admitted = errorf("the proxy lacks memory, mappings or threads for one more function");
    refusal = handshake::Refusal::kOutOfMemory;
  }
  if (admitted.ok()) return;
  log_warn("function '%s' (pid %d) is turned away: %s", hello->function_name, hello->pid,
           admitted.error().message.c_str());
  (void)shared::send_refusal(spare.get(), wire::kProtocolHash, kVersion, refusal,
                             admitted.error().message);
}

}  // namespace tube::proxy

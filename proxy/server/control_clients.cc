// The connections to the control socket: one JSON object per line in, one per line out.
//
// Nothing here waits for a client. An answer for which the socket has no room stays in a buffer;
// until it has been taken, that connection's next request is not read, and a connection that does
// not take its answer in time is dropped. A connection is served one request at a time, so that
// joins and deaths come between the requests of one that asks without end.
//
// Server's thread.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/common/client_limits.h"
#include "proxy/server/server.h"
#include "sharedmem/socket.h"

namespace tube::proxy {

void Server::accept_control() {
  while (true) {
    // When all places are taken, a connection waits in the socket's queue until another one ends
    // or has been silent for too long.
    if (control_.size() >= limits::kControlClients) {
      control_waits_ = true;
      return shut_door(Source::kControlListen, true);
    }
    Result<UniqueFd> fd = accept(Source::kControlListen);
    if (!fd.ok()) return;
    Result<shared::PeerCredentials> peer = shared::peer_credentials(fd->get());
    if (!peer.ok() || peer->uid != geteuid()) continue;
    const uint64_t id = next_id_++;
    const int raw = fd->get();
    control_[id] = {fd.take(), {}, {}, {}, now_ns(), 0, EPOLLIN, false, peer->pid};
    if (!watch(raw, Source::kControl, id, EPOLLIN).ok()) control_.erase(id);
  }
}

void Server::end_control(uint64_t id) {
  control_.erase(id);
  if (!std::exchange(control_waits_, false)) return;
  doors_[static_cast<size_t>(Source::kControlListen)].shut_until_ns = 1;  // long ago
  open_doors();
}

// Sends what there is room for. False: the connection has ended.
bool Server::send_answers(ControlClient& client) {
  while (!client.output.empty()) {
    const ssize_t put = send(client.fd.get(), client.output.data(), client.output.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno == EAGAIN;
    client.output.erase(0, static_cast<size_t>(put));
  }
  client.owed_ns = 0;
  return true;
}

// The next request, when its answer has a place. False: nothing to do now.
bool Server::answer_next(ControlClient& client) {
  const size_t end = client.input.find('\n');
  if (end == std::string::npos || !client.output.empty()) return false;
  client.heard_ns = now_ns();
  const nlohmann::json request = nlohmann::json::parse(
      client.input.begin(), client.input.begin() + std::ptrdiff_t(end), nullptr, false);
  if (tells_states(request) && !states_known(client)) return false;
  client.output = answer(request, client) + "\n";
  client.look.reset();
  client.owed_ns = client.heard_ns;
  client.input.erase(0, end + 1);
  return true;
}

// False: the client sends no more.
bool Server::read_requests(ControlClient& client) {
  char buffer[4096];
  const ssize_t got = recv(client.fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  client.input.append(buffer, static_cast<size_t>(got));
  return got != 0;
}

void Server::control_ready(uint64_t id, uint32_t events) {
  const auto it = control_.find(id);
  if (it == control_.end()) return;
  ControlClient& client = it->second;
  bool lives = send_answers(client);
  const bool wants_input =
      client.output.empty() && client.input.find('\n') == std::string::npos && !client.ends;
  if (lives && wants_input) client.ends = !read_requests(client);
  if (lives && answer_next(client)) lives = send_answers(client);
  const bool has_request = client.input.find('\n') != std::string::npos;
  if (!has_request && client.input.size() > limits::kControlLineBytes) lives = false;
  const bool owes = !client.output.empty();
  if (!lives || (client.ends && !owes && !has_request) || (events & EPOLLERR) != 0)
    return end_control(id);
  // Who has sent a whole request has its turn at the next look, behind everybody else's events; or,
  // when functions are asked for the answer, at the next answer_waiting().
  const uint32_t some = owes || has_request ? EPOLLOUT : EPOLLIN;
  const uint32_t wanted = client.look ? 0 : some;
  if (wanted == std::exchange(client.watched, wanted)) return;
  if (!watch(client.fd.get(), Source::kControl, id, wanted, EPOLL_CTL_MOD).ok()) end_control(id);
}

// Who does not take an answer in time; and, when another one stands at the door, who has asked
// nothing for the longest time. A connection that sends single bytes now and then makes no request,
// and counts as silent.
void Server::drop_silent() {
  const uint64_t now = now_ns();
  const auto slow = [now](const auto& entry) {
    return entry.second.owed_ns != 0 &&
           now - entry.second.owed_ns >= uint64_t{limits::kControlSlowMs} * 1'000'000;
  };
  for (auto it = std::find_if(control_.begin(), control_.end(), slow); it != control_.end();
       it = std::find_if(control_.begin(), control_.end(), slow)) {
    log_info("a connection to the control socket that does not take its answer is dropped");
    end_control(it->first);
  }
  pollfd comes{control_fd_.get(), POLLIN, 0};
  if (!control_waits_ || poll(&comes, 1, 0) != 1) return;
  const auto oldest = [this] {
    return std::min_element(
               control_.begin(), control_.end(),
               [](const auto& a, const auto& b) { return a.second.heard_ns < b.second.heard_ns; })
        ->first;
  };
  const uint64_t id = oldest();
  if (now - control_[id].heard_ns < uint64_t{limits::kControlSilentMs} * 1'000'000) return;
  control_ready(id, 0);  // its request may be there already
  if (!control_waits_ || oldest() != id) return;
  log_info("a connection to the control socket that asks nothing is dropped for another one");
  end_control(id);
}

bool Server::any_answer_owed() const {
  return std::any_of(control_.begin(), control_.end(),
                     [](const auto& entry) { return entry.second.owed_ns != 0; });
}

}  // namespace tube::proxy

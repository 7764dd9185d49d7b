// How a function ends, as the server sees it: its socket hangs up or its process is gone, its
// session is told to stop, and what is left of it is taken out once the session's thread is at its
// end.
//
// Server's thread.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/common/client_limits.h"
#include "proxy/server/server.h"

namespace tube::proxy {
namespace {

constexpr int kDoubtLooks = 50;
// In waits of a teardown: how long the thread of a dead client may stand in the driver when no
// other client is there, which is less than a function waits for its greeting.
constexpr uint64_t kStuckWaits = 2;

void drain(int fd) {
  uint64_t ignored[16];
  while (read(fd, ignored, sizeof(ignored)) > 0) {
  }
}

}  // namespace

void Server::function_hung_up(uint64_t id) {
  std::lock_guard lock(mutex_);
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, it->second->socket_fd(), nullptr);
  doubtful_.push_back({id, 0});
}

// The socket hangs up only when its last copy closes, and a child made by a raw clone(2) keeps one:
// the process itself tells that it ended. Where it cannot be watched (other PID namespace, old
// kernel), socket and life lock decide alone.
void Server::watch_process(uint64_t id, pid_t pid) {
  if (pid <= 0) return;
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) {
    if (errno == ESRCH) doubtful_.push_back({id, 0});
    return;
  }
  if (watch(process.get(), Source::kProcess, id, EPOLLIN).ok())
    processes_.insert_or_assign(id, std::move(process));
}

void Server::process_ended(uint64_t id) {
  if (processes_.erase(id) != 0) doubtful_.push_back({id, 0});
}

// A socket that hung up is mostly a dead client. One that closed its descriptors and goes on still
// holds its life lock; a dying one may hold it for a moment longer than its socket, so look a few
// times before leaving it to the session's own looks.
void Server::settle_doubts() {
  std::erase_if(doubtful_, [this](Doubt& doubt) {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(doubt.session);
    if (it == sessions_.end()) return true;
    if (!it->second->client_alive(false)) {
      tell_to_end(*it->second, abi::ProxyState::kRunning);
      return true;
    }
    if (++doubt.looks < kDoubtLooks) return false;
    log_info("function '%s' (pid %d) closed its connection and goes on without it",
             it->second->client().name.c_str(), it->second->client().pid);
    it->second->look_again();
    return true;
  });
}

// mutex_ is held.
void Server::tell_to_end(Session& session, abi::ProxyState state) {
  session.request_stop(state);
  const uint64_t id = session.client().id;
  const bool known = std::any_of(dying_.begin(), dying_.end(),
                                 [id](const Dying& dying) { return dying.session == id; });
  if (!known) dying_.push_back({id, now_ns()});
}

// A session may be in a driver call that waits for a stream which waits for the client; and a
// hostile client may have put its thread to sleep again.
void Server::help_the_dying() {
  const uint64_t now = now_ns();
  if (dying_.empty() || now < next_help_ns_) return;
  next_help_ns_ = now + uint64_t{kDyingMs} * 1'000'000;
  std::lock_guard lock(mutex_);
  std::erase_if(dying_, [this](const Dying& dying) {
    const auto it = sessions_.find(dying.session);
    if (it == sessions_.end()) return true;
    it->second->look_again();
    it->second->let_waits_pass();
    return false;
  });
  look_for_stuck();
}

// Threads of dead clients may stand in the driver for good, behind work that only these could have
// ended. Living functions go on beside them; without any, the proxy starts anew. mutex_ is held.
void Server::look_for_stuck() {
  const uint64_t stuck_ns = kStuckWaits * options_.teardown_ms * 1'000'000;
  const auto stuck = [now = now_ns(), stuck_ns](const Dying& dying) {
    return now - dying.since_ns > stuck_ns;
  };
  if (dying_.empty() || dying_.size() < sessions_.size() ||
      !std::all_of(dying_.begin(), dying_.end(), stuck))
    return;
  log_error(
      "%zu functions are gone but stand in the driver, and no other is left: the proxy starts anew",
      dying_.size());
  restarting_ = true;
}

void Server::reap() {
  drain(ended_fd_.get());
  std::vector<std::unique_ptr<Session>> gone;
  {
    std::lock_guard lock(mutex_);
    gone.reserve(done_.size());
    for (uint64_t id : done_) {
      auto it = sessions_.find(id);
      if (it == sessions_.end()) continue;
      Session& session = *it->second;
      epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, session.socket_fd(), nullptr);
      retired_pinned_.push_back({session.client().slot, nullptr});  // room first
      if (auto remains = session.take_pinned_remains(); remains != nullptr) {
        retired_pinned_.back().remains = std::move(remains);
        slots_[session.client().slot] = Place::kPinned;
      } else {
        retired_pinned_.pop_back();
        slots_[session.client().slot] = session.abandoned() ? Place::kLost : Place::kFree;
      }
      if (session.poisoned() || session.unfinished()) ++sessions_killed_;
      work_is_left_ |= session.abandoned();
      gone.push_back(std::move(it->second));
      sessions_.erase(it);
      processes_.erase(id);
    }
    done_.clear();
  }
  sessions_ended_ += gone.size();
  for (const auto& session : gone) {
    log_info("function '%s' (pid %d) left after %lu records, %lu launches in %lu graphs",
             session->client().name.c_str(), session->client().pid, session->stats().records.load(),
             session->stats().run_launches.load(), session->stats().runs.load());
  }
  const bool any_left = !gone.empty();
  gone.clear();
  retire_pinned(limits::kPinnedReuseBytes, limits::kSparePlaces);
  std::lock_guard lock(mutex_);
  if (any_left) alone_since_ns_ = sessions_.empty() ? now_ns() : 0;
  if (sessions_.empty() && (has_failed_gpu() || work_is_left_)) {
    log_warn("no function is left on the context, which %s: the proxy starts anew",
             has_failed_gpu() ? "is dead" : "has work that does not end");
    restarting_ = true;
  }
}

}  // namespace tube::proxy

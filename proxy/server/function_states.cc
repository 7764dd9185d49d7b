// What a function does at this moment, for the control socket.
//
// That its session sleeps says only that no record is there: a kernel of it may run for seconds. So
// the sleeping ones are asked (session/work_look.h), all at once. Each has an answer in some ten
// microseconds; one that has none after kPatienceMs stands in the driver, and so is not idle.
//
// Server's thread.
#include <poll.h>

#include "base/clock.h"
#include "proxy/server/server.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kPatienceNs = 20'000'000;

}  // namespace

std::set<uint64_t> Server::idle_functions() {
  std::set<uint64_t> asked, idle;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (session->stopping() || !session->idle()) continue;
      session->ask_for_work();
      asked.insert(id);
    }
  }
  for (const uint64_t end = now_ns() + kPatienceNs; !asked.empty() && now_ns() < end;) {
    {
      std::lock_guard lock(mutex_);  // this thread alone takes sessions out
      std::erase_if(asked, [&](uint64_t id) {
        const WorkLook& look = sessions_.at(id)->look();
        if (look.answered() && !look.works()) idle.insert(id);
        return look.answered();
      });
    }
    if (!asked.empty()) poll(nullptr, 0, 1);
  }
  return idle;
}

const char* Server::state_of(const Session& session, bool idle) const {
  if (session.stopping()) return "dead";
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    if (gpus_[gpu].failed.load() != 0 && session.has_used(gpu)) return "faulted";
  }
  if (process_is_stopped(session.client().pid)) return "stopped";
  return idle ? "idle" : "running";
}

}  // namespace tube::proxy

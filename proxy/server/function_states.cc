// What a function does at this moment, for the control socket.
//
// That its session sleeps says only that no record is there: a kernel of it may run for seconds. So
// the sleeping ones are asked (session/work_look.h), all at once, and the answer on the control
// socket waits for theirs: nobody else does. Each has an answer in some ten
// microseconds; one that has none after kPatienceNs stands in the driver, and so is not idle.
//
// Server's thread.
#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "proxy/common/contained.h"
#include "proxy/server/server.h"

namespace tube::proxy {
namespace {

// Longer than a thread waits for a core where others want all of them.
constexpr uint64_t kPatienceNs = 200'000'000;

}  // namespace

Server::StateLook Server::ask_for_states() {
  StateLook look;
  look.until_ns = now_ns() + kPatienceNs;
  std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    if (!session->stopping() && session->idle()) look.asked.emplace(id, session->ask_for_work());
  }
  return look;
}

// Whether what the client asks for can be answered now. If not, its turn comes again
// (answer_waiting).
bool Server::states_known(ControlClient& client) {
  if (!client.look) client.look = ask_for_states();
  StateLook& look = *client.look;
  std::lock_guard lock(mutex_);
  std::erase_if(look.asked, [&](const auto& question) {
    const auto [id, number] = question;
    const auto session = sessions_.find(id);
    if (session == sessions_.end()) return true;
    const WorkLook& work = session->second->look();
    if (!work.answered(number)) return false;
    if (!work.works()) look.idle.insert(id);
    return true;
  });
  return look.asked.empty() || now_ns() >= look.until_ns;
}

bool Server::any_state_asked() const {
  return std::any_of(control_.begin(), control_.end(),
                     [](const auto& entry) { return entry.second.look.has_value(); });
}

void Server::answer_waiting() {
  std::vector<uint64_t> waiting;
  for (const auto& [id, client] : control_) {
    if (client.look) waiting.push_back(id);
  }
  for (const uint64_t id : waiting) {
    if (!contained("an answer", [&] { control_ready(id, 0); })) end_control(id);
  }
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

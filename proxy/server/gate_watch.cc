// Reports the functions that stand at the context gate and those they stand for, and ends a stopped
// function that is in the way.
//
// A stream that waits for its program keeps other functions' context-wide calls out of the driver
// (gpu/context_gate.h), or has them stand in it. A program that runs may let it go on at any
// moment; one that is stopped (SIGSTOP) never does. So while somebody stands, the server looks
// which of those in the way are stopped, and ends what has been so for ServerOptions::stopped_s:
// with SIGKILL, through the descriptor of the process, so that nobody else is meant. What its
// streams wait for is then let pass as for any function that was killed. A function that runs, or
// stops in a debugger, is ended only where ServerOptions::hang_s asks for it, and then when it has
// sent nothing for so long.
//
// Beside that, what the watchdog looks at (watchdog.h).
//
// Server's thread.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/wire.gen.h"
#include "proxy/server/server.h"

namespace tube::proxy {

using nlohmann::json;

namespace {

constexpr uint64_t kLookNs = 200'000'000;

double seconds_between(uint64_t since_ns, uint64_t now_ns) {
  return static_cast<double>(now_ns - since_ns) / 1e9;
}

}  // namespace

// Before any client.
void Server::mind_the_gate() {
  // A call stays out of the driver for a while longer than its owner is given.
  constexpr uint32_t kLonger_s = 10;
  gpus_.gate().set_stopped_patience(
      options_.stopped_s == 0 ? 0 : (options_.stopped_s + kLonger_s) * 1000);
  gpus_.gate().on_standing([this] {
    gate_told_ = true;
    ring();
  });
}

void Server::watch_gate() {
  if (!gate_told_.exchange(false) && !gate_stands_) return;
  const uint64_t now = now_ns();
  gate_stands_ = true;
  if (now < next_gate_look_ns_) return;
  next_gate_look_ns_ = now + kLookNs;
  const std::vector<GateStanding> standing = gpus_.gate().standing();
  gate_stands_ = !standing.empty();
  std::set<uint64_t> stopped, silent;
  std::map<uint64_t, uint64_t> records;
  {
    std::lock_guard lock(mutex_);
    for (const GateStanding& one : standing) {
      const auto session = sessions_.find(one.behind);
      if (one.behind_what != nullptr || session == sessions_.end()) continue;
      if (process_is_stopped(session->second->client().pid)) stopped.insert(one.behind);
      const uint64_t count = records[one.behind] = session->second->stats().records.load();
      const auto seen = records_seen_.find(one.behind);
      if (seen != records_seen_.end() && seen->second == count) silent.insert(one.behind);
    }
  }
  records_seen_ = std::move(records);
  const std::vector<uint64_t> over = stopped_.look(stopped, now), hung = silent_.look(silent, now);
  for (uint64_t session : over)
    if (options_.stopped_s != 0)
      end_function(session, "was stopped by a signal", options_.stopped_s);
  for (uint64_t session : hung)
    if (options_.hang_s != 0) end_function(session, "sent nothing", options_.hang_s);
}

void Server::end_function(uint64_t id, const char* why, uint32_t seconds) {
  const auto process = processes_.find(id);
  if (process == processes_.end()) return;  // it cannot be watched, so it cannot be ended safely
  std::lock_guard lock(mutex_);
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return;
  const Client& client = session->second->client();
  const long sent = ::syscall(SYS_pidfd_send_signal, process->second.get(), SIGKILL, nullptr, 0);
  log_error(
      "function '%s' (pid %d) %s for %u s while other functions stood for a stream of it that "
      "waits for a value: it is %s",
      client.name.c_str(), client.pid, why, seconds, sent == 0 ? "ended" : "not to be ended");
}

// On the watchdog's thread. Who holds the lock may be what it is to tell about.
bool Server::gather(std::vector<Watchdog::Subject>& subjects) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  for (const auto& [id, session] : sessions_) {
    const Client& client = session->client();
    const std::string who =
        "function '" + client.name + "' (pid " + std::to_string(client.pid) + ")";
    const Session::Doing doing = session->doing();
    subjects.push_back(
        {{2 * id, doing.executing, doing.records},
         who,
         std::string("its thread in the proxy is in ") + wire::call_name(doing.call)});
    const AskedWord& asked = session->copies().asked();
    const std::vector<std::string> kernels = session->in_flight();
    subjects.push_back({{2 * id + 1, asked.outstanding(), asked.seen()},
                        who,
                        "the GPU does not get on with its work" +
                            (kernels.empty() ? "" : "; its last kernel is " + kernels.front())});
  }
  return true;
}

json Server::stalls_status() {
  json list = json::array();
  const uint64_t now = now_ns();
  for (const Watchdog::Standing& one : watchdog_.standing())
    list.push_back(
        {{"who", one.who}, {"what", one.what}, {"for_s", seconds_between(one.since_ns, now)}});
  return list;
}

json Server::gate_status() {
  json list = json::array();
  const uint64_t now = now_ns();
  std::lock_guard lock(mutex_);
  const auto client = [this](uint64_t id) -> const Client* {
    const auto session = sessions_.find(id);
    return session == sessions_.end() ? nullptr : &session->second->client();
  };
  for (const GateStanding& one : gpus_.gate().standing()) {
    const Client* who = client(one.owner);
    const Client* behind = client(one.behind);
    const bool named = one.behind != policies::kGateProxy;
    list.push_back({{"function", who != nullptr ? who->name : "the proxy"},
                    {"pid", who != nullptr ? who->pid : 0},
                    {"call", one.what},
                    {"for_s", seconds_between(one.since_ns, now)},
                    {"in_driver", one.in_driver},
                    {"behind", behind != nullptr ? behind->name
                               : named           ? "a function that is gone"
                                                 : ""},
                    {"behind_pid", behind != nullptr ? behind->pid : 0},
                    {"behind_call", one.behind_what != nullptr ? one.behind_what : ""},
                    {"behind_for_s", named ? seconds_between(one.behind_since_ns, now) : 0.0},
                    {"stopped", behind != nullptr && process_is_stopped(behind->pid)}});
  }
  return list;
}

}  // namespace tube::proxy

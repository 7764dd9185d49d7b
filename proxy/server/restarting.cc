// When a proxy must start anew: a GPU's context is dead, or work that nobody waits for does not
// end. What it hands to its successor.
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/server/server.h"

namespace tube::proxy {

bool Server::has_failed_gpu() const {
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    if (gpus_[gpu].failed.load() != 0) return true;
  }
  return false;
}

// mutex_ is held.
bool Server::nobody_lives() {
  return std::none_of(sessions_.begin(), sessions_.end(),
                      [](const auto& entry) { return entry.second->client_alive(false); });
}

// A session that is still here then belongs to a dead function and is being cleared away.
bool Server::about_to_restart() {
  if (restarting_ || ending_since_ns_ != 0) return true;
  if (!has_failed_gpu() && !work_is_left_) return false;
  std::lock_guard lock(mutex_);
  return nobody_lives();
}

// Only functions that are gone are here, and work of theirs is not over. It may never be: then the
// proxy starts anew (look_for_stuck). A function that joined meanwhile would stand behind that
// work, and would keep the proxy from starting anew.
bool Server::only_unfinished() {
  std::lock_guard lock(mutex_);
  const bool unfinished = std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return !entry.second->work_is_over();
  });
  return unfinished && nobody_lives();
}

Inheritance Server::hand_over() {
  Inheritance heir{-1, -1, options_.owner, options_.inherited.restarts + 1, {}};
  heir.greeting.reserve(greeting_.size());  // from here on nothing fails
  heir.data = listen_fd_.release();
  heir.control = control_fd_.release();
  for (auto& [id, greeting] : greeting_) heir.greeting.push_back(greeting.fd.release());
  greeting_.clear();
  return heir;
}

// From a session's thread. The first report of a death counts, later ones say nothing new; all come
// back when every function can read it.
void Server::gpu_failed(uint32_t gpu, CUresult error, uint64_t reporter) {
  std::lock_guard lock(mutex_);
  if (gpus_[gpu].failed.load() != 0) return;
  Fault fault{.gpu = gpu,
              .workflow = options_.workflow,
              .error = result_text(driver_, error),
              .reporter = "no function",
              .suspects = {}};
  for (const auto& [id, session] : sessions_) {
    const Client& client = session->client();
    if (id == reporter)
      fault.reporter = "function `" + client.name + "` (pid " + std::to_string(client.pid) + ")";
    if (!session->has_used(gpu)) continue;
    if (std::vector<std::string> kernels = session->in_flight(); !kernels.empty())
      fault.suspects.push_back({client.name, client.pid, std::move(kernels), id == reporter});
  }
  std::stable_partition(fault.suspects.begin(), fault.suspects.end(),
                        [](const Suspect& suspect) { return suspect.reported; });
  const std::string text = fault_text(fault);
  log_error("%s", text.c_str());
  for (const auto& [id, session] : sessions_) {
    if (session->has_used(gpu)) session->store_sticky(error, text);
  }
  gpus_[gpu].failed.store(static_cast<uint32_t>(error));
  faults_.push_back(std::move(fault));
  ring();
}

// `--on-fault end`: nobody waits until the functions on a dead context have noticed and left. Their
// calls fail anyway, those on other GPUs of this proxy end with them. They are told so, and have a
// while for it, in which this thread serves on; who comes meanwhile is the next proxy's.
void Server::end_faulted() {
  if (!options_.end_on_fault || restarting_ || !has_failed_gpu()) return;
  constexpr uint64_t kEnd_ns = 2'000'000'000;
  std::lock_guard lock(mutex_);
  if (ending_since_ns_ == 0) {
    log_warn("the functions on the dead context are ended (--on-fault end): the proxy starts anew");
    ending_since_ns_ = now_ns();
    for (const auto& [id, session] : sessions_) tell_to_end(*session, abi::ProxyState::kStopping);
  }
  restarting_ = sessions_.empty() || now_ns() - ending_since_ns_ > kEnd_ns;
}

nlohmann::json Server::faults() {
  nlohmann::json list = nlohmann::json::array();
  std::lock_guard lock(mutex_);
  for (const Fault& fault : faults_) list.push_back(fault_json(fault));
  return list;
}

// SIGHUP is what a closed terminal sends; a daemon's would reload its settings, of which there are
// none.
void Server::told_to_stop() {
  signalfd_siginfo signal{};
  if (read(signal_fd_.get(), &signal, sizeof(signal)) != sizeof(signal)) return;
  log_warn("told to end by signal %u (%s) of process %u", signal.ssi_signo,
           sigabbrev_np(static_cast<int>(signal.ssi_signo)), signal.ssi_pid);
  stopping_ = true;
}

}  // namespace tube::proxy

// When a proxy must start anew: a GPU's context is dead, or work that nobody waits for does not
// end. What it hands to its successor.
#include <algorithm>

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
  if (restarting_) return true;
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
  Inheritance heir{-1, -1, options_.inherited.restarts + 1, {}};
  heir.greeting.reserve(greeting_.size());  // from here on nothing fails
  heir.data = listen_fd_.release();
  heir.control = control_fd_.release();
  for (auto& [id, greeting] : greeting_) heir.greeting.push_back(greeting.fd.release());
  greeting_.clear();
  return heir;
}

// From a session's thread, once per GPU: later reports of the same death say nothing new.
void Server::gpu_failed(uint32_t gpu, CUresult error, uint64_t reporter) {
  uint32_t none = 0;
  if (!gpus_[gpu].failed.compare_exchange_strong(none, static_cast<uint32_t>(error))) return;
  log_error(
      "GPU %u: the shared context is dead: %s; all functions on it end. Last launched kernels:",
      gpu, result_text(driver_, error).c_str());
  std::lock_guard lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    const std::string kernel = session->last_kernel().name();
    if (session->current_gpu() == gpu) {
      log_error("  %s'%s' (pid %d): %s", id == reporter ? "reported by " : "",
                session->client().name.c_str(), session->client().pid,
                kernel.empty() ? "none" : kernel.c_str());
    }
    session->store_sticky(gpu, error);
  }
}

}  // namespace tube::proxy

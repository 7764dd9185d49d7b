#include "proxy/store/store_mover.h"

#include <chrono>
#include <system_error>

#include "base/log.h"
#include "policies/memory/migration.h"
#include "proxy/common/contained.h"

namespace tube::proxy {

void StoreMover::poke() {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  poked_ = true;
  if (thread_.joinable()) {
    changed_.notify_all();
    return;
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warn("no thread for the store (%s): objects do not come back before their turn",
             error.what());
  }
}

void StoreMover::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void StoreMover::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    poked_ = false;
    lock.unlock();
    bool soon = true;  // also when there was no memory for it
    (void)contained("a look after the store", [&] { soon = tend_(); });
    lock.lock();
    const auto asked = [this] { return stopped_ || poked_; };
    if (soon) changed_.wait_for(lock, std::chrono::nanoseconds(policies::kTurnWindowNs), asked);
    else changed_.wait(lock, asked);
  }
}

}  // namespace tube::proxy

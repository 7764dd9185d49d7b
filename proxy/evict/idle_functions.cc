#include "proxy/evict/idle_functions.h"

#include <pthread.h>

#include <chrono>

#include "policies/memory/eviction.h"
#include "proxy/common/contained.h"
#include "proxy/evict/evictor.h"

namespace tube::proxy {

void IdleFunctions::start() {
  if (!evictor_.on() || evictor_.options().idle_ns == 0) return;
  (void)contained("the thread that looks for idle functions", [this] {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "tube-idle");
      while (!contained("the thread that looks for idle functions", [this] { run(); })) {
      }
    });
  });
}

void IdleFunctions::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IdleFunctions::run() {
  const std::chrono::nanoseconds look(policies::idle_look_ns(evictor_.options().idle_ns));
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    evictor_.ask_idle();
    lock.lock();
    (void)changed_.wait_for(lock, look, [this] { return stop_; });
  }
}

}  // namespace tube::proxy

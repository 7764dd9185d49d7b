#include "proxy/evict/idle_functions.h"

#include <chrono>
#include <vector>

#include "policies/memory/eviction.h"
#include "proxy/common/contained_thread.h"
#include "proxy/evict/evictor.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

void IdleFunctions::start() {
  if (!evictor_.on() || evictor_.options().idle_ns == 0) return;
  thread_ =
      contained_thread("tube-idle", "the thread that looks for idle functions", [this] { run(); });
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
  std::vector<uint64_t> bytes;
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) bytes.push_back(gpus_[gpu].total_bytes);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, look, [this] { return stop_; })) {
    lock.unlock();
    evictor_.ask_idle(bytes);
    lock.lock();
  }
}

}  // namespace tube::proxy

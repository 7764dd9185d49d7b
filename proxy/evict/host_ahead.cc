#include "proxy/evict/host_ahead.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "policies/memory/host_ahead.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/contained_thread.h"
#include "proxy/evict/evictor.h"
#include "proxy/gpu/gpus.h"
#include "proxy/memory/host_budget.h"

namespace tube::proxy {
namespace {

constexpr std::chrono::milliseconds kLookAgain{100};  // at what functions hold, while several do

}  // namespace

void HostAhead::start() {
  if (!evictor_.on()) return;
  thread_ =
      contained_thread("tube-ahead", "the thread that makes host memory ahead", [this] { run(); });
}

void HostAhead::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HostAhead::look() {
  {
    std::lock_guard lock(mutex_);
    news_ = true;
  }
  changed_.notify_all();
}

bool HostAhead::stopping() const {
  std::lock_guard lock(mutex_);
  return stop_;
}

HostAhead::Counts HostAhead::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

uint64_t HostAhead::wanted() {
  uint64_t bytes = 0;
  for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
    bytes += policies::host_bytes_ahead(evictor_.outlook(gpu, gpus_[gpu].total_bytes));
  }
  return std::min(bytes, evictor_.arena().most_bytes());
}

void HostAhead::make(uint64_t wanted) {
  while (!stopping() && evictor_.arena().counts().held_bytes < wanted) {
    if (!policies::host_has_ahead(host_.available_bytes(), host_.budget().headroom_bytes,
                                  HostArena::kChunk) ||
        !evictor_.arena().make_ahead(wanted))
      return;
  }
}

void HostAhead::run() {
  (void)driver_.cuCtxSetCurrent(gpus_[0].context);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    news_ = false;
    lock.unlock();
    const bool shared = evictor_.functions() > 1;
    const uint64_t bytes = shared && gpus_[0].failed.load() == 0 ? wanted() : 0;
    lock.lock();
    counts_ = {bytes, false};
    lock.unlock();
    make(bytes);
    lock.lock();
    counts_.settled = true;
    const auto due = [this] { return stop_ || news_; };
    if (shared) (void)changed_.wait_for(lock, kLookAgain, due);
    else changed_.wait(lock, due);
  }
}

}  // namespace tube::proxy

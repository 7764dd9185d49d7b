#include "proxy/copy/copy_engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {
namespace {

constexpr auto kNap = std::chrono::microseconds(20);
constexpr auto kKept = std::chrono::seconds(5);  // the thread, with nothing to do

}  // namespace

CopyEngine::CopyEngine(const Driver& driver, Gpus& gpus, policies::LaneUse use,
                       policies::LinkOrder order)
    : driver_(driver), gpus_(gpus) {
  scratch_.resize(gpus.count());
  for (uint32_t i = 0; i < gpus.count(); ++i) {
    // Without it the lane's use is dear, not wrong.
    if (use == policies::LaneUse::kNever ||
        driver.cuCtxSetCurrent(gpus[i].context) != CUDA_SUCCESS ||
        driver.cuMemAlloc_v2(&scratch_[i], sizeof(uint32_t)) != CUDA_SUCCESS)
      scratch_[i] = 0;
    for (int way = 0; way < 2; ++way)
      links_.push_back(std::make_unique<CopyLink>(
          driver, use, policies::LinkShare::Options{.order = order}, scratch_[i]));
  }
}

CopyEngine::~CopyEngine() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (driver_.cuCtxSetCurrent(gpus_[i / 2].context) != CUDA_SUCCESS) continue;
    links_[i]->close();
    if (i % 2 != 0 && scratch_[i / 2] != 0) (void)driver_.cuMemFree_v2(scratch_[i / 2]);
  }
}

bool CopyEngine::wake() {
  std::lock_guard lock(mutex_);
  ++asked_;
  changed_.notify_all();
  if (runs_) return true;
  if (thread_.joinable()) thread_.join();  // it said so as its last word
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log_warn("no thread for the copy engine (%s): copies go without it", error.what());
    return false;
  }
  runs_ = true;
  return true;
}

// All links once; whether something is in flight.
bool CopyEngine::turns() {
  bool busy = false;
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (links_.size() > 2) (void)driver_.cuCtxSetCurrent(gpus_[i / 2].context);
    CopyLink::Turn turn = links_[i]->turn();
    busy = busy || turn == CopyLink::Turn::kBusy;
    waits_ = waits_ || turn == CopyLink::Turn::kWaits;
  }
  return busy;
}

void CopyEngine::run() {
  (void)driver_.cuCtxSetCurrent(gpus_[0].context);
  uint64_t seen = 0;
  while (true) {
    waits_ = false;
    const bool busy = turns();
    if (busy) {
      sched_yield();
      continue;
    }
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (waits_) {
      changed_.wait_for(lock, kNap);
      continue;
    }
    if (!changed_.wait_for(lock, kKept, [&] { return stop_ || seen != asked_; })) {
      runs_ = false;
      return;
    }
    seen = asked_;
  }
}

}  // namespace tube::proxy

#include "proxy/copy/copy_engine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/clock.h"
#include "base/cpu_pause.h"
#include "base/log.h"
#include "base/timer_slack.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/contained.h"
#include "proxy/copy/known_links.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {
namespace {

constexpr auto kKept = std::chrono::seconds(5);  // the thread, with nothing to do
constexpr uint64_t kLookNs = 50'000'000;         // between looks at other proxies

}  // namespace

CopyEngine::CopyEngine(const Driver& driver, Gpus& gpus, const Options& options, MemoryMap* memory)
    : driver_(driver), gpus_(gpus), use_(options.use), many_cores_(options.many_cores) {
  if (options.use == policies::LaneUse::kNever) return;
  meet(options);
  scratch_.resize(gpus.count());
  for (uint32_t i = 0; i < gpus.count(); ++i) {
    // Without it the lane's use is dear, not wrong.
    if (driver.cuCtxSetCurrent(gpus[i].context) != CUDA_SUCCESS ||
        driver.cuMemAlloc_v2(&scratch_[i], CopyLink::kScratchBytes) != CUDA_SUCCESS)
      scratch_[i] = 0;
    for (const bool up : {false, true}) {  // in the order of number_of()
      LinkCell* cell =
          machine_ != nullptr && i < MachineLinks::kGpus ? &machine_->mine(i, up) : nullptr;
      links_.push_back(std::make_unique<CopyLink>(
          driver, options.use, policies::LinkShare::Options{.order = options.order}, scratch_[i],
          cell));
    }
  }
  if (memory != nullptr && gpus.count() > 1 && options.paths != 1) widen(options, *memory);
  (void)driver.cuCtxSetCurrent(gpus[0].context);
}

void CopyEngine::widen(const Options& options, MemoryMap& memory) {
  WideCopies::Options how;
  policies::HostLinks links = known_links(driver_, gpus_);
  if (options.paths != 0) how = {std::min(options.paths, policies::kMaxHostPaths), true};
  else measure_links(driver_, gpus_, links);
  wide_ = std::make_unique<WideCopies>(
      driver_, gpus_, memory,
      [this](uint32_t gpu, bool to_gpu) -> CopyLink& { return link(gpu, to_gpu); }, links, how);
  for (uint32_t i = 0; i < links_.size(); ++i) links_[i]->widen(wide_.get(), i / 2, i % 2 != 0);
}

void CopyEngine::meet(const Options& options) {
  if (options.links_path.empty()) return;
  std::vector<CUuuid> uuids;
  for (uint32_t i = 0; i < gpus_.count(); ++i) uuids.push_back(gpus_[i].uuid);
  auto machine = MachineLinks::open(options.links_path, options.workflow, uuids, options.weight);
  if (machine.ok()) machine_ = machine.take();
  else
    log_info("copies of other proxies are not taken into account: %s",
             machine.error().message.c_str());
}

// How fast other proxies move bytes over each of our links, since the last look, and what that
// leaves of it.
void CopyEngine::look_at_others() {
  const uint64_t now = now_ns();
  if (now - looked_ns_ < kLookNs) return;
  const uint64_t passed = std::exchange(looked_ns_, now);
  std::vector<std::vector<uint64_t>> rates(links_.size());
  decltype(seen_) seen;
  for (const MachineLinks::Other& other : others()) {
    for (uint32_t gpu = 0; gpu < gpus_.count(); ++gpu) {
      if (std::memcmp(&gpus_[gpu].uuid, &other.gpu, sizeof(other.gpu)) != 0) continue;
      const std::pair link{other.slot, number_of(gpu, other.to_gpu)};
      seen[link] = other.bytes;
      const auto before = seen_.find(link);
      if (before == seen_.end() || before->second > other.bytes) continue;
      const double bytes = static_cast<double>(other.bytes - before->second);
      rates[link.second].push_back(
          static_cast<uint64_t>(bytes * 1e9 / static_cast<double>(now - passed)));
    }
  }
  seen_ = std::move(seen);
  for (uint32_t i = 0; i < links_.size(); ++i) links_[i]->take_stock(rates[i]);
  if (wide_ != nullptr) (void)wide_->tidy();
}

CopyEngine::~CopyEngine() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  wide_.reset();
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (driver_.cuCtxSetCurrent(gpus_[i / 2].context) != CUDA_SUCCESS) continue;
    links_[i]->close();
    if (i % 2 != 0 && scratch_[i / 2] != 0) (void)driver_.cuMemFree_v2(scratch_[i / 2]);
  }
}

bool CopyEngine::wake() {
  bool slept = false;
  return wake(&slept);
}

bool CopyEngine::wake(bool* slept) {
  std::lock_guard lock(mutex_);
  *slept = sleeps_ || !runs_;
  ++asked_;
  changed_.notify_all();
  if (runs_) return true;
  if (thread_.joinable()) thread_.join();  // it said so as its last word
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "tube-lanes");
      const NarrowTimerSlack narrow;  // it naps
      while (!contained("the copy engine", [this] { run(); })) sched_yield();
    });
  } catch (const std::system_error& error) {
    log_warn("no thread for the copy engine (%s): copies go without it", error.what());
    return false;
  }
  runs_ = true;
  return true;
}

// The one in whose context the calling thread is.
std::optional<uint32_t> CopyEngine::current_gpu() const {
  CUcontext current = nullptr;
  if (driver_.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return std::nullopt;
  for (uint32_t i = 0; i < gpus_.count(); ++i)
    if (current == gpus_[i].context) return i;
  return std::nullopt;
}

// Waking a thread takes 50 us where its core has halted, and up to a millisecond: pieces for 0.3 ms
// go meanwhile, as many as a lane has in flight.
bool CopyEngine::send(CopyLink& link) {
  constexpr int kFirstTurns = 2;
  bool slept = false;
  if (!wake(&slept)) return false;
  if (!slept) return true;
  const std::optional<uint32_t> gpu = current_gpu();
  if (!gpu || (&link != &this->link(*gpu, true) && &link != &this->link(*gpu, false))) return true;
  for (int i = 0; i < kFirstTurns; ++i) (void)link.turn();
  return true;
}

void CopyEngine::stand_in() {
  const uint64_t now = now_ns();
  const uint64_t looks = thread_looks_ns_.load(std::memory_order_relaxed);
  if (now < looks + policies::kLaneLeftAloneNs) return;
  const std::optional<uint32_t> gpu = current_gpu();
  if (!gpu) return;
  for (const bool up : {false, true}) {
    CopyLink& lane = link(*gpu, up);
    if (lane.lane_busy() && now >= lane.turned_ns() + policies::kLaneLookNs) (void)lane.turn();
  }
}

// All links once; what the one that needs the next look soonest said. Wide copies come first: what
// they hand to a lane goes at once.
CopyLink::Turn CopyEngine::turns() {
  auto all = CopyLink::Turn::kIdle;
  const auto note = [&](CopyLink::Turn turn) { all = std::max(all, turn); };
  if (wide_ != nullptr) note(wide_->turn());
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (links_.size() > 2) (void)driver_.cuCtxSetCurrent(gpus_[i / 2].context);
    note(links_[i]->turn());
  }
  return all;
}

// Each look asks the driver, in whose locks the sessions' calls would wait. So nothing is asked for
// a moment, unless a session adds something.
void CopyEngine::until_the_next_look(uint64_t asked) {
  const uint64_t end_ns = now_ns() + policies::kLaneLookNs;
  while (now_ns() < end_ns && asked_.load(std::memory_order_relaxed) == asked) cpu_pause();
}

void CopyEngine::run() {
  (void)driver_.cuCtxSetCurrent(gpus_[0].context);
  uint64_t seen = 0;
  while (true) {
    const uint64_t asked_before = asked_.load(std::memory_order_relaxed);
    const CopyLink::Turn turn = turns();
    const uint64_t now = now_ns();
    thread_looks_ns_.store(now, std::memory_order_relaxed);
    if (turn >= CopyLink::Turn::kAhead) {
      look_at_others();
      if (many_cores_) offer_.make(now_ns());
      else sched_yield();
      if (turn == CopyLink::Turn::kAhead && many_cores_) until_the_next_look(asked_before);
      continue;
    }
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (turn == CopyLink::Turn::kWaits) {
      thread_looks_ns_.store(now + policies::kLaneNapNs, std::memory_order_relaxed);
      changed_.wait_for(lock, std::chrono::nanoseconds(policies::kLaneNapNs));
      continue;
    }
    const auto asked = [&] { return stop_ || seen != asked_; };
    sleeps_ = true;
    const bool woken = changed_.wait_for(lock, kKept, asked);
    sleeps_ = false;
    if (!woken) {
      bool stays = false;  // for what has to be given back later
      if (wide_ != nullptr) {
        lock.unlock();
        stays = wide_->tidy();
        lock.lock();
      }
      if (!stays && !asked()) {
        runs_ = false;
        return;
      }
    }
    seen = asked_;
  }
}

}  // namespace tube::proxy

#include "proxy/copy/wide_copies.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {
namespace {

using policies::HostPlan;
using policies::HostWay;

constexpr uint64_t kStockNs = 50'000'000;  // between looks at what owners need
// Relay buffers, unused: making them stops all lanes; but where memory has been short since.
constexpr uint64_t kKeptNs = 60'000'000'000, kKeptShortNs = 5'000'000'000;
constexpr uint32_t kTimedEvery = 8;  // of the copies over one link, where more could be
constexpr HostWay kWays[] = {HostWay::kUp, HostWay::kDown};

policies::Multipath::Options path_options(const WideCopies::Options& options) {
  policies::Multipath::Options made;
  made.most_paths = options.most;
  made.always_most = options.always;
  return made;
}

}  // namespace

WideCopies::WideCopies(const Driver& driver, Gpus& gpus, MemoryMap& memory, PathTools::LinkOf link,
                       const policies::HostLinks& links, const Options& options)
    : gpus_(gpus),
      link_(link),
      options_(options),
      buffers_(memory, gpus.count()),
      tools_(driver, gpus, buffers_, std::move(link)),
      paths_(links, path_options(options)) {}

WideCopies::~WideCopies() = default;

uint32_t WideCopies::link_count() const { return std::min(gpus_.count(), policies::kMaxHostLinks); }

// What the links' owners need at the moment, and which links may help.
void WideCopies::take_stock() {
  struct Seen {
    bool usable;
    uint64_t needed[policies::kHostWays], alone[policies::kHostWays];
  };
  const uint32_t count = link_count();
  Seen seen[policies::kMaxHostLinks];
  for (uint32_t gpu = 0; gpu < count; ++gpu) {
    seen[gpu].usable = gpus_[gpu].failed.load(std::memory_order_relaxed) == 0;
    for (uint32_t way = 0; way < policies::kHostWays; ++way) {
      CopyLink& link = link_(gpu, kWays[way] == HostWay::kUp);
      seen[gpu].needed[way] = link.needed_bytes_per_s();
      seen[gpu].alone[way] = link.measured_bytes_per_s();
    }
  }
  std::lock_guard lock(mutex_);
  uint32_t lending[policies::kHostWays] = {};
  for (uint32_t gpu = 0; gpu < count; ++gpu) {
    paths_.set_usable(gpu, seen[gpu].usable);
    for (uint32_t way = 0; way < policies::kHostWays; ++way) {
      paths_.set_needs(gpu, kWays[way], seen[gpu].needed[way]);
      if (seen[gpu].alone[way] != 0) paths_.set_alone(gpu, kWays[way], seen[gpu].alone[way]);
      if (paths_.may_help(gpu, kWays[way])) lending[way] |= 1u << gpu;
    }
  }
  for (uint32_t way = 0; way < policies::kHostWays; ++way)
    lending_[way].store(lending[way], std::memory_order_relaxed);
}

// False: the copy's own link carries it as ever. Of those copies some are timed, to know what one
// link does where others could help.
bool WideCopies::plan(uint32_t gpu, bool to_gpu, uint64_t bytes, HostPlan* plan) {
  const uint64_t now = now_ns();
  bool old = false;
  {
    std::lock_guard lock(mutex_);
    old = stock_ns_ == 0 || now - stock_ns_ >= kStockNs;
    if (old) stock_ns_ = now;
  }
  if (old) take_stock();
  const HostWay way = to_gpu ? HostWay::kUp : HostWay::kDown;
  uint32_t full = 0;
  for (uint32_t other = 0; other < link_count(); ++other)
    full |= filled(other, way, now) ? 1u << other : 0;
  std::lock_guard lock(mutex_);
  *plan = paths_.plan(gpu, way, bytes, full);
  if (plan->count > 1) return true;
  ++counts_.one_link;
  if (paths_.crossover_bytes(gpu, way, 2, full) == UINT64_MAX) return false;
  return ++over_one_ % kTimedEvery == 0;
}

std::shared_ptr<LaneJob> WideCopies::add(uint32_t gpu, bool to_gpu, LaneCopy& copy) {
  if (copy.bytes < kLeastBytes || copy.done_at != 0 || gpu >= policies::kMaxHostLinks)
    return nullptr;
  if (copy.is_region) {
    std::lock_guard lock(mutex_);
    ++counts_.regions;
    return nullptr;
  }
  HostPlan how;
  if (!plan(gpu, to_gpu, copy.bytes, &how)) return nullptr;
  auto job = std::make_shared<LaneJob>(std::move(copy));
  job->wide_ = this;
  auto wide = std::make_shared<WideCopy>(tools_, how, job, hurry(how));
  std::lock_guard lock(mutex_);
  came_.push_back(std::move(wide));
  fresh_.store(true, std::memory_order_release);
  return job;
}

void WideCopies::take_back(LaneJob& job) {
  const auto is_it = [&](const auto& copy) { return copy->job().get() == &job; };
  std::unique_lock lock(mutex_);
  job.copy_.told = nullptr;
  if (const auto it = std::find_if(came_.begin(), came_.end(), is_it); it != came_.end()) {
    const HostPlan how = (*it)->plan();
    came_.erase(it);
    lock.unlock();
    link_(how.path[0].gpu, how.way == HostWay::kUp).give(std::exchange(job.copy_.before, nullptr));
    job.over_.store(true, std::memory_order_release);
    return;
  }
  const auto it = std::find_if(under_way_.begin(), under_way_.end(), is_it);
  if (it != under_way_.end()) (*it)->cancel();
  changed_.wait(lock, [&] { return job.over(); });
}

bool WideCopies::filled(uint32_t gpu, HostWay way, uint64_t now_ns) const {
  return link_(gpu, way == HostWay::kUp).filled(now_ns, options_.left_ns);
}

// Of either way: host memory is one.
CopyLink::Small WideCopies::small_on(uint32_t gpu) const {
  const CopyLink::Small up = link_(gpu, true).small(), down = link_(gpu, false).small();
  return {up.there || down.there, std::max(up.came_ns, down.came_ns)};
}

bool WideCopies::hurry(const HostPlan& plan) const {
  const uint64_t now = now_ns();
  for (uint32_t i = 1; i < plan.count; ++i) {
    const uint64_t came = small_on(plan.path[i].gpu).came_ns;
    if (came != 0 && now < came + options_.hurry_ns) return true;
  }
  return false;
}

void WideCopies::look_at_small() {
  stood_back_for_ = 0;
  for (uint32_t gpu = 0; gpu < link_count(); ++gpu)
    if (stand_back_[gpu].now(small_on(gpu).there, used_ns_, options_.hold_ns))
      stood_back_for_ |= 1u << gpu;
}

void WideCopies::look_at_large() {
  for (uint32_t way = 0; way < policies::kHostWays; ++way) {
    for (uint32_t gpu = 0; gpu < link_count(); ++gpu) {
      uint64_t& since = filled_since_ns_[way][gpu];
      if (!filled(gpu, kWays[way], used_ns_)) since = 0;
      else if (since == 0) since = used_ns_;
    }
  }
}

WideCopy::Lends WideCopies::lends(const WideCopy& copy, uint32_t gpu) const {
  if ((stood_back_for_ >> gpu & 1) != 0) return WideCopy::Lends::kLater;
  const auto way = static_cast<uint32_t>(copy.plan().way);
  const bool lends = (lending_[way].load(std::memory_order_relaxed) >> gpu & 1) != 0;
  const uint64_t since = filled_since_ns_[way][gpu];
  if (!lends || (since != 0 && used_ns_ - since >= options_.filled_ns)) return WideCopy::Lends::kNo;
  return since != 0 ? WideCopy::Lends::kFilled : WideCopy::Lends::kYes;
}

CopyLink::Turn WideCopies::turn() {
  if (fresh_.exchange(false, std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    under_way_.splice(under_way_.end(), came_);
  }
  if (under_way_.empty()) return CopyLink::Turn::kIdle;
  used_ns_ = now_ns();
  look_at_small();
  look_at_large();
  ahead_.clear();
  auto all = CopyLink::Turn::kWaits;
  for (auto it = under_way_.begin(); it != under_way_.end();) {
    const std::shared_ptr<WideCopy> copy = *it++;  // over() takes it out of the list
    const auto lends = [&](uint32_t gpu) { return this->lends(*copy, gpu); };
    auto ahead = WideCopy::Ahead::kNothing;
    for (const WideCopy* first : ahead_) {
      if (!first->same_queue(*copy)) continue;
      ahead = first->has_more() ? WideCopy::Ahead::kPieces : WideCopy::Ahead::kLastPieces;
      if (ahead == WideCopy::Ahead::kPieces) break;
    }
    const WideCopy::State state = copy->turn(lends, ahead);
    if (state != WideCopy::State::kWaits) all = CopyLink::Turn::kBusy;
    if (state == WideCopy::State::kOver) over(copy);
    else if (state == WideCopy::State::kBusy && ahead != WideCopy::Ahead::kPieces)
      ahead_.push_back(copy.get());
  }
  return all;
}

void WideCopies::over(const std::shared_ptr<WideCopy>& copy) {
  LaneJob& job = *copy->job();
  std::lock_guard lock(mutex_);
  under_way_.remove(copy);
  // A queue's later copies wait for the links, not for their bytes: learnt from, they would make
  // several links look slow.
  if (copy->took_ns() != 0) {
    paths_.took(copy->plan(), copy->bytes(), copy->took_ns());
    ++counts_.timed;
  }
  if (copy->plan().count > 1) {
    ++counts_.copies;
    counts_.bytes += copy->bytes();
    counts_.relayed_bytes += copy->relayed_bytes();
  }
  counts_.failed_paths += copy->failed_paths();
  counts_.taken_paths += copy->taken_paths();
  counts_.held += copy->held() ? 1 : 0;
  job.error_ = copy->error();
  const auto told = std::exchange(job.copy_.told, nullptr);
  // Before the session may hear of it, as in CopyLink::submitted().
  job.over_.store(true, std::memory_order_release);
  if (told) told();
  changed_.notify_all();
}

bool WideCopies::tidy() {
  if (!under_way_.empty()) take_stock();
  else if (buffers_.held_bytes() != 0 &&
           now_ns() - used_ns_ >= (buffers_.wanted_back() ? kKeptShortNs : kKeptNs))
    buffers_.drop_idle();
  return buffers_.held_bytes() != 0;
}

WideCopies::Counts WideCopies::counts() const {
  std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.relay_bytes = buffers_.held_bytes();
  return counts;
}

}  // namespace tube::proxy

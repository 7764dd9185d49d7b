#include "proxy/gpu/context_gate.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <set>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope_guard.h"
#include "base/unique_fd.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/contained.h"
#include "proxy/gpu/capture.h"

namespace tube::proxy {

using policies::GateCall;
using policies::GateDecision;
using policies::GateGpus;
using policies::GateVerdict;
using policies::GateWait;

namespace {

constexpr uint32_t kPatienceMs = 10'000;
constexpr uint32_t kStoppedPatienceMs =
    70'000;  // a stopped program is ended before (gate_watch.cc)
constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kSayNs = 1'000'000'000;  // a session that has stood for so long is named
constexpr uint64_t kLookNs = 100'000'000;   // between two looks which programs are stopped
constexpr long kFirstNap = 20'000;          // nanoseconds between two looks at the waits
constexpr long kLongestNap = 1'000'000;
constexpr size_t kFewWaits = 16;  // so many may lie there unlooked at, whether they ended or not
constexpr const char* kStreamWait = "a stream's wait";

constexpr GateGpus only(CUdevice device) { return GateGpus{1} << device; }

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

template <class Do>
void each_gpu(GateGpus gpus, Do act) {
  for (; gpus != 0; gpus &= gpus - 1) act(static_cast<size_t>(std::countr_zero(gpus)));
}

}  // namespace

bool process_is_stopped(int pid) {
  if (pid <= 0) return false;
  char path[32], text[512];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.valid() ? ::read(file.get(), text, sizeof(text) - 1) : -1;
  if (got <= 0) return false;
  text[got] = '\0';
  const char* name_end = std::strrchr(text, ')');  // the name may hold anything
  return name_end != nullptr && std::strncmp(name_end, ") T", 3) == 0;
}

ContextGate::ContextGate(const Driver& driver)
    : driver_(&driver),
      patience_ms_(kPatienceMs),
      stopped_ms_(kStoppedPatienceMs),
      look_at_(kFewWaits) {}

ContextGate::~ContextGate() = default;

const Driver& ContextGate::keep_unwrapped(const Driver& table) {
  kept_ = std::make_unique<const Driver>(table);
  driver_ = kept_.get();
  return *driver_;
}

CUresult ContextGate::prepare(CUdevice device, CUcontext context) {
  const CUresult error = deferred_.prepare(*driver_, device, context);
  reserve_.prepare(*driver_, context);
  return error;
}

void ContextGate::joined(uint64_t owner, std::string name, int pid) {
  std::lock_guard lock(mutex_);
  owners_.insert_or_assign(owner, Owner{std::move(name), pid});
}

void ContextGate::left(uint64_t owner) {
  std::lock_guard lock(mutex_);
  owners_.erase(owner);
}

void ContextGate::on_standing(std::function<void()> tell) {
  std::lock_guard lock(mutex_);
  on_standing_ = std::move(tell);
}

std::optional<CUdevice> ContextGate::current_device() const {
  CUdevice device = 0;
  return driver_->cuCtxGetDevice(&device) == CUDA_SUCCESS ? std::optional(device) : std::nullopt;
}

CUcontext ContextGate::current_context() const {
  CUcontext context = nullptr;
  return driver_->cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

GateGpus ContextGate::all_gpus() const {
  int count = 0;
  return driver_->cuDeviceGetCount(&count) == CUDA_SUCCESS ? only(count) - 1 : 0;
}

// ---- a thread inside

// A gate that the thread has passed already is not passed again: what lies inside goes straight on.
class ContextGate::Pass {
 public:
  Pass(ContextGate& gate, GateCaller& caller, const char* what, When when,
       GateSpan span = GateSpan::kItsGpus, WaitsFor waits = WaitsFor::kAllThatRuns)
      : gate_(gate), caller_(caller) {
    const std::optional<CUdevice> device = gate.current_device();
    if (!device) return;
    const GateGpus wanted =
        only(*device) | (span == GateSpan::kAllGpus ? gate.all_gpus() : caller.gpus_);
    const GateGpus missing = wanted & ~caller.inside_;
    if (missing == 0) return;
    const bool patient = when == When::kWait || when == When::kFirstUse;
    const uint64_t now = now_ns();
    entry_.call = {caller.owner, missing, now, patient ? gate.patience_ms_ * kNsPerMs : 0,
                   gate.stopped_ms_ * kNsPerMs};
    entry_.standing.owner = caller.owner;
    entry_.standing.what = what;
    entry_.standing.since_ns = now;
    entry_.bounded = when == When::kFirstUse || std::popcount(wanted) > 1;
    if (when == When::kNowOrNever) refused_ = !gate.try_begin(entry_);
    else gate.begin(entry_);
    if (refused_) return;
    passed_ = missing;
    const bool outermost = caller.inside_ == 0;
    caller.inside_ |= missing;
    if (when == When::kWait) caller.patient_ |= missing;
    if (!patient || waits != WaitsFor::kAllThatRuns || !outermost) return;
    ScopeGuard leave_it([this] { leave(); });  // no destructor after a throw from here
    quiet_lock_ = std::shared_lock(gate.quiet_mutex_);
    if (gate.quiet_ != nullptr) quiet_ = gate.quiet_->quiet(caller.owner, *device);
    leave_it.dismiss();
  }
  ~Pass() { leave(); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  bool refused() const { return refused_; }

 private:
  void leave() {
    quiet_ = nullptr;
    if (passed_ == 0) return;
    caller_.inside_ &= ~passed_;
    caller_.patient_ &= ~passed_;
    gate_.end(entry_);
  }

  ContextGate& gate_;
  GateCaller& caller_;
  Entry entry_;
  std::shared_lock<std::shared_mutex> quiet_lock_;
  std::unique_ptr<QuietMoments::Moment> quiet_;
  GateGpus passed_ = 0;  // by this and no other of the thread
  bool refused_ = false;
};

CUresult ContextGate::context_wide(GateCaller& caller, const char* what, const Call& call,
                                   GateSpan span, WaitsFor waits) {
  const Pass pass(*this, caller, what, When::kWait, span, waits);
  return call();
}

CUresult ContextGate::context_wide_deferring(GateCaller& caller, const char* what,
                                             const Call& call) {
  const Pass pass(*this, caller, what, When::kWait);
  const CUresult error = call();
  const std::optional<CUdevice> device = current_device();
  if (error == CUDA_SUCCESS && device) deferred_.run(*driver_, *device);
  return error;
}

CUresult ContextGate::launch(GateCaller& caller, LaunchGate how, const Call& call) {
  if (how == LaunchGate::kNone) return call();
  const bool first = how == LaunchGate::kFirstUse;
  const Pass pass(
      *this, caller,
      first ? "the first launch that prints or allocates" : "a launch that needs more local memory",
      first ? When::kFirstUse : When::kWait);
  return call();
}

bool ContextGate::if_open(GateCaller& caller, const std::function<void()>& call, GateSpan span) {
  const Pass pass(*this, caller, "what can wait", When::kNowOrNever, span);
  if (!pass.refused()) call();
  return !pass.refused();
}

void ContextGate::beside_waits(GateCaller& caller, const char* what,
                               const std::function<void()>& call) {
  const Pass pass(*this, caller, what, When::kNow, GateSpan::kAllGpus);
  call();
}

bool ContextGate::inside(const GateCaller& caller, CUdevice device) const {
  return (caller.inside_ & only(device)) != 0;
}

bool ContextGate::open_inside(const GateCaller& caller, CUdevice device) {
  if ((caller.patient_ & only(device)) == 0) return false;
  std::lock_guard lock(mutex_);
  forget_ended();
  const bool submitting = traffic_[static_cast<size_t>(device)].waits_submitting != 0;
  return policies::admit_call_now({.gpus = only(device)}, waits_, submitting);
}

// ---- calls

// mutex_ is held, here and below where it is not taken. One call more in the driver, or one less.
void ContextGate::count(const Entry& entry, int one) {
  each_gpu(entry.call.gpus, [&](size_t gpu) {
    policies::GateTraffic& traffic = traffic_[gpu];
    if (entry.bounded && traffic.bounded_calls == 0) traffic.bounded_since_ns = now_ns();
    uint32_t& calls = entry.bounded ? traffic.bounded_calls : traffic.calls;
    calls += static_cast<uint32_t>(one);
  });
}

bool ContextGate::waits_on_their_way(GateGpus gpus) const {
  bool any = false;
  each_gpu(gpus, [&](size_t gpu) {
    any |= traffic_[gpu].waits_standing != 0 || traffic_[gpu].waits_submitting != 0;
  });
  return any;
}

void ContextGate::keep_spare(const Mark& mark) {
  if (!contained("a spare event", [&] { spares_[mark.context].push_back(mark.event); }))
    driver_->cuEventDestroy_v2(mark.event);
}

// A dead context's events answer an error: nothing waits there any more.
void ContextGate::forget_ended() {
  size_t kept = 0;
  for (size_t i = 0; i < waits_.size(); ++i) {
    if (driver_->cuEventQuery(marks_[i].event) == CUDA_ERROR_NOT_READY) {
      waits_[kept] = waits_[i];
      marks_[kept++] = marks_[i];
    } else {
      keep_spare(marks_[i]);
    }
  }
  waits_.resize(kept);
  marks_.resize(kept);
}

// Of the programs whose waits matter to the call. The lock is open meanwhile.
void ContextGate::look_for_stopped(std::unique_lock<std::mutex>& lock, const GateCall& call) {
  std::map<uint64_t, int> pids;
  for (const GateWait& wait : waits_) {
    if (!policies::gate_wait_matters(call, wait)) continue;
    const auto owner = owners_.find(wait.owner);
    if (owner != owners_.end()) pids[wait.owner] = owner->second.pid;
  }
  lock.unlock();
  std::set<uint64_t> stopped;
  for (const auto& [owner, pid] : pids) {
    if (process_is_stopped(pid)) stopped.insert(owner);
  }
  lock.lock();
  for (GateWait& wait : waits_) {
    if (pids.contains(wait.owner)) wait.stopped = stopped.contains(wait.owner);
  }
}

std::string ContextGate::name_of(uint64_t owner) const {
  if (owner == policies::kGateProxy) return "the proxy";
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return "a function that is gone";
  return "function '" + found->second.name + "' (pid " + std::to_string(found->second.pid) + ")";
}

// The lock is open meanwhile.
void ContextGate::say(std::unique_lock<std::mutex>& lock, const GateStanding& standing) {
  const std::string who = name_of(standing.owner);
  std::string why = "some stream is about to wait for its program";
  if (standing.behind_what != nullptr) {
    why = name_of(standing.behind) + " is in the driver with " + standing.behind_what;
  } else if (standing.behind != policies::kGateProxy) {
    why = "a stream of " + name_of(standing.behind) + " waits for its program";
  }
  const double stood = seconds(now_ns() - standing.since_ns);
  const auto on_standing = on_standing_;
  lock.unlock();
  if (standing.in_driver) {
    log_warn("%s goes into the driver with %s after %.1f s although %s: launches stand meanwhile",
             who.c_str(), standing.what, stood, why.c_str());
  } else {
    log_warn("%s has stood at the context gate with %s for %.1f s: %s", who.c_str(), standing.what,
             stood, why.c_str());
  }
  if (on_standing) on_standing();
  lock.lock();
}

void ContextGate::begin(Entry& entry) {
  std::unique_lock lock(mutex_);
  calls_.push_back(&entry);
  ScopeGuard leave([&] {
    if (!lock.owns_lock()) lock.lock();
    remove(entry);
  });
  stand_before(lock, entry);
  leave.dismiss();
}

void ContextGate::remove(Entry& entry) {
  if (entry.standing.in_driver) count(entry, -1);
  calls_.remove(&entry);
}

// Until the call may go into the driver.
void ContextGate::stand_before(std::unique_lock<std::mutex>& lock, Entry& entry) {
  uint64_t looked_ns = 0;
  for (long nap = kFirstNap;; nap = std::min(nap * 2, kLongestNap)) {
    forget_ended();
    const auto decide = [&] {
      return policies::admit_call(entry.call, waits_, waits_on_their_way(entry.call.gpus),
                                  now_ns());
    };
    GateDecision decision = decide();
    const bool stopped = decision.in_the_way != nullptr && decision.in_the_way->stopped;
    if ((stopped || decision.verdict == GateVerdict::kBeginBesideWaits) &&
        now_ns() - looked_ns >= kLookNs) {
      looked_ns = now_ns();
      look_for_stopped(lock, entry.call);
      decision = decide();
    }
    GateStanding& standing = entry.standing;
    standing.behind =
        decision.in_the_way != nullptr ? decision.in_the_way->owner : policies::kGateProxy;
    standing.behind_since_ns = decision.in_the_way != nullptr ? decision.in_the_way->since_ns : 0;
    if (decision.verdict != GateVerdict::kStand) {
      count(entry, 1);
      standing.in_driver = true;
      if (decision.verdict == GateVerdict::kBeginBesideWaits) say(lock, standing);
      return;
    }
    if (!entry.told && now_ns() - standing.since_ns >= kSayNs) {
      entry.told = true;
      say(lock, standing);
    }
    lock.unlock();
    const timespec pause{0, nap};
    nanosleep(&pause, nullptr);
    lock.lock();
  }
}

bool ContextGate::try_begin(Entry& entry) {
  std::lock_guard lock(mutex_);
  forget_ended();
  if (!policies::admit_call_now(entry.call, waits_, waits_on_their_way(entry.call.gpus)))
    return false;
  calls_.push_back(&entry);
  count(entry, 1);
  entry.standing.in_driver = true;
  return true;
}

void ContextGate::end(Entry& entry) {
  {
    std::lock_guard lock(mutex_);
    remove(entry);
  }
  changed_.notify_all();
}

// ---- waits

void ContextGate::name_call_inside(CUdevice device, GateStanding& standing) const {
  for (const Entry* entry : calls_) {
    if (!entry->standing.in_driver || (entry->call.gpus & only(device)) == 0) continue;
    standing.behind = entry->standing.owner;
    standing.behind_what = entry->standing.what;
    standing.behind_since_ns = entry->standing.since_ns;
    return;
  }
}

// Behind the calls in the driver. The wait counts as standing.
void ContextGate::stand(std::unique_lock<std::mutex>& lock, const GateCaller& caller,
                        CUdevice device) {
  const uint64_t since = now_ns();
  const auto at = standing_waits_.insert(
      standing_waits_.end(), {.owner = caller.owner, .what = kStreamWait, .since_ns = since});
  const ScopeGuard over([&] {
    if (!lock.owns_lock()) lock.lock();
    standing_waits_.erase(at);
  });
  const auto& traffic = traffic_[static_cast<size_t>(device)];
  bool told = false;
  while (true) {
    uint64_t until_ns = 0;
    if (policies::admit_wait(traffic, patience_ms_ * kNsPerMs, &until_ns, now_ns())) break;
    name_call_inside(device, *at);
    if (!told && now_ns() - since >= kSayNs) {
      told = true;
      say(lock, GateStanding(*at));
      continue;
    }
    if (!told) until_ns = std::min(until_ns, since + kSayNs);
    if (until_ns == UINT64_MAX) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(
          lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until_ns)));
    }
  }
}

void ContextGate::begin_wait(const GateCaller& caller, CUdevice device) {
  std::unique_lock lock(mutex_);
  policies::GateTraffic& traffic = traffic_[static_cast<size_t>(device)];
  if (!inside(caller, device) && traffic.calls + traffic.bounded_calls != 0) {
    ++traffic.waits_standing;
    const ScopeGuard over(
        [&] { --traffic.waits_standing; });  // with the lock: stand() leaves it so
    stand(lock, caller, device);
  }
  ++traffic.waits_submitting;
}

bool ContextGate::waits_for(uint64_t owner, CUdevice device, uint64_t until_ns) {
  std::lock_guard lock(mutex_);
  if (waits_.empty()) return false;
  forget_ended();
  return std::any_of(waits_.begin(), waits_.end(), [&](const GateWait& wait) {
    return wait.owner == owner && (wait.gpus & only(device)) != 0 && wait.since_ns <= until_ns;
  });
}

bool ContextGate::wait_has_room(uint64_t owner, CUdevice device, policies::WaitRoom room) {
  std::lock_guard lock(mutex_);
  if (waits_.size() < std::min(room.one, room.all)) return true;
  forget_ended();
  const bool alone = owners_.size() <= 1;
  return policies::wait_has_room(waits_, only(device), owner, alone, room);
}

// `event`: nullptr when nothing waits after all.
void ContextGate::end_wait(const GateCaller& caller, CUevent event, CUcontext context,
                           CUdevice device) {
  std::lock_guard lock(mutex_);
  --traffic_[static_cast<size_t>(device)].waits_submitting;
  if (event == nullptr) return;
  if (!contained("the mark of a wait", [&] {
        const size_t room = waits_.size() + 1;  // in both, or in none
        if (room > waits_.capacity()) waits_.reserve(2 * room);
        if (room > marks_.capacity()) marks_.reserve(2 * room);
        waits_.push_back({caller.owner, only(device), now_ns()});
        marks_.push_back({event, context});
      }))
    driver_->cuEventDestroy_v2(event);
}

// One of the current context, which is `context`: events and streams of different contexts do not
// go together.
CUevent ContextGate::spare_event(CUcontext context) {
  {
    std::lock_guard lock(mutex_);
    // A program may wait in every step and never make a call that would look: no more events than
    // twice the waits there are.
    if (waits_.size() >= look_at_) {
      forget_ended();
      look_at_ = 2 * waits_.size() + kFewWaits;
    }
    if (std::vector<CUevent>& spares = spares_[context]; !spares.empty()) {
      const CUevent event = spares.back();
      spares.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  return driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

// The event behind what was just submitted; nullptr when it will not run by itself.
CUevent ContextGate::mark(CUstream stream, CUcontext context) {
  if (is_capturing(*driver_, stream)) return nullptr;
  const CUevent event = spare_event(context);
  if (event != nullptr && driver_->cuEventRecord(event, stream) != CUDA_SUCCESS) {
    driver_->cuEventDestroy_v2(event);
    return nullptr;
  }
  return event;
}

CUresult ContextGate::submit_wait(GateCaller& caller, WaitOwner owner, CUstream stream,
                                  const Call& submit) {
  if (owner == WaitOwner::kProxy) return submit();
  const std::optional<CUdevice> device = current_device();
  if (!device) return submit();
  begin_wait(caller, *device);
  const CUresult error = submit();
  const CUcontext context = current_context();
  CUevent event = nullptr;
  if (error == CUDA_SUCCESS)
    (void)contained("the mark of a wait", [&] { event = mark(stream, context); });
  end_wait(caller, event, context, *device);
  return error;
}

void ContextGate::forget_context(CUcontext context) {
  std::lock_guard lock(mutex_);
  size_t kept = 0;
  for (size_t i = 0; i < waits_.size(); ++i) {
    if (marks_[i].context == context) {
      driver_->cuEventDestroy_v2(marks_[i].event);
      continue;
    }
    waits_[kept] = waits_[i];
    marks_[kept++] = marks_[i];
  }
  waits_.resize(kept);
  marks_.resize(kept);
  const auto spares = spares_.find(context);
  if (spares == spares_.end()) return;
  for (CUevent event : spares->second) driver_->cuEventDestroy_v2(event);
  spares_.erase(spares);
}

// ---- looking

std::vector<GateStanding> ContextGate::standing() {
  std::lock_guard lock(mutex_);
  if (!calls_.empty()) forget_ended();
  std::vector<GateStanding> list;
  for (const Entry* entry : calls_) {
    GateStanding standing = entry->standing;
    const GateWait* oldest = nullptr;
    for (const GateWait& wait : waits_) {
      if (policies::gate_wait_matters(entry->call, wait) &&
          (oldest == nullptr || wait.since_ns < oldest->since_ns))
        oldest = &wait;
    }
    if (oldest == nullptr && standing.in_driver) continue;
    standing.behind = oldest != nullptr ? oldest->owner : policies::kGateProxy;
    standing.behind_since_ns = oldest != nullptr ? oldest->since_ns : 0;
    list.push_back(standing);
  }
  list.insert(list.end(), standing_waits_.begin(), standing_waits_.end());
  return list;
}

}  // namespace tube::proxy

#include "proxy/launch/launch_turns.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "policies/gate_admission.h"
#include "protocol/driver_table.gen.h"
#include "proxy/copy/machine_links.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {
namespace {

constexpr uint64_t kActiveNs = 1'000'000'000;  // so long after its last record a function counts
constexpr uint64_t kCountNs = 100'000;         // between looks at the counters
constexpr uint64_t kProxiesNs = 1'000'000;     // between looks at other proxies
// So long behind its last long launch another proxy wants the GPU still: it may be about to look.
constexpr uint64_t kWantsNs = 10'000'000;
// One with a launch in flight may look only when that has ended. When that is long ago, its end was
// not seen.
constexpr uint64_t kRunsNs = 100'000'000;
// What a quiet moment is taken to last: a load of code takes one or two milliseconds, and after
// four times as long it keeps nobody back.
constexpr uint64_t kQuietNs = 5'000'000;

}  // namespace

LaunchTurns::LaunchTurns(const Driver& driver, Gpus& gpus, const Options& options)
    : driver_(driver), gpus_(gpus), options_(options) {
  for (uint32_t i = 0; i < gpus.count(); ++i) {
    auto gpu = std::make_unique<OneGpu>(
        policies::LaunchAdmission::Options{.order = options.order,
                                           .long_ns = options.long_ns,
                                           .longest_hold_ns = options.longest_hold_ns});
    int sms = 0;
    if (driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                    gpus[i].device) == CUDA_SUCCESS &&
        sms > 0)
      gpu->sms = static_cast<uint64_t>(sms);
    gpu->bit = uint64_t{1} << (i & 63);
    gpu->index = i;
    gpus_of_.push_back(std::move(gpu));
  }
  note_threshold();
}

LaunchTurns::~LaunchTurns() {
  for (uint32_t i = 0; i < gpus_of_.size(); ++i) {
    OneGpu& gpu = *gpus_of_[i];
    gpu.turns.clear();
    if (gpu.spare.empty() || driver_.cuCtxSetCurrent(gpus_[i].context) != CUDA_SUCCESS) continue;
    for (const TimedWork& work : gpu.spare) {
      (void)driver_.cuEventDestroy_v2(work.begin);
      (void)driver_.cuEventDestroy_v2(work.end);
    }
  }
}

void LaunchTurns::note_threshold() {
  if (gpus_of_.empty()) return;
  std::lock_guard lock(gpus_of_[0]->mutex);
  long_ns_.store(gpus_of_[0]->admission.long_ns(), std::memory_order_relaxed);
}

void LaunchTurns::join(const LaunchUser& user) {
  {
    std::lock_guard lock(users_mutex_);
    users_.push_back({user, user.records->load(std::memory_order_relaxed)});
  }
  if (user.slo_ns == 0) return;
  for (auto& gpu : gpus_of_) {
    std::lock_guard lock(gpu->mutex);
    gpu->admission.needs(user.session, user.slo_ns);
  }
  note_threshold();
}

void LaunchTurns::set_apart(uint64_t session, uint32_t gpu, bool apart) {
  const uint64_t bit = gpus_of_[gpu]->bit;
  std::lock_guard lock(users_mutex_);
  for (User& user : users_)
    if (user.session == session) user.apart = apart ? user.apart | bit : user.apart & ~bit;
}

void LaunchTurns::leave(uint64_t session) {
  {
    std::lock_guard lock(users_mutex_);
    std::erase_if(users_, [&](const User& user) { return user.session == session; });
  }
  for (auto& gpu : gpus_of_) {
    std::lock_guard lock(gpu->mutex);
    gpu->admission.forget(session);
    // What is in flight goes on, and its end is seen as ever; nobody is told of its own turns.
    std::erase_if(gpu->turns, [&](const auto& turn) {
      const bool gone = turn->function_ == session && turn->work_ == nullptr && !turn->quiet_;
      if (gone) gpu->admission.remove(turn->number_);
      return gone;
    });
    go_on(*gpu, now_ns(), true);
  }
  note_threshold();
}

// Whether another function than this one did something lately. A look at a counter of each, by long
// launches only.
bool LaunchTurns::shared(uint64_t session, uint32_t gpu, uint64_t now) {
  std::lock_guard lock(users_mutex_);
  const bool count = now - counted_ns_ >= kCountNs;
  if (count) counted_ns_ = now;
  bool others = false;
  for (User& user : users_) {
    if (count) {
      const uint64_t records = user.records->load(std::memory_order_relaxed);
      if (std::exchange(user.seen, records) != records) user.active_ns = now;
    }
    others = others || ((user.apart & gpus_of_[gpu]->bit) == 0 && user.session != session &&
                        user.active_ns != 0 && now - user.active_ns < kActiveNs);
  }
  return others;
}

bool LaunchTurns::knows(uint64_t session) {
  std::lock_guard lock(users_mutex_);
  return std::any_of(users_.begin(), users_.end(),
                     [&](const User& user) { return user.session == session; });
}

// Of functions that have nothing long on the GPU. With its lock.
policies::ShortWork LaunchTurns::short_work(const OneGpu& gpu, uint64_t now) {
  std::lock_guard lock(users_mutex_);
  policies::ShortWork work;
  for (const User& user : users_) {
    if ((user.apart & gpu.bit) != 0 || gpu.admission.has(user.session)) continue;
    // In the order in which a step is expected, begins and asks for its end: one that does so
    // meanwhile is seen by the next look.
    uint64_t next_ns = 0, until_ns = 0;
    const bool expected = user.steps->next(now, &next_ns, &until_ns);
    work.outstanding = work.outstanding || user.steps->begins(now) || user.word->outstanding();
    if (!expected) continue;
    if (work.next_ns != 0 && work.next_ns <= next_ns) continue;
    work.next_ns = next_ns;
    work.until_ns = until_ns;
  }
  return work;
}

std::shared_ptr<LaunchTurn> LaunchTurns::ask(uint32_t gpu, const policies::LongLaunch& launch,
                                             std::function<void()> told) {
  auto turn = std::make_shared<LaunchTurn>();
  turn->gpu_ = gpu;
  turn->number_ = made_.fetch_add(1, std::memory_order_relaxed) + 1;
  turn->function_ = launch.function;
  turn->quiet_ = launch.quiet;
  turn->told_ = std::move(told);
  const uint64_t now = now_ns();
  bool shared = this->shared(launch.function, gpu, now);
  OneGpu& one = *gpus_of_[gpu];
  std::lock_guard lock(one.mutex);
  look_at_proxies(one, now);
  shared = shared || one.admission.others(launch.function) || one.others_want;
  go_on(one, now, shared);
  if (shared && !one.admission.waits()) one.admission.short_work(short_work(one, now));
  one.turns.push_back(turn);
  policies::LongLaunch asked = launch;
  asked.number = turn->number_;
  turn->granted_.store(one.admission.ask(asked, now, shared), std::memory_order_release);
  tell_proxies(one);
  return turn;
}

// One quiet moment: a turn that is waited for, and given back at the end.
class LaunchTurns::QuietTurn final : public Moment {
 public:
  QuietTurn(LaunchTurns& turns, std::shared_ptr<LaunchTurn> turn)
      : turns_(turns), turn_(std::move(turn)) {}
  ~QuietTurn() override {
    OneGpu& gpu = *turns_.gpus_of_[turn_->gpu_];
    std::lock_guard lock(gpu.mutex);
    gpu.admission.quiet_ended(turn_->number_, now_ns());
    std::erase(gpu.turns, turn_);
    turns_.go_on(gpu, now_ns(), true);
  }
  void wait() {
    constexpr timespec kPause{0, 50'000};
    while (!turn_->granted()) {
      (void)turns_.look(*turn_);
      if (!turn_->granted()) nanosleep(&kPause, nullptr);
    }
  }

 private:
  LaunchTurns& turns_;
  const std::shared_ptr<LaunchTurn> turn_;
};

std::unique_ptr<QuietMoments::Moment> LaunchTurns::quiet(uint64_t owner, CUdevice device) {
  if (order() == policies::LaunchOrder::kNative) return nullptr;
  for (uint32_t gpu = 0; gpu < gpus_of_.size(); ++gpu) {
    if (gpus_[gpu].device != device) continue;
    const uint64_t function = knows(owner) ? owner : policies::kGateProxy;
    auto turn = std::make_unique<QuietTurn>(
        *this, ask(gpu, {.function = function, .expected_ns = kQuietNs, .quiet = true}, nullptr));
    turn->wait();
    return turn;
  }
  return nullptr;
}

std::vector<policies::LaunchSeen> LaunchTurns::seen(uint32_t gpu) {
  std::lock_guard lock(gpus_of_[gpu]->mutex);
  return gpus_of_[gpu]->admission.seen();
}

void LaunchTurns::started(LaunchTurn& turn, std::shared_ptr<TimedWork> work) {
  std::lock_guard lock(gpus_of_[turn.gpu_]->mutex);
  turn.work_ = std::move(work);
}

void LaunchTurns::drop(LaunchTurn& turn) {
  OneGpu& gpu = *gpus_of_[turn.gpu_];
  std::lock_guard lock(gpu.mutex);
  gpu.admission.remove(turn.number_);
  std::erase_if(gpu.turns, [&](const auto& each) { return each.get() == &turn; });
  go_on(gpu, now_ns(), true);
}

bool LaunchTurns::look(LaunchTurn& turn) {
  const uint64_t now = now_ns();
  const bool shared = this->shared(turn.function_, turn.gpu_, now);
  OneGpu& gpu = *gpus_of_[turn.gpu_];
  std::lock_guard lock(gpu.mutex);
  look_at_proxies(gpu, now);
  go_on(gpu, now, shared || gpu.admission.others(turn.function_) || gpu.others_want);
  return gpu.admission.first() == turn.number_;
}

bool LaunchTurns::beside(uint32_t gpu, uint64_t session) {
  std::lock_guard lock(gpus_of_[gpu]->mutex);
  return gpus_of_[gpu]->admission.beside(session);
}

bool LaunchTurns::others(uint32_t gpu, uint64_t session) {
  std::lock_guard lock(gpus_of_[gpu]->mutex);
  return gpus_of_[gpu]->admission.others(session);
}

// With the GPU's lock: how many long launches are in flight.
void LaunchTurns::tell_proxies(OneGpu& gpu) {
  if (machine_ == nullptr || gpu.index >= MachineLinks::kGpus) return;
  gpu.running =
      static_cast<uint64_t>(std::count_if(gpu.turns.begin(), gpu.turns.end(), [](const auto& turn) {
        return !turn->quiet_ && turn->granted();
      }));
  machine_->my_time(gpu.index).running.store(gpu.running, std::memory_order_relaxed);
}

// With the GPU's lock, for a long launch that is there: whether this proxy is ahead of others that
// want the GPU, too.
void LaunchTurns::look_at_proxies(OneGpu& gpu, uint64_t now) {
  if (machine_ == nullptr || gpu.index >= MachineLinks::kGpus || now - gpu.looked_ns < kProxiesNs)
    return;
  gpu.looked_ns = now;
  machine_->my_time(gpu.index).wants_ns.store(now, std::memory_order_relaxed);
  std::vector<policies::ProxyUse> others;
  gpu.others_want = false;
  for (const MachineLinks::OtherTime& other : machine_->others_time(gpus_[gpu.index].uuid)) {
    const bool runs = other.running != 0;
    const bool wants = now - std::min(now, other.wants_ns) < (runs ? kRunsNs : kWantsNs);
    gpu.others_want = gpu.others_want || wants;
    others.push_back({other.slot, other.weight, wants, runs});
  }
  const policies::ProxyUse own{0, options_.weight, true, gpu.running != 0};
  gpu.admission.hold_until(gpu.shares.ahead(own, others, now) ? now + 2 * kProxiesNs : 0);
}

// With the GPU's lock.
void LaunchTurns::go_on(OneGpu& gpu, uint64_t now, bool shared) {
  std::erase_if(gpu.turns, [&](const auto& turn) {
    if (turn->work_ == nullptr || !ended(*turn->work_)) return false;
    gpu.admission.ended(turn->number_, took_ns(*turn->work_));
    return true;
  });
  if (gpu.admission.waits()) gpu.admission.short_work(short_work(gpu, now));
  const uint64_t before = gpu.admission.first();
  while (const auto next = gpu.admission.next(now, shared)) {
    for (const auto& turn : gpu.turns) {
      if (turn->number_ != next->number) continue;
      turn->granted_.store(true, std::memory_order_release);
      if (turn->told_) turn->told_();
    }
  }
  tell_proxies(gpu);
  // Who is next by now begins to look.
  const uint64_t first = gpu.admission.first();
  if (first == 0 || first == before) return;
  for (const auto& turn : gpu.turns)
    if (turn->number_ == first && turn->told_) turn->told_();
}

std::shared_ptr<TimedWork> LaunchTurns::work(uint32_t gpu) {
  OneGpu& one = *gpus_of_[gpu];
  TimedWork work;
  {
    std::lock_guard lock(one.spare_mutex);
    if (!one.spare.empty()) {
      work = one.spare.back();
      one.spare.pop_back();
    }
  }
  if (work.begin == nullptr) {
    {
      std::lock_guard lock(one.spare_mutex);
      one.spare.reserve(one.made + 1);  // so that giving one back needs no memory
      ++one.made;
    }
    if (driver_.cuEventCreate(&work.begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return nullptr;
    if (driver_.cuEventCreate(&work.end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
      (void)driver_.cuEventDestroy_v2(work.begin);
      return nullptr;
    }
  }
  const auto give_back = [&one](TimedWork* used) {
    {
      std::lock_guard lock(one.spare_mutex);
      one.spare.push_back(*used);
    }
    delete used;
  };
  return {new TimedWork(work), give_back};
}

bool LaunchTurns::ended(const TimedWork& work) const {
  return driver_.cuEventQuery(work.end) != CUDA_ERROR_NOT_READY;  // an error: the context is dead
}

uint64_t LaunchTurns::took_ns(const TimedWork& work) const {
  float ms = 0;
  if (driver_.cuEventElapsedTime_v2(&ms, work.begin, work.end) != CUDA_SUCCESS || !(ms > 0))
    return 0;
  return static_cast<uint64_t>(std::llround(double{ms} * 1e6));
}

policies::LaunchUse LaunchTurns::use(uint64_t session) {
  policies::LaunchUse sum;
  for (auto& gpu : gpus_of_) {
    std::lock_guard lock(gpu->mutex);
    const policies::LaunchUse use = gpu->admission.use(session);
    sum.launches += use.launches;
    sum.held += use.held;
    sum.held_ns += use.held_ns;
    sum.longest_ns = std::max(sum.longest_ns, use.longest_ns);
    sum.ran_out += use.ran_out;
    sum.quiet += use.quiet;
    sum.quiet_ns += use.quiet_ns;
    for (size_t i = 0; i < std::size(sum.held_for); ++i) sum.held_for[i] += use.held_for[i];
  }
  return sum;
}

}  // namespace tube::proxy

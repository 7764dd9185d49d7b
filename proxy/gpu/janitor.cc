#include "proxy/gpu/janitor.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "protocol/driver_table.gen.h"
#include "proxy/common/contained.h"
#include "proxy/gpu/driver_wrappers.h"
#include "proxy/gpu/gpus.h"

namespace tube::proxy {

namespace {
constexpr std::chrono::milliseconds kFirstNap{5};

// Between two looks: a closed gate costs a look at a few events.
constexpr std::chrono::milliseconds longest_nap(Janitor::Need need) {
  switch (need) {
    case Janitor::Need::kAnyTime: return std::chrono::milliseconds{1000};
    case Janitor::Need::kSoon: return kFirstNap;
    case Janitor::Need::kNow: break;
  }
  return std::chrono::milliseconds{1};
}
}  // namespace

Janitor::Janitor(const Driver& driver, Gpus& gpus, Duties duties)
    : driver_(driver), gpus_(gpus), duties_(std::move(duties)), thread_([this] {
        pthread_setname_np(pthread_self(), "tube-janitor");
        run();
      }) {}

Janitor::~Janitor() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Janitor::wake(Need need) {
  {
    std::lock_guard lock(mutex_);
    ++asked_;
    raise(need);
  }
  changed_.notify_all();
}

void Janitor::hurry(Need need) {
  {
    std::lock_guard lock(mutex_);
    if (done_ == asked_) return;
    raise(need);
  }
  changed_.notify_all();
}

// mutex_ is held.
void Janitor::raise(Need need) {
  if (need == Need::kAnyTime || need < need_) return;
  if (need > need_) needed_ns_ = now_ns();
  need_ = need;
  needed_ = asked_;
}

// mutex_ is held.
bool Janitor::out_of_patience() const {
  return need_ == Need::kNow &&
         now_ns() - needed_ns_ >= uint64_t{gpus_.gate().patience_ms()} * 1'000'000;
}

void Janitor::stand_behind(const std::vector<CUstream>& streams) {
  std::lock_guard lock(mutex_);
  old_streams_.insert(old_streams_.end(), streams.begin(), streams.end());
}

bool Janitor::finish(uint32_t timeout_ms, Refused refused) {
  wake(Need::kSoon);
  std::unique_lock lock(mutex_);
  const uint64_t mine = asked_;
  (void)changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this, mine, refused] {
    return done_ >= mine || (refused == Refused::kGiveUp && refused_ >= mine);
  });
  return done_ >= mine;
}

Janitor::State Janitor::state() const {
  std::lock_guard lock(mutex_);
  if (done_ == asked_) return State::kIdle;
  return working_ || refused_ <= done_ ? State::kWorking : State::kHeldBack;
}

// A dead context's streams answer an error: nothing works there any more.
bool Janitor::old_work_goes_on() {
  std::lock_guard lock(mutex_);
  std::erase_if(old_streams_, [this](CUstream stream) {
    if (driver_.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) return false;
    driver_.cuStreamDestroy_v2(stream);
    return true;
  });
  return !old_streams_.empty();
}

bool Janitor::stands_back() {
  if (!duties_.disturbs || !duties_.disturbs()) return false;
  const uint64_t now = now_ns();
  if (stands_back_ns_ == 0) stands_back_ns_ = now;
  return now - stands_back_ns_ < uint64_t{gpus_.gate().patience_ms()} * 1'000'000;
}

bool Janitor::pass_gate(bool all_the_same) {
  if (gpus_.count() != 0) driver_.cuCtxSetCurrent(gpus_[0].context);
  const auto inside = [this] {
    {
      std::lock_guard lock(mutex_);
      working_ = true;
    }
    if (duties_.work) duties_.work();
  };
  // Memory is registered with every GPU.
  if (!all_the_same) return gpus_.gate().if_open(this_caller(), inside, GateSpan::kAllGpus);
  gpus_.gate().beside_waits(this_caller(), "giving back what functions left", inside);
  return true;
}

void Janitor::run() {
  auto nap = kFirstNap;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || done_ != asked_; });
    if (stop_) return;
    const uint64_t asked = asked_;
    const Need need = need_;
    const bool all_the_same = out_of_patience();
    lock.unlock();
    bool may_begin = true, done = false;
    const bool went_on = contained("the janitor", [&] {
      if (duties_.collect) duties_.collect();
      may_begin = !old_work_goes_on();
      done = may_begin && (need != Need::kAnyTime || !stands_back()) && pass_gate(all_the_same);
      if (done && duties_.told) duties_.told();
    });
    done = done && went_on;
    lock.lock();
    working_ = false;
    (done ? done_ : refused_) = asked;
    if (done && needed_ <= asked) need_ = Need::kAnyTime;
    else if (done) needed_ns_ = now_ns();   // a new need, with patience of its own
    if (!may_begin) needed_ns_ = now_ns();  // patience is with streams that wait
    changed_.notify_all();
    if (done) {
      stands_back_ns_ = 0;
      nap = kFirstNap;
      continue;
    }
    nap = std::min(nap, longest_nap(need_));
    changed_.wait_for(lock, nap, [&] { return stop_ || asked_ != asked || need_ != need; });
    nap *= 2;
  }
}

}  // namespace tube::proxy

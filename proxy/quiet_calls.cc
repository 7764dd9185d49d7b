#include "proxy/quiet_calls.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/stream_order.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kPatience = 10'000;  // milliseconds
constexpr long kFirstNap = 20'000;      // nanoseconds between two looks at the waits
constexpr long kLongestNap = 1'000'000;
constexpr size_t kFewWaits = 16;  // so many may lie there unlooked at, whether they have passed or not

// Each session has its thread: who submitted a wait. A program's own waits are its own business, as natively.
uint64_t this_session() {
  static std::atomic<uint64_t> last{0};
  static thread_local const uint64_t number = ++last;
  return number;
}

// The turns. The lock is the last to be taken: nothing is called under it but the driver's event calls, which never wait.
class Turns {
 public:
  // `inside`: the thread has a turn itself, and would wait for its own end.
  void begin_wait(bool inside) {
    std::unique_lock lock(mutex_);
    ++queued_;
    changed_.wait(lock, [&] { return inside_ == 0 || inside; });
    --queued_;
    ++submitting_;
  }
  // `event`: behind the wait in its stream, of `context`; nullptr: nothing waits after all.
  void end_wait(CUevent event, CUcontext context) {
    std::lock_guard lock(mutex_);
    --submitting_;
    if (event != nullptr) waits_.push_back({event, context, this_session()});
  }
  // One of the current context, which is `context`: events and streams of different contexts do not go together.
  CUevent spare_event(const Driver& driver, CUcontext context) {
    {
      std::lock_guard lock(mutex_);
      // A program may wait in every step and never make a call that would look: no more events than twice the waits there are.
      if (waits_.size() >= look_at_) {
        forget_ended(driver);
        look_at_ = 2 * waits_.size() + kFewWaits;
      }
      if (std::vector<CUevent>& spares = spares_[context]; !spares.empty()) {
        const CUevent event = spares.back();
        spares.pop_back();
        return event;
      }
    }
    CUevent event = nullptr;
    return driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
  }
  // It is about to end, and its events with it.
  void forget(const Driver& driver, CUcontext context) {
    std::lock_guard lock(mutex_);
    std::erase_if(waits_, [&](const Wait& wait) {
      if (wait.context != context) return false;
      driver.cuEventDestroy_v2(wait.event);
      return true;
    });
    const auto spares = spares_.find(context);
    if (spares == spares_.end()) return;
    for (CUevent event : spares->second) driver.cuEventDestroy_v2(event);
    spares_.erase(spares);
  }

  void begin_call(const Driver& driver, uint32_t patience_ms) {
    const uint64_t deadline = now_ns() + uint64_t{patience_ms} * 1'000'000;
    for (long nap = kFirstNap;; nap = std::min(nap * 2, kLongestNap)) {
      {
        std::lock_guard lock(mutex_);
        forget_ended(driver);
        const bool quiet = !waits_come() && std::all_of(waits_.begin(), waits_.end(), [](const Wait& w) { return w.session == this_session(); });
        if (quiet || now_ns() >= deadline) {
          if (!quiet) log_warn("a call that waits for the whole context is made although a stream still waits for its program");
          ++inside_;
          return;
        }
      }
      const timespec pause{0, nap};
      nanosleep(&pause, nullptr);
    }
  }
  bool try_begin_call(const Driver& driver) {
    std::lock_guard lock(mutex_);
    forget_ended(driver);
    if (waits_come() || !waits_.empty()) return false;
    ++inside_;
    return true;
  }
  void end_call() {
    {
      std::lock_guard lock(mutex_);
      --inside_;
    }
    changed_.notify_all();
  }

 private:
  bool waits_come() const { return queued_ != 0 || submitting_ != 0; }
  // A dead context's events answer an error: nothing waits there any more.
  void forget_ended(const Driver& driver) {
    std::erase_if(waits_, [&](const Wait& wait) {
      if (driver.cuEventQuery(wait.event) == CUDA_ERROR_NOT_READY) return false;
      spares_[wait.context].push_back(wait.event);
      return true;
    });
  }

  struct Wait {
    CUevent event;
    CUcontext context;
    uint64_t session;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Wait> waits_;
  std::map<CUcontext, std::vector<CUevent>> spares_;  // few: the devices' own contexts and green ones
  size_t look_at_ = kFewWaits;                        // so many waits: see which have passed
  uint32_t queued_ = 0;                               // waits that stand until the calls in the driver have returned
  uint32_t submitting_ = 0;                           // waits on their way into a stream
  uint32_t inside_ = 0;                               // calls in the driver, one for each thread
};

// Lives as long as the process: other threads may be in a call when main returns.
struct Installed {
  explicit Installed(const Driver& table) : real(table) {}

  const Driver real;
  Turns turns;
  std::atomic<uint32_t> patience_ms = kPatience;

  bool has_context() const {  // without one there is nothing to wait for
    CUdevice device = 0;
    return real.cuCtxGetDevice(&device) == CUDA_SUCCESS;
  }
};
Installed* g_installed = nullptr;

// A thread's turn: at most one at a time, the others lie inside of it.
class Turn {
 public:
  enum class When { kWait, kNow, kNowOrNever };
  Turn(Installed& all, When when) {
    if (held_ || !all.has_context()) return;
    if (when != When::kNowOrNever) all.turns.begin_call(all.real, when == When::kWait ? all.patience_ms.load() : 0);
    else if (!all.turns.try_begin_call(all.real)) {
      refused_ = true;
      return;
    }
    turns_ = &all.turns;
    held_ = true;
  }
  ~Turn() {
    if (turns_ == nullptr) return;
    held_ = false;
    turns_->end_call();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool refused() const { return refused_; }
  static bool held() { return held_; }

 private:
  static inline thread_local bool held_ = false;
  Turns* turns_ = nullptr;  // to be ended with this
  bool refused_ = false;
};

CUcontext current_context(const Driver& driver) {
  CUcontext context = nullptr;
  return driver.cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// The event behind what was just submitted; nullptr when it will not run by itself.
CUevent mark(Installed& all, CUstream stream, CUcontext context) {
  if (is_capturing(all.real, stream)) return nullptr;
  const CUevent event = all.turns.spare_event(all.real, context);
  if (event != nullptr && all.real.cuEventRecord(event, stream) != CUDA_SUCCESS) {
    all.real.cuEventDestroy_v2(event);
    return nullptr;
  }
  return event;
}

template <auto Entry>
struct Quiet;
template <class... A, CUresult (*Driver::*Entry)(A...)>
struct Quiet<Entry> {
  static CUresult call(A... arguments) {
    const Turn turn(*g_installed, Turn::When::kWait);
    return (g_installed->real.*Entry)(arguments...);
  }
};

template <class Call>
CUresult submit_wait(CUstream stream, Call call) {
  if (!g_installed->has_context()) return call();
  Turns& turns = g_installed->turns;
  turns.begin_wait(Turn::held());
  const CUresult error = call();
  const CUcontext context = current_context(g_installed->real);
  turns.end_wait(error == CUDA_SUCCESS ? mark(*g_installed, stream, context) : nullptr, context);
  return error;
}

template <auto Entry>
struct Waiting;
template <class... A, CUresult (*Driver::*Entry)(CUstream, A...)>
struct Waiting<Entry> {
  static CUresult call(CUstream stream, A... arguments) {
    return submit_wait(stream, [&] { return (g_installed->real.*Entry)(stream, arguments...); });
  }
};

// Its stream comes last.
CUresult wait_external(const CUexternalSemaphore* semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned int count,
                       CUstream stream) {
  return submit_wait(stream, [&] { return g_installed->real.cuWaitExternalSemaphoresAsync(semaphores, params, count, stream); });
}

CUresult destroy_green(CUgreenCtx green) {
  Installed& all = *g_installed;
  CUcontext context = nullptr;
  if (all.real.cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS) all.turns.forget(all.real, context);
  return all.real.cuGreenCtxDestroy(green);
}

}  // namespace

void install_quiet_calls(Driver& table) {
  g_installed = new Installed{table};
#define TUBE_QUIET(name) table.name = Quiet<&Driver::name>::call
  TUBE_QUIET(cuModuleLoadData);
  TUBE_QUIET(cuModuleLoadDataEx);
  TUBE_QUIET(cuModuleUnload);
  TUBE_QUIET(cuLibraryLoadData);  // with eager loading
  TUBE_QUIET(cuLibraryUnload);
  TUBE_QUIET(cuKernelGetFunction);
  TUBE_QUIET(cuMemFree_v2);
  TUBE_QUIET(cuMemFreeHost);
  TUBE_QUIET(cuMemHostUnregister);
  TUBE_QUIET(cuArrayDestroy);
  TUBE_QUIET(cuMipmappedArrayDestroy);
  TUBE_QUIET(cuDestroyExternalMemory);
  TUBE_QUIET(cuCtxSetLimit);
#undef TUBE_QUIET
#define TUBE_WAITING(name) table.name = Waiting<&Driver::name>::call
  TUBE_WAITING(cuStreamWaitValue32_v2);
  TUBE_WAITING(cuStreamWaitValue64_v2);
  TUBE_WAITING(cuStreamBatchMemOp_v2);
#undef TUBE_WAITING
  table.cuWaitExternalSemaphoresAsync = wait_external;
  table.cuGreenCtxDestroy = destroy_green;
}

CUresult quietly(const std::function<CUresult()>& call) {
  if (g_installed == nullptr) return call();
  const Turn turn(*g_installed, Turn::When::kWait);
  return call();
}

bool quietly_if_nobody_waits(const std::function<void()>& call) {
  if (g_installed == nullptr) return call(), true;
  const Turn turn(*g_installed, Turn::When::kNowOrNever);
  if (!turn.refused()) call();
  return !turn.refused();
}

void quietly_all_the_same(const std::function<void()>& call) {
  if (g_installed == nullptr) return call();
  const Turn turn(*g_installed, Turn::When::kNow);
  call();
}

uint32_t quiet_patience_ms() { return g_installed != nullptr ? g_installed->patience_ms.load() : kPatience; }

void set_quiet_patience(uint32_t milliseconds) {
  if (g_installed != nullptr) g_installed->patience_ms = milliseconds;
}

}  // namespace tube::proxy

#include "proxy/quiet_calls.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/settled_contexts.h"
#include "proxy/stream_order.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kPatience = 10'000;  // milliseconds
constexpr uint32_t kLaunchPatience = 1'000;
constexpr uint64_t kImpatience = 10;  // so many patiences long a session whose first launch had to wait for all of one waits for no wait
constexpr long kFirstNap = 20'000;    // nanoseconds between two looks at the waits
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
  // `inside`: the thread has a turn itself, and would wait for its own end. A first launch stands in the driver while its stream has no
  // room, which may take as long as its program likes: that is not waited for without end.
  void begin_wait(bool inside, uint32_t launch_patience_ms) {
    std::unique_lock lock(mutex_);
    ++queued_;
    changed_.wait_for(lock, std::chrono::milliseconds(launch_patience_ms), [&] { return (inside_ == 0 && launching_ == 0) || inside; });
    changed_.wait(lock, [&] { return inside_ == 0 || inside; });
    --queued_;
    ++submitting_;
  }
  // `event`: behind the wait in its stream, of `context`; nullptr: nothing waits after all.
  void end_wait(CUevent event, CUcontext context) {
    std::lock_guard lock(mutex_);
    --submitting_;
    if (event != nullptr) waits_.push_back({event, context, this_session(), now_ns()});
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

  // A wait that has stood for all of that patience is waited for no more: each of hundreds of calls would.
  void begin_call(const Driver& driver, uint32_t patience_ms) {
    const uint64_t patience_ns = uint64_t{patience_ms} * 1'000'000;
    const auto harmless = [patience_ns](const Wait& wait) { return is_own(wait) || now_ns() - wait.since_ns >= patience_ns; };
    if (begin(driver, patience_ms, harmless, inside_)) return;
    log_warn("a call that waits for the whole context is made although a stream still waits for its program");
  }
  // A program that starts has hundreds of first launches: beside waits that stand for long, or always come anew, it has patience once.
  void begin_first_launch(const Driver& driver, uint32_t patience_ms) {
    static thread_local uint64_t lost_ns = 0;  // when it was lost; 0: never
    const uint64_t patience_ns = uint64_t{patience_ms} * 1'000'000;
    const bool patient = lost_ns == 0 || now_ns() - lost_ns >= kImpatience * patience_ns;
    const auto harmless = [patience_ns](const Wait& wait) { return is_own(wait) || now_ns() - wait.since_ns >= patience_ns; };
    if (begin(driver, patient ? patience_ms : 0, harmless, launching_)) return;
    log_debug("the first launch of code is made although a stream waits for its program");
    if (patient) lost_ns = now_ns();
  }
  // For who has a turn that keeps waits out: whether none stands, his own included.
  bool nobody_waits(const Driver& driver) {
    std::lock_guard lock(mutex_);
    forget_ended(driver);
    return submitting_ == 0 && waits_.empty();
  }
  bool try_begin_call(const Driver& driver) {
    std::lock_guard lock(mutex_);
    forget_ended(driver);
    if (waits_come() || !waits_.empty()) return false;
    ++inside_;
    return true;
  }
  void end_call() { end(inside_); }
  void end_first_launch() { end(launching_); }

 private:
  struct Wait {
    CUevent event;
    CUcontext context;
    uint64_t session;
    uint64_t since_ns;
  };
  static bool is_own(const Wait& wait) { return wait.session == this_session(); }
  // When all waits that stand are `harmless`, and no other has come; false: it begins although they are not, because patience is over. Then
  // it is one of `begun`.
  template <class Harmless>
  bool begin(const Driver& driver, uint32_t patience_ms, Harmless harmless, uint32_t& begun) {
    const uint64_t deadline = now_ns() + uint64_t{patience_ms} * 1'000'000;
    for (long nap = kFirstNap;; nap = std::min(nap * 2, kLongestNap)) {
      {
        std::lock_guard lock(mutex_);
        forget_ended(driver);
        const bool quiet = !waits_come() && std::all_of(waits_.begin(), waits_.end(), harmless);
        if (quiet || now_ns() >= deadline) {
          ++begun;
          return quiet;
        }
      }
      const timespec pause{0, nap};
      nanosleep(&pause, nullptr);
    }
  }
  void end(uint32_t& begun) {
    {
      std::lock_guard lock(mutex_);
      --begun;
    }
    changed_.notify_all();
  }
  bool waits_come() const { return queued_ != 0 || submitting_ != 0; }
  // A dead context's events answer an error: nothing waits there any more.
  void forget_ended(const Driver& driver) {
    std::erase_if(waits_, [&](const Wait& wait) {
      if (driver.cuEventQuery(wait.event) == CUDA_ERROR_NOT_READY) return false;
      spares_[wait.context].push_back(wait.event);
      return true;
    });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Wait> waits_;
  std::map<CUcontext, std::vector<CUevent>> spares_;  // few: the devices' own contexts and green ones
  size_t look_at_ = kFewWaits;                        // so many waits: see which have passed
  uint32_t queued_ = 0;                               // waits that stand until the calls in the driver have returned
  uint32_t submitting_ = 0;                           // waits on their way into a stream
  uint32_t inside_ = 0;                               // calls in the driver, one for each thread
  uint32_t launching_ = 0;                            // first launches there
};

// Lives as long as the process: other threads may be in a call when main returns.
struct Installed {
  explicit Installed(const Driver& table) : real(table) {}

  const Driver real;
  Turns turns;
  SettledContexts settled;
  std::atomic<uint32_t> patience_ms = kPatience;
  std::atomic<uint32_t> launch_patience_ms = kLaunchPatience;

  bool has_context() const {  // without one there is nothing to wait for
    CUdevice device = 0;
    return real.cuCtxGetDevice(&device) == CUDA_SUCCESS;
  }
};
Installed* g_installed = nullptr;

// A thread's turn: at most one at a time, the others lie inside of it.
class Turn {
 public:
  enum class When { kWait, kNow, kNowOrNever, kFirstLaunch };
  Turn(Installed& all, When when) {
    if (held_ || !all.has_context()) return;
    refused_ = !begin(all, when);
    if (refused_) return;
    turns_ = &all.turns;
    when_ = held_as_ = when;
    held_ = true;
  }
  ~Turn() {
    if (turns_ == nullptr) return;
    held_ = false;
    if (when_ == When::kFirstLaunch) turns_->end_first_launch();
    else turns_->end_call();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool refused() const { return refused_; }
  static bool held() { return held_; }
  static bool held_patiently() { return held_ && held_as_ == When::kWait; }

 private:
  static bool begin(Installed& all, When when) {
    switch (when) {
      case When::kWait: all.turns.begin_call(all.real, all.patience_ms.load()); return true;
      case When::kNow: all.turns.begin_call(all.real, 0); return true;
      case When::kFirstLaunch: all.turns.begin_first_launch(all.real, all.launch_patience_ms.load()); return true;
      case When::kNowOrNever: return all.turns.try_begin_call(all.real);
    }
    return true;
  }
  static inline thread_local bool held_ = false;
  static inline thread_local When held_as_ = When::kWait;
  Turns* turns_ = nullptr;  // to be ended with this
  When when_ = When::kWait;
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

// For calls after which the driver has something to do at the next launch.
template <class Call>
CUresult call_and_settle(Installed& all, Call call) {
  const Turn turn(all, Turn::When::kWait);
  const CUresult error = call();
  CUdevice device = 0;
  if (error == CUDA_SUCCESS && all.real.cuCtxGetDevice(&device) == CUDA_SUCCESS) all.settled.settle(all.real, device);
  return error;
}

template <auto Entry>
struct Unsettling;
template <class... A, CUresult (*Driver::*Entry)(A...)>
struct Unsettling<Entry> {
  static CUresult call(A... arguments) {
    return call_and_settle(*g_installed, [&] { return (g_installed->real.*Entry)(arguments...); });
  }
};

// Before there is none: at a moment when no stream waits, neither others' nor the caller's. A first launch keeps only young waits out.
void make_room_if_nobody_waits(Installed& all, CUcontext context) {
  if (Turn::held()) {
    if (Turn::held_patiently() && all.turns.nobody_waits(all.real)) all.settled.make_room(all.real, context);
    return;
  }
  const Turn turn(all, Turn::When::kNowOrNever);
  if (!turn.refused()) all.settled.make_room(all.real, context);
}

// What takes a place (settled_contexts.h). Only when there is none left at all this waits, as the driver would.
template <class Handle, class Make>
CUresult make_placed(Handle* handle, Make make) {
  Installed& all = *g_installed;
  const CUcontext context = current_context(all.real);
  auto place = SettledContexts::Place::kNone;
  while ((place = all.settled.take_place(context)) == SettledContexts::Place::kNone) {
    const Turn turn(all, Turn::When::kWait);
    all.settled.make_room(all.real, context);
  }
  if (place == SettledContexts::Place::kTakenOfFew) make_room_if_nobody_waits(all, context);
  const CUresult error = make();
  if (error == CUDA_SUCCESS) all.settled.placed(context, *handle);
  else all.settled.cancel_place(context);
  return error;
}

CUresult create_stream(CUstream* stream, unsigned int flags) {
  return make_placed(stream, [&] { return g_installed->real.cuStreamCreate(stream, flags); });
}

CUresult create_stream_with_priority(CUstream* stream, unsigned int flags, int priority) {
  return make_placed(stream, [&] { return g_installed->real.cuStreamCreateWithPriority(stream, flags, priority); });
}

// Forgotten first: the driver may give the handle to the next one at once.
template <class Handle, class Destroy>
CUresult destroy_placed(Handle handle, Destroy destroy) {
  Installed& all = *g_installed;
  const bool counted = all.settled.gone(handle);
  const CUresult error = destroy();
  if (error == CUDA_SUCCESS || !counted) return error;
  const CUcontext context = current_context(all.real);
  if (all.settled.take_place(context) != SettledContexts::Place::kNone) all.settled.placed(context, handle);
  return error;
}

CUresult destroy_stream(CUstream stream) {
  return destroy_placed(stream, [&] { return g_installed->real.cuStreamDestroy_v2(stream); });
}

// Instances take memory for their nodes as well, which the driver gets in blocks of its own: always a turn.
CUresult instantiate(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  const Turn turn(*g_installed, Turn::When::kWait);
  return make_placed(exec, [&] { return g_installed->real.cuGraphInstantiateWithParams(exec, graph, params); });
}

CUresult instantiate_with_flags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  const Turn turn(*g_installed, Turn::When::kWait);
  return make_placed(exec, [&] { return g_installed->real.cuGraphInstantiateWithFlags(exec, graph, flags); });
}

CUresult destroy_instance(CUgraphExec exec) {
  return destroy_placed(exec, [&] { return g_installed->real.cuGraphExecDestroy(exec); });
}

CUresult create_green(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device, unsigned int flags) {
  const Turn turn(*g_installed, Turn::When::kWait);
  const Driver& real = g_installed->real;
  const CUresult error = real.cuGreenCtxCreate(green, resources, device, flags);
  CUcontext context = nullptr;
  if (error != CUDA_SUCCESS || real.cuCtxFromGreenCtx(&context, *green) != CUDA_SUCCESS || real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
    return error;
  SettledContexts::make_first_room(real);
  (void)real.cuCtxPopCurrent_v2(&context);
  return error;
}

// With eager loading, into the contexts of all GPUs.
CUresult load_library(CUlibrary* library, const void* code, CUjit_option* jit, void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                      void** values, unsigned int count) {
  const Turn turn(*g_installed, Turn::When::kWait);
  const CUresult error = g_installed->real.cuLibraryLoadData(library, code, jit, jit_values, jit_count, options, values, count);
  if (error == CUDA_SUCCESS) g_installed->settled.settle_all(g_installed->real);
  return error;
}

template <class Call>
CUresult submit_wait(CUstream stream, Call call) {
  if (!g_installed->has_context()) return call();
  Turns& turns = g_installed->turns;
  turns.begin_wait(Turn::held(), g_installed->launch_patience_ms.load());
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
  TUBE_QUIET(cuModuleUnload);
  TUBE_QUIET(cuLibraryUnload);
  TUBE_QUIET(cuModuleGetFunction);  // does not wait, but holds what comes after, and its module has settled
  TUBE_QUIET(cuMemFree_v2);
  TUBE_QUIET(cuMemFreeHost);
  TUBE_QUIET(cuMemHostUnregister);
  TUBE_QUIET(cuArrayDestroy);
  TUBE_QUIET(cuMipmappedArrayDestroy);
  TUBE_QUIET(cuDestroyExternalMemory);
#undef TUBE_QUIET
#define TUBE_UNSETTLING(name) table.name = Unsettling<&Driver::name>::call
  TUBE_UNSETTLING(cuModuleLoadData);
  TUBE_UNSETTLING(cuModuleLoadDataEx);
  TUBE_UNSETTLING(cuKernelGetFunction);
  TUBE_UNSETTLING(cuCtxSetLimit);
#undef TUBE_UNSETTLING
#define TUBE_WAITING(name) table.name = Waiting<&Driver::name>::call
  TUBE_WAITING(cuStreamWaitValue32_v2);
  TUBE_WAITING(cuStreamWaitValue64_v2);
  TUBE_WAITING(cuStreamBatchMemOp_v2);
#undef TUBE_WAITING
  table.cuWaitExternalSemaphoresAsync = wait_external;
  table.cuLibraryLoadData = load_library;
  table.cuGreenCtxCreate = create_green;
  table.cuGreenCtxDestroy = destroy_green;
  table.cuStreamCreate = create_stream;
  table.cuStreamCreateWithPriority = create_stream_with_priority;
  table.cuStreamDestroy_v2 = destroy_stream;
  table.cuGraphInstantiateWithParams = instantiate;
  table.cuGraphInstantiateWithFlags = instantiate_with_flags;
  table.cuGraphExecDestroy = destroy_instance;
}

CUresult prepare_context(CUdevice device, CUcontext context) {
  return g_installed == nullptr ? CUDA_SUCCESS : g_installed->settled.prepare(g_installed->real, device, context);
}

CUresult quietly(const std::function<CUresult()>& call) {
  if (g_installed == nullptr) return call();
  const Turn turn(*g_installed, Turn::When::kWait);
  return call();
}

CUresult quietly_unsettling(const std::function<CUresult()>& call) {
  return g_installed == nullptr ? call() : call_and_settle(*g_installed, std::cref(call));
}

CUresult launch_in_turn(LaunchTurn turn, const std::function<CUresult()>& launch) {
  if (g_installed == nullptr || turn == LaunchTurn::kNone) return launch();
  const Turn taken(*g_installed, turn == LaunchTurn::kFirst ? Turn::When::kFirstLaunch : Turn::When::kWait);
  return launch();
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

void set_launch_patience(uint32_t milliseconds) {
  if (g_installed != nullptr) g_installed->launch_patience_ms = milliseconds;
}

}  // namespace tube::proxy

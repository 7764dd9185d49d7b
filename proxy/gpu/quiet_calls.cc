#include "proxy/gpu/quiet_calls.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/driver_table.gen.h"
#include "proxy/gpu/settled_contexts.h"
#include "proxy/session/stream_order.h"

namespace tube::proxy {
namespace {

constexpr uint32_t kPatience = 10'000;  // milliseconds
constexpr uint32_t kLaunchPatience = 1'000;
constexpr uint64_t kImpatience = 10;  // so many patiences long a session whose first launch had to
                                      // wait for all of one waits for no wait
constexpr long kFirstNap = 20'000;    // nanoseconds between two looks at the waits
constexpr long kLongestNap = 1'000'000;
constexpr size_t kFewWaits =
    16;  // so many may lie there unlooked at, whether they have passed or not

// Each session has its thread: who submitted a wait. A program's own waits are its own business, as
// natively.
uint64_t this_session() {
  static std::atomic<uint64_t> last{0};
  static thread_local const uint64_t number = ++last;
  return number;
}

// One bit for each GPU, by the driver's number.
using GpuSet = uint64_t;
constexpr GpuSet only(CUdevice device) { return GpuSet{1} << device; }

// Whose waits a call minds, and what others have before them while it is in the driver.
struct TurnOf {
  GpuSet gpus = 0;
  bool several = false;  // it may stand for any of several GPUs, of which the thread may have had
                         // the others already
  bool first_launch = false;
};

// Those that the thread's session has worked on.
GpuSet& session_gpus() {
  static thread_local GpuSet gpus = 0;
  return gpus;
}

// The turns. The lock is the last to be taken: nothing is called under it but the driver's event
// calls, which never wait.
class Turns {
 public:
  struct Patience {
    uint32_t call_ms, launch_ms;
  };
  // `inside`: the thread has a turn of this GPU itself, and would wait for its own end. Two things
  // are not waited for without end: a first launch stands in the driver while its stream has no
  // room, which may take as long as its program likes; and a call of several GPUs may stand behind
  // a kernel on another one, which waits for this program.
  void begin_wait(CUdevice device, bool inside, Patience patience) {
    std::unique_lock lock(mutex_);
    OfGpu& gpu = gpus_[device];
    ++gpu.queued;
    if (!inside) {
      const auto calls = [&gpu] { return gpu.inside + gpu.inside_several; };
      changed_.wait_for(lock, std::chrono::milliseconds(patience.launch_ms),
                        [&] { return calls() + gpu.launching == 0; });
      // All that stand behind one such call have the same patience, or each would have it again.
      const std::chrono::nanoseconds since{gpu.several_since_ns};
      const auto end = std::chrono::steady_clock::time_point(since) +
                       std::chrono::milliseconds(patience.call_ms);
      changed_.wait_until(lock, end, [&] { return calls() == 0; });
      changed_.wait(lock, [&] { return gpu.inside == 0; });
    }
    --gpu.queued;
    ++gpu.submitting;
  }
  // `event`: behind the wait in its stream, of `context`; nullptr: nothing waits after all.
  void end_wait(CUevent event, CUcontext context, CUdevice device) {
    std::lock_guard lock(mutex_);
    --gpus_[device].submitting;
    if (event != nullptr)
      waits_.push_back({event, context, only(device), this_session(), now_ns()});
  }
  // One of the current context, which is `context`: events and streams of different contexts do not
  // go together.
  CUevent spare_event(const Driver& driver, CUcontext context) {
    {
      std::lock_guard lock(mutex_);
      // A program may wait in every step and never make a call that would look: no more events than
      // twice the waits there are.
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

  // A wait that has stood for all of that patience is waited for no more: each of hundreds of calls
  // would.
  void begin_call(const Driver& driver, const TurnOf& of, uint32_t patience_ms) {
    if (begin(driver, of, patience_ms, uint64_t{patience_ms} * 1'000'000)) return;
    log_warn(
        "a call that waits for the whole context is made although a stream still waits for its "
        "program");
  }
  // A program that starts has hundreds of first launches: beside waits that stand for long, or
  // always come anew, it has patience once.
  void begin_first_launch(const Driver& driver, const TurnOf& of, uint32_t patience_ms) {
    static thread_local uint64_t lost_ns = 0;  // when it was lost; 0: never
    const uint64_t patience_ns = uint64_t{patience_ms} * 1'000'000;
    const bool patient = lost_ns == 0 || now_ns() - lost_ns >= kImpatience * patience_ns;
    if (begin(driver, of, patient ? patience_ms : 0, patience_ns)) return;
    log_debug("the first launch of code is made although a stream waits for its program");
    if (patient) lost_ns = now_ns();
  }
  // For who has a turn that keeps waits out: whether none stands, his own included.
  bool nobody_waits(const Driver& driver, CUdevice device) {
    std::lock_guard lock(mutex_);
    forget_ended(driver);
    return gpus_[device].submitting == 0 && !any_stands(only(device));
  }
  bool try_begin_call(const Driver& driver, const TurnOf& of) {
    std::lock_guard lock(mutex_);
    forget_ended(driver);
    if (waits_come(of.gpus) || any_stands(of.gpus)) return false;
    count(of, 1);
    return true;
  }
  void end(const TurnOf& of) {
    {
      std::lock_guard lock(mutex_);
      count(of, -1);
    }
    changed_.notify_all();
  }

 private:
  struct Wait {
    CUevent event;
    CUcontext context;
    GpuSet gpu;
    uint64_t session;
    uint64_t since_ns;
  };
  struct OfGpu {
    int queued = 0;                 // waits that stand until the calls in the driver have returned
    int submitting = 0;             // waits on their way into a stream
    int inside = 0;                 // calls in the driver, one for each thread
    int inside_several = 0;         // those of several GPUs
    uint64_t several_since_ns = 0;  // since when there are any
    int launching = 0;              // first launches there
  };
  template <class Do>
  void each(GpuSet gpus, Do act) {
    for (; gpus != 0; gpus &= gpus - 1) act(gpus_[std::countr_zero(gpus)]);
  }

  // mutex_ is held. One turn more, or one less.
  void count(const TurnOf& of, int one) {
    int OfGpu::*const what = of.first_launch ? &OfGpu::launching
                             : of.several    ? &OfGpu::inside_several
                                             : &OfGpu::inside;
    each(of.gpus, [=](OfGpu& gpu) {
      if (what == &OfGpu::inside_several && gpu.inside_several == 0)
        gpu.several_since_ns = now_ns();
      gpu.*what += one;
    });
  }
  // When no wait has come and those that stand there are the caller's own or `old_ns` old. False:
  // it begins although others wait, because patience is over.
  bool begin(const Driver& driver, const TurnOf& of, uint32_t patience_ms, uint64_t old_ns) {
    const auto matters = [&of, old_ns](const Wait& wait) {
      return (wait.gpu & of.gpus) != 0 && wait.session != this_session() &&
             now_ns() - wait.since_ns < old_ns;
    };
    const uint64_t deadline = now_ns() + uint64_t{patience_ms} * 1'000'000;
    for (long nap = kFirstNap;; nap = std::min(nap * 2, kLongestNap)) {
      {
        std::lock_guard lock(mutex_);
        forget_ended(driver);
        const bool quiet =
            !waits_come(of.gpus) && std::none_of(waits_.begin(), waits_.end(), matters);
        if (quiet || now_ns() >= deadline) {
          count(of, 1);
          return quiet;
        }
      }
      const timespec pause{0, nap};
      nanosleep(&pause, nullptr);
    }
  }
  bool any_stands(GpuSet gpus) const {
    return std::any_of(waits_.begin(), waits_.end(),
                       [gpus](const Wait& wait) { return (wait.gpu & gpus) != 0; });
  }
  bool waits_come(GpuSet gpus) {
    bool any = false;
    each(gpus, [&any](const OfGpu& gpu) { any |= gpu.queued != 0 || gpu.submitting != 0; });
    return any;
  }
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
  std::map<CUcontext, std::vector<CUevent>>
      spares_;                  // few: the devices' own contexts and green ones
  size_t look_at_ = kFewWaits;  // so many waits: see which have passed
  std::array<OfGpu, std::numeric_limits<GpuSet>::digits> gpus_;
};

// Lives as long as the process: other threads may be in a call when main returns.
struct Installed {
  explicit Installed(const Driver& table) : real(table) {}

  const Driver real;
  Turns turns;
  SettledContexts settled;
  std::atomic<uint32_t> patience_ms = kPatience;
  std::atomic<uint32_t> launch_patience_ms = kLaunchPatience;

  // None without a context: there is nothing to wait for then.
  std::optional<CUdevice> current_device() const {
    CUdevice device = 0;
    return real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? std::optional(device) : std::nullopt;
  }
  GpuSet all_gpus() const {
    int count = 0;
    return real.cuDeviceGetCount(&count) == CUDA_SUCCESS ? only(count) - 1 : 0;
  }
};
Installed* g_installed = nullptr;

// A thread's turn. One that it has already is not taken again: what lies inside goes straight on.
class Turn {
 public:
  enum class When { kWait, kNow, kNowOrNever, kFirstLaunch };
  Turn(Installed& all, When when, QuietOn on = QuietOn::kItsGpus) {
    const std::optional<CUdevice> device = all.current_device();
    if (!device) return;
    const GpuSet wanted =
        only(*device) | (on == QuietOn::kAllGpus ? all.all_gpus() : session_gpus());
    of_ = {wanted & ~held_, std::popcount(wanted) > 1, when == When::kFirstLaunch};
    if (of_.gpus == 0) return;
    refused_ = !begin(all, when);
    if (refused_) return;
    turns_ = &all.turns;
    held_ |= of_.gpus;
    if (when == When::kWait) patient_ |= of_.gpus;
  }
  ~Turn() {
    if (turns_ == nullptr) return;
    held_ &= ~of_.gpus;
    patient_ &= ~of_.gpus;
    turns_->end(of_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool refused() const { return refused_; }
  static bool held(CUdevice device) { return (held_ & only(device)) != 0; }
  static bool held_patiently(CUdevice device) { return (patient_ & only(device)) != 0; }

 private:
  bool begin(Installed& all, When when) const {
    switch (when) {
      case When::kWait: all.turns.begin_call(all.real, of_, all.patience_ms.load()); return true;
      case When::kNow: all.turns.begin_call(all.real, of_, 0); return true;
      case When::kFirstLaunch:
        all.turns.begin_first_launch(all.real, of_, all.launch_patience_ms.load());
        return true;
      case When::kNowOrNever: return all.turns.try_begin_call(all.real, of_);
    }
    return true;
  }
  static inline thread_local GpuSet held_ = 0, patient_ = 0;
  Turns* turns_ = nullptr;  // to be ended with this
  TurnOf of_;               // what it has and no other of this thread
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
  const std::optional<CUdevice> device = all.current_device();
  if (error == CUDA_SUCCESS && device) all.settled.settle(all.real, *device);
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

// Before there is none: at a moment when no stream waits, neither others' nor the caller's. A first
// launch keeps only young waits out.
void make_room_if_nobody_waits(Installed& all, CUcontext context) {
  const CUdevice device = all.current_device().value_or(0);
  if (Turn::held(device)) {
    if (Turn::held_patiently(device) && all.turns.nobody_waits(all.real, device))
      all.settled.make_room(all.real, context);
    return;
  }
  const Turn turn(all, Turn::When::kNowOrNever);
  if (!turn.refused()) all.settled.make_room(all.real, context);
}

// What takes a place (settled_contexts.h). Only when there is none left at all this waits, as the
// driver would.
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
  return make_placed(stream, [&] {
    return g_installed->real.cuStreamCreateWithPriority(stream, flags, priority);
  });
}

// Forgotten first: the driver may give the handle to the next one at once.
template <class Handle, class Destroy>
CUresult destroy_placed(Handle handle, Destroy destroy) {
  Installed& all = *g_installed;
  const bool counted = all.settled.gone(handle);
  const CUresult error = destroy();
  if (error == CUDA_SUCCESS || !counted) return error;
  const CUcontext context = current_context(all.real);
  if (all.settled.take_place(context) != SettledContexts::Place::kNone)
    all.settled.placed(context, handle);
  return error;
}

CUresult destroy_stream(CUstream stream) {
  return destroy_placed(stream, [&] { return g_installed->real.cuStreamDestroy_v2(stream); });
}

// Instances take memory for their nodes as well, which the driver gets in blocks of its own: always
// a turn.
CUresult instantiate(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  const Turn turn(*g_installed, Turn::When::kWait);
  return make_placed(
      exec, [&] { return g_installed->real.cuGraphInstantiateWithParams(exec, graph, params); });
}

CUresult instantiate_with_flags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  const Turn turn(*g_installed, Turn::When::kWait);
  return make_placed(
      exec, [&] { return g_installed->real.cuGraphInstantiateWithFlags(exec, graph, flags); });
}

CUresult destroy_instance(CUgraphExec exec) {
  return destroy_placed(exec, [&] { return g_installed->real.cuGraphExecDestroy(exec); });
}

CUresult create_green(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device,
                      unsigned int flags) {
  const Turn turn(*g_installed, Turn::When::kWait);
  const Driver& real = g_installed->real;
  const CUresult error = real.cuGreenCtxCreate(green, resources, device, flags);
  CUcontext context = nullptr;
  if (error != CUDA_SUCCESS || real.cuCtxFromGreenCtx(&context, *green) != CUDA_SUCCESS ||
      real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
    return error;
  SettledContexts::make_first_room(real);
  (void)real.cuCtxPopCurrent_v2(&context);
  return error;
}

template <class Call>
CUresult submit_wait(CUstream stream, Call call) {
  Installed& all = *g_installed;
  const std::optional<CUdevice> device = all.current_device();
  if (!device) return call();
  all.turns.begin_wait(*device, Turn::held(*device),
                       {all.patience_ms.load(), all.launch_patience_ms.load()});
  const CUresult error = call();
  const CUcontext context = current_context(all.real);
  all.turns.end_wait(error == CUDA_SUCCESS ? mark(all, stream, context) : nullptr, context,
                     *device);
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
CUresult wait_external(const CUexternalSemaphore* semaphores,
                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned int count,
                       CUstream stream) {
  return submit_wait(stream, [&] {
    return g_installed->real.cuWaitExternalSemaphoresAsync(semaphores, params, count, stream);
  });
}

CUresult destroy_green(CUgreenCtx green) {
  Installed& all = *g_installed;
  CUcontext context = nullptr;
  if (all.real.cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS)
    all.turns.forget(all.real, context);
  return all.real.cuGreenCtxDestroy(green);
}

}  // namespace

void install_quiet_calls(Driver& table) {
  g_installed = new Installed{table};
#define TUBE_QUIET(name) table.name = Quiet<&Driver::name>::call
  TUBE_QUIET(cuLibraryLoadData);  // its code comes later (main.cc: lazily), its variables may not
  TUBE_QUIET(cuModuleUnload);
  TUBE_QUIET(cuLibraryUnload);
  TUBE_QUIET(cuModuleGetFunction);  // does not wait, but holds what comes after, and its module has
                                    // settled
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
  return g_installed == nullptr ? CUDA_SUCCESS
                                : g_installed->settled.prepare(g_installed->real, device, context);
}

CUresult quietly(const std::function<CUresult()>& call, QuietOn on) {
  if (g_installed == nullptr) return call();
  const Turn turn(*g_installed, Turn::When::kWait, on);
  return call();
}

CUresult quietly_unsettling(const std::function<CUresult()>& call) {
  return g_installed == nullptr ? call() : call_and_settle(*g_installed, std::cref(call));
}

CUresult launch_in_turn(LaunchTurn turn, const std::function<CUresult()>& launch) {
  if (g_installed == nullptr || turn == LaunchTurn::kNone) return launch();
  const Turn taken(*g_installed,
                   turn == LaunchTurn::kFirst ? Turn::When::kFirstLaunch : Turn::When::kWait);
  return launch();
}

bool quietly_if_nobody_waits(const std::function<void()>& call, QuietOn on) {
  if (g_installed == nullptr) return call(), true;
  const Turn turn(*g_installed, Turn::When::kNowOrNever, on);
  if (!turn.refused()) call();
  return !turn.refused();
}

void quietly_all_the_same(const std::function<void()>& call) {
  if (g_installed == nullptr) return call();
  const Turn turn(*g_installed, Turn::When::kNow, QuietOn::kAllGpus);
  call();
}

void session_works_on(CUdevice device) { session_gpus() |= only(device); }

uint32_t quiet_patience_ms() {
  return g_installed != nullptr ? g_installed->patience_ms.load() : kPatience;
}

void set_quiet_patience(uint32_t milliseconds) {
  if (g_installed != nullptr) g_installed->patience_ms = milliseconds;
}

void set_launch_patience(uint32_t milliseconds) {
  if (g_installed != nullptr) g_installed->launch_patience_ms = milliseconds;
}

}  // namespace tube::proxy

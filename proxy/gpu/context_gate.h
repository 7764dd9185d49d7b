// The context gate: keeps driver calls that wait for a whole context, and streams that wait for a
// program, out of each other's way.
//
// Loading and unloading code, giving back memory that cuMemAlloc, cuMemHostRegister or
// cuArrayCreate made, making a green context or the instance of a graph, and the first launch of a
// kernel that needs more local memory than any before it make the driver wait until the context is
// idle, and every launch of every client stands still meanwhile (measured,
// docs/decisions/0009-context-gate.md). These are the context-wide calls. Looking up a kernel, and
// the first launch that prints or allocates, do not wait, but what is submitted behind them does.
// When a stream of one client waits for a value that its program has yet to write, and that program
// first wants to launch something, another client's module load would stop both for good.
//
// So the two pass a gate in front of the driver; policies/gate_admission.h says when. The one that
// has to stand there stands alone; all others go on. A wait is over when the event recorded behind
// it is. Waits have owners: those of a program count; a wait of the proxy's own is for work that
// has been submitted, ends by itself, and keeps nobody out.
//
// Each GPU has its gate: a call waits for the context that it was made in, and programs on two GPUs
// may depend on each other (NCCL: a kernel of one goes on when the other has launched its own). A
// session that works on several GPUs passes the gates of all of these, since some of its calls wait
// for another context than the current one (cuMemFree of the other GPU's memory, instances of
// graphs with nodes on both). A wait stands behind such a call, and behind a first launch that
// prints or allocates, for about the patience at most: those may stand for other programs.
//
// The gate (rank 12) comes before every lock that another session needs for a call that natively
// waits for nothing, or the stream that is waited for is never released. A thread that is inside
// passes again at once; a call of more GPUs takes the gates that are missing. Several
// context-wide calls, or a lock around them, belong into one context_wide().
//
// A call that stands for long, or is made although a stream waits, is logged with the names of both
// programs, and standing() lists it. A stopped program (SIGSTOP) is not patiently passed by: the
// call stays out of the driver, where everybody would stand with it, until the program goes on or
// is ended (server/gate_watch.cc).
//
// Inside the gate a call that waits in the driver first has a quiet moment (quiet_moments.h): a
// long kernel that runs ends outside of the driver, while short launches of others go on.
//
// Any thread, by the GateCaller of that thread (driver_wrappers.h). Costs a call an uncontended
// lock, a wait an event.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/cuda_api.h"
#include "policies/gate_admission.h"
#include "proxy/gpu/deferred_setup.h"
#include "proxy/gpu/quiet_moments.h"
#include "proxy/gpu/stream_reserve.h"

namespace tube::proxy {

struct Driver;

// For whom a thread makes its driver calls, and what it has passed. One for each thread.
class GateCaller {
 public:
  // The session, or policies::kGateProxy.
  uint64_t owner = policies::kGateProxy;
  // The session has work on this GPU from here on. Costs nothing.
  void works_on(CUdevice device) { gpus_ |= policies::GateGpus{1} << device; }

 private:
  friend class ContextGate;
  policies::GateGpus gpus_ = 0;     // that its session works on
  policies::GateGpus inside_ = 0;   // whose gates it has passed
  policies::GateGpus patient_ = 0;  // of these, as a context-wide call that had patience
};

// Whose waits a call minds: those of the current context's GPU and of the session's other ones, or
// of all GPUs.
enum class GateSpan : uint32_t { kItsGpus, kAllGpus };
// How a launch passes: most need no gate; the first on a GPU that may print, assert or allocate
// holds what is submitted behind it; one that needs more local memory than any before is
// context-wide.
enum class LaunchGate : uint32_t { kNone, kFirstUse, kContextWide };
// What lets a waiting stream go on: its program, or the end of work that has been submitted.
enum class WaitOwner : uint32_t { kProgram, kProxy };
// Whether a call waits in the driver for all that runs, as most do, or only if the driver lacks
// something (instances of graphs).
enum class WaitsFor : uint32_t { kAllThatRuns, kNothingMostly };

// A session that stands at the gate, or in the driver beside waits.
struct GateStanding {
  uint64_t owner = 0;
  const char* what = "";  // the call, or "a stream's wait"
  uint64_t since_ns = 0;
  bool in_driver = false;
  uint64_t behind = 0;                // the owner in the way; kGateProxy: nobody in particular
  const char* behind_what = nullptr;  // its call; nullptr: its stream waits for a value
  uint64_t behind_since_ns = 0;
};

class ContextGate {
 public:
  using Call = std::function<CUresult()>;

  // `driver` outlives this. Its entries may be wrapped later (driver_wrappers.h): unwrapped() then.
  explicit ContextGate(const Driver& driver);
  ~ContextGate();
  ContextGate(const ContextGate&) = delete;
  ContextGate& operator=(const ContextGate&) = delete;

  // ---- set up
  // Keeps the entries as they are now; before other threads.
  const Driver& keep_unwrapped(const Driver& table);
  const Driver& unwrapped() const { return *driver_; }
  // Before any client, for each GPU's context, which is current. An error: what follows works, but
  // a launch of one client may hold others up.
  CUresult prepare(CUdevice device, CUcontext context);
  // nullptr: nobody keeps anything back; then returns when no moment of the former one lasts.
  void set_quiet_moments(QuietMoments* moments) {
    std::unique_lock lock(quiet_mutex_);
    quiet_ = moments;
  }
  // A session and its program, for messages and to see whether it is stopped. Any thread.
  void joined(uint64_t owner, std::string name, int pid);
  void left(uint64_t owner);
  // Called, with no lock held, when somebody has stood for a second or goes into the driver beside
  // a wait: somebody should look at standing(). Any thread.
  void on_standing(std::function<void()> tell);
  // How long a call stands for waits; how long for those of a stopped program.
  void set_patience(uint32_t milliseconds) { patience_ms_ = milliseconds; }
  uint32_t patience_ms() const { return patience_ms_.load(); }
  void set_stopped_patience(uint32_t milliseconds) { stopped_ms_ = milliseconds; }

  // ---- calls
  // `call` inside the gate: stands for its patience for the streams that wait for other programs,
  // and then as long as the driver does, which may be without end. No lock but the session's own
  // may be held (above). `what` names it and lives for ever. Straight away when the thread is
  // inside, and when no context is current.
  CUresult context_wide(GateCaller& caller, const char* what, const Call& call,
                        GateSpan span = GateSpan::kItsGpus,
                        WaitsFor waits = WaitsFor::kAllThatRuns);
  // The same for a call that brings code or changes what all kernels need: what it deferred is done
  // before the gate opens (deferred_setup.h).
  CUresult context_wide_deferring(GateCaller& caller, const char* what, const Call& call);
  // A launch, or an update of a graph's instance, as its LaunchGate says.
  CUresult launch(GateCaller& caller, LaunchGate how, const Call& call);
  // Skips the call when the gate is closed; the caller has a fallback. False: skipped. The caller's
  // own waits close it too: natively this call would not be made at all, or not wait for them.
  bool if_open(GateCaller& caller, const std::function<void()>& call,
               GateSpan span = GateSpan::kItsGpus);
  // For a caller that has had patience itself: `call` inside the gates of all GPUs although streams
  // wait for programs. Stands for those of stopped programs alone.
  void beside_waits(GateCaller& caller, const char* what, const std::function<void()>& call);
  // True inside a context-wide call of this GPU when no stream there waits for a program, the
  // caller's own included.
  bool open_inside(const GateCaller& caller, CUdevice device);
  bool inside(const GateCaller& caller, CUdevice device) const;

  // ---- waits
  // Submits, by `submit`, a wait to `stream` of the current context. A program's stands behind the
  // context-wide calls in the driver, and keeps later ones out until the stream has passed it.
  CUresult submit_wait(GateCaller& caller, WaitOwner owner, CUstream stream, const Call& submit);
  // The context is about to end, and its events with it.
  void forget_context(CUcontext context);

  // Whether a stream of this GPU that began to wait at `until_ns` or before waits for the program
  // of `owner`.
  bool waits_for(uint64_t owner, CUdevice device, uint64_t until_ns);
  // Whether one more stream of this GPU may wait for the program of `owner`.
  bool wait_has_room(uint64_t owner, CUdevice device, policies::WaitRoom room);

  // ---- looking
  // The sessions that stand now. Asks the driver about events, which never waits.
  std::vector<GateStanding> standing();

  StreamReserve& reserve() { return reserve_; }
  std::optional<CUdevice> current_device() const;  // none without a context
  CUcontext current_context() const;

 private:
  enum class When { kWait, kNow, kNowOrNever, kFirstUse };
  class Pass;
  struct Owner {
    std::string name;
    int pid = 0;
  };
  struct Entry {  // of a call
    policies::GateCall call;
    GateStanding standing;
    bool bounded = false;
    bool told = false;
  };

  struct Mark {
    CUevent event = nullptr;  // behind the wait in its stream, of `context`
    CUcontext context = nullptr;
  };

  void begin(Entry& entry);
  void stand_before(std::unique_lock<std::mutex>& lock, Entry& entry);
  void remove(Entry& entry);
  bool try_begin(Entry& entry);
  void end(Entry& entry);
  void begin_wait(const GateCaller& caller, CUdevice device);
  void stand(std::unique_lock<std::mutex>& lock, const GateCaller& caller, CUdevice device);
  void end_wait(const GateCaller& caller, CUevent event, CUcontext context, CUdevice device);
  CUevent mark(CUstream stream, CUcontext context);
  CUevent spare_event(CUcontext context);
  void count(const Entry& entry, int one);
  void look_for_stopped(std::unique_lock<std::mutex>& lock, const policies::GateCall& call);
  void say(std::unique_lock<std::mutex>& lock, const GateStanding& standing);
  bool waits_on_their_way(policies::GateGpus gpus) const;
  void keep_spare(const Mark& mark);
  void forget_ended();
  policies::GateGpus all_gpus() const;
  void name_call_inside(CUdevice device, GateStanding& standing) const;
  std::string name_of(uint64_t owner) const;

  const Driver* driver_;
  std::unique_ptr<const Driver> kept_;
  std::shared_mutex quiet_mutex_;  // shared as long as a moment lasts
  QuietMoments* quiet_ = nullptr;
  DeferredSetup deferred_;
  StreamReserve reserve_;
  std::atomic<uint32_t> patience_ms_;
  std::atomic<uint32_t> stopped_ms_;

  // The last lock to be taken: nothing is called under it but the driver's event calls, which never
  // wait.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<policies::GateWait> waits_;  // in the order of marks_
  std::vector<Mark> marks_;
  std::map<CUcontext, std::vector<CUevent>> spares_;  // few: the GPUs' own contexts and green ones
  size_t look_at_;                                    // so many waits: see which have ended
  std::array<policies::GateTraffic, 64> traffic_;     // by device
  std::list<Entry*> calls_;                           // standing or in the driver
  std::list<GateStanding> standing_waits_;
  std::map<uint64_t, Owner> owners_;
  std::function<void()> on_standing_;
};

// Whether the process is stopped by a signal (state T of /proc/PID/stat). False where that cannot
// be read.
bool process_is_stopped(int pid);

}  // namespace tube::proxy

// Host functions: the program's function runs in this process, the stream waits for it.
//
// The GPU writes word `reached` and then waits for word `done` (tubeHostFunc). One helper thread
// per process, started with the first host function, takes them in the order in which they were
// posted per stream: it waits for `reached`, runs the function, stores `done`. Functions of
// different streams may be ready in another order than posted, so the helper looks at the head of
// every stream's queue and runs whichever is ready. CUDA allows callbacks to be serialised like
// this.
//
// The same thread runs the host functions of graphs and the destructors of user objects
// (user_object.cc). Copies of pageable memory in graphs (graph_steps.h) have a second thread,
// started with the first graph that has one: a host function may wait for a thread that waits for
// such a copy, which natively no thread does.
//
// After an error of the context, or the end of the proxy or of this session, host functions and
// steps are not run: what they waited for may not have happened (a proxy that ends lets go what
// streams wait for). Stream callbacks are run, with the error.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <vector>

#include "base/futex.h"
#include "base/log.h"
#include "base/timer_slack.h"
#include "hook/graphs/graph_steps.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "sharedmem/accessors.h"

namespace tube::hook {
namespace {

struct HostCall {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  void* data = nullptr;
  CUstream stream = nullptr;
  uint64_t value = 0;
};

// Two words and a queue for a stream that has host functions; another stream's when the queue is
// empty.
struct Lane {
  uint64_t stream_id = 0;
  Context* context = nullptr;
  uint32_t reached = 0;
  uint32_t done = 0;
  std::deque<HostCall> calls;
};

struct HostThread {
  // Rank 5: all below. A call is queued while its record is written, so that queue and ring agree
  // on the order. Never held while waiting for the proxy, which may itself wait for work that a
  // host function lets go on.
  Lock lock;
  std::vector<Lane*> lanes;
  bool started = false, copies_started = false;
  uint32_t wake = 0;  // futexes: count posts
  uint32_t wake_copies = 0;
};
HostThread& host_thread() {
  static HostThread* t = new HostThread;
  return *t;
}

// What the GPU has to write before the heads of the lanes may run, looked at without the lock.
struct Heads {
  static constexpr uint32_t kMost = 16;
  uint32_t count = 0;
  uint32_t words[kMost];
  uint64_t values[kMost];

  void add(uint32_t word, uint64_t value) {
    if (count < kMost) {
      words[count] = word;
      values[count] = value;
    }
    ++count;
  }
  bool all_known() const { return count <= kMost; }
  bool any_reached() const {
    for (uint32_t i = 0; i < count; ++i)
      if (connection().words.reached(words[i], values[i])) return true;
    return false;
  }
};

// The next call whose turn it is; every one when the work has failed. False: `heads` are waited
// for.
bool take_ready(HostThread& t, bool failed, HostCall* call, Lane** lane, Heads* heads) {
  Locked locked(t.lock);
  for (Lane* l : t.lanes) {
    if (l->calls.empty()) continue;
    heads->add(l->reached, l->calls.front().value);
    if (!failed && !connection().words.reached(l->reached, l->calls.front().value)) continue;
    *call = l->calls.front();
    *lane = l;
    return true;
  }
  return false;
}

void finish(HostThread& t, Lane* lane, uint64_t value) {
  Locked locked(t.lock);
  connection().words.store(lane->done, value);
  lane->calls.pop_front();
}

// Until one of the heads is reached or something is posted: a wait like others (sharedmem/wait.h),
// which spins as long as that paid lately, for the program often sleeps until its function runs.
shared::WaitResult wait_for(const Heads& heads, uint32_t* wake, uint32_t seen) {
  Connection& c = connection();
  shared::Probe probe;
  probe.posts = wake;
  probe.seen = seen;
  return c.waiter.until_polled(shared::WaitReason::kCallback, c.peer, probe, [&] {
    return heads.any_reached() || __atomic_load_n(wake, __ATOMIC_ACQUIRE) != seen;
  });
}

// Of a proxy that is gone others may never hear: the program sleeps until its function runs.
void take_note(shared::WaitResult result) {
  if (result == shared::WaitResult::kPeerDead || result == shared::WaitResult::kStopping)
    (void)transport_failed(result);
}

// Everything else is looked at by the clock, faster when there was work lately, for words have no
// waker. A user object may live for hours, so with nothing else to wait for the pause becomes long;
// calls that may end one wake the thread.
class Pauses {
 public:
  void shorten() { ns_ = kShortNs; }
  // What has been posted so far; the next sleep ends when there is more.
  uint32_t look(const uint32_t* wake) {
    const uint32_t seen = __atomic_load_n(wake, __ATOMIC_ACQUIRE);
    if (seen != before_) shorten();
    return before_ = seen;
  }
  // `soon`: the GPU may get to something at any time; `objects`: some day.
  void sleep(uint32_t* wake, uint32_t seen, bool soon, bool objects) {
    std::optional<NarrowTimerSlack> narrow;
    if (soon) narrow.emplace();
    futex_wait(wake, seen, soon || objects ? ns_ : kNoTimeout);
    if (soon && (slept_ns_ += ns_) >= kPeerCheckNs) {
      slept_ns_ = 0;
      take_note(shared::check_peer(connection().peer, true));
    }
    ns_ = std::min(ns_ * 5 / 4, soon ? kLongNs : kIdleNs);
  }

 private:
  static constexpr uint64_t kShortNs = 20'000, kLongNs = 250'000, kIdleNs = 100'000'000,
                            kPeerCheckNs = 50'000'000;
  uint64_t ns_ = kShortNs, slept_ns_ = 0;
  uint32_t before_ = 0;
};

void* run(void*) {
  HostThread& t = host_thread();
  pthread_setname_np(pthread_self(), "tube-callbacks");
  this_thread().in_callback = true;
  Pauses pauses;
  for (;;) {
    const uint32_t seen = pauses.look(&t.wake);
    HostCall call;
    Lane* lane = nullptr;
    Heads heads;
    bool steps = false, objects = false;
    const bool failed = work_failure() != CUDA_SUCCESS;
    if (take_ready(t, failed, &call, &lane, &heads)) {
      const CUresult failure = work_failure();  // since its turn came
      if (call.callback != nullptr) call.callback(call.stream, failure, call.data);
      if (call.function != nullptr && failure == CUDA_SUCCESS) call.function(call.data);
      finish(t, lane, call.value);
      pauses.shorten();
      continue;
    }
    if (run_due_step(StepKind::kFunction, failed, &steps) || run_due_destructor(&objects)) {
      pauses.shorten();
      continue;
    }
    if (process().state() != State::kReady) return nullptr;
    const bool heads_alone = heads.count != 0 && heads.all_known() && !steps && !objects;
    if (heads_alone) {
      const shared::WaitResult result = wait_for(heads, &t.wake, seen);
      take_note(result);
      if (result == shared::WaitResult::kDone) continue;
    }
    pauses.sleep(&t.wake, seen, heads.count != 0 || steps, objects);
  }
}

void* run_copies(void*) {
  HostThread& t = host_thread();
  pthread_setname_np(pthread_self(), "tube-graphs");
  Pauses pauses;
  for (;;) {
    const uint32_t seen = pauses.look(&t.wake_copies);
    bool steps = false;
    if (run_due_step(StepKind::kCopy, work_failure() != CUDA_SUCCESS, &steps)) {
      pauses.shorten();
      continue;
    }
    if (process().state() != State::kReady) return nullptr;
    pauses.sleep(&t.wake_copies, seen, steps, false);
  }
}

// Lock held.
bool start(void* (*body)(void*), bool* started) {
  if (*started) return true;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  *started = pthread_create(&thread, nullptr, body, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (*started) pthread_detach(thread);
  return *started;
}

// The stream's lane; an idle one of another stream is reused, because its values only grow. Lock
// held.
Lane* lane_for(HostThread& t, const Stream* stream) {
  Lane* idle = nullptr;
  for (Lane* l : t.lanes) {
    if (l->stream_id == stream->id && l->context == stream->context) return l;
    if (l->calls.empty()) idle = l;
  }
  if (idle == nullptr) {
    idle = new (std::nothrow) Lane;
    if (idle == nullptr) return nullptr;
    idle->reached = connection().words.allocate();
    idle->done = connection().words.allocate();
    if (idle->reached == shared::kNoWord || idle->done == shared::kNoWord) {
      connection().words.release(idle->reached);  // passes over kNoWord
      connection().words.release(idle->done);
      delete idle;
      return nullptr;
    }
    t.lanes.push_back(idle);
  }
  idle->stream_id = stream->id;
  idle->context = stream->context;
  return idle;
}

// Queues the call and fills in its record: one value for both words, above everything either ever
// had. False: out of memory or words.
bool queue(HostThread& t, const Stream* stream, HostCall& call, wire::tubeHostFunc& record) {
  shared::Words& words = connection().words;
  Locked locked(t.lock);
  Lane* lane = lane_for(t, stream);
  if (lane == nullptr) return false;
  do {
    call.value = words.next_value(lane->reached);
  } while (call.value <= words.last_value(lane->done) && call.value != 0);
  while (words.last_value(lane->done) < call.value) words.next_value(lane->done);
  record.stream = stream->id;
  record.reached = lane->reached;
  record.done = lane->done;
  record.value = call.value;
  lane->calls.push_back(call);
  return true;
}

CUresult post_host_call(CUstream hStream, HostCall call) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (capturing(stream)) {
    if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
    return call.function != nullptr ? capture_function(stream, call.function, call.data)
                                    : forbid_capture(stream);
  }
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  if (!start_callbacks()) return CUDA_ERROR_OUT_OF_MEMORY;
  call.stream = hStream;
  {
    Request<wire::tubeHostFunc> r(stream);
    if (r.sendable() && !queue(host_thread(), stream, call, *r.operator->()))
      return CUDA_ERROR_OUT_OF_MEMORY;
    if (const CUresult posted = r.post(); posted != CUDA_SUCCESS) return posted;
  }
  wake_callbacks();
  return CUDA_SUCCESS;
}

}  // namespace

bool start_callbacks() {
  HostThread& t = host_thread();
  Locked locked(t.lock);
  return start(run, &t.started);
}

bool start_copies() {
  HostThread& t = host_thread();
  Locked locked(t.lock);
  return start(run_copies, &t.copies_started);
}

void wake_callbacks() {
  HostThread& t = host_thread();
  for (uint32_t* wake : {&t.wake, &t.wake_copies}) {
    __atomic_fetch_add(wake, 1, __ATOMIC_RELEASE);
    futex_wake(wake, 1);
  }
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HostCall call;
  call.function = fn;
  call.data = userData;
  return post_host_call(hStream, call);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  HostCall call;
  call.callback = callback;
  call.data = userData;
  return post_host_call(hStream, call);
}

}  // namespace tube::hook

// How simulated work runs: fences, operations, lanes and the pool of workers that executes them.
//
// A Lane is an ordered queue (one per stream; one short-lived lane per graph node). Only its head
// may run, and only when every fence it waits for is done. Ready heads go to a pool that always has
// a worker to spare, so an operation that never ends (a kernel spinning on a flag, a host function
// waiting for a person) blocks its own lane and nothing else. An operation without a body (event
// record, event wait), or with a short one (a word to write), is completed in place by the thread
// that made it ready. Conditions on memory (cuStreamWaitValue) are watched by one poller thread
// with a growing pause, woken early by every completion. A copy that uses a copy engine goes to a
// worker when that engine says so (copy_engines.h).
//
// All of this is guarded by State::mutex; bodies run without it. Threads block every signal and are
// never joined.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/cuda_api.h"
#include "sim/machine/block_order.h"

namespace tube::sim {

struct Context;
struct Lane;

// One-shot completion. `time_ns` is CLOCK_MONOTONIC at completion, or what the clock of the copy
// engines says.
struct Fence {
  bool done = false;
  uint64_t time_ns = 0;
  std::vector<std::shared_ptr<Lane>> waiters;  // blocked on this one; cleared at completion
};
using FencePtr = std::shared_ptr<Fence>;

// A copy between host and device, as far as the copy engine has to know it.
struct Transfer {
  int device = 0;      // index in the topology
  bool up = true;      // to the device
  uint64_t bytes = 0;  // 0: a word that is written behind a copy
  bool keeps = true;   // not of pageable memory (copy_order.h)
};

// A kernel whose blocks are dealt out.
struct Grid {
  int device = 0;  // index in the topology
  uint64_t blocks = 1;
  SmRange sms = {};  // on which it may run
};

struct Op {
  std::vector<FencePtr> waits;
  std::function<CUresult()> body;  // without the lock; an error becomes the context's sticky error
  std::function<bool()>
      condition;  // without the lock, cheap, must not block; then body (if any) runs
  std::optional<Transfer> transfer;  // the body is a copy that waits for its turn in an engine
  std::optional<Grid> grid;          // the body is a kernel whose blocks take time
  bool in_place =
      false;  // the body is short, takes no lock of ours but leaves and runs with the lock
  bool is_word = false;       // a write of a word, which goes by the queue of a copy before it
  bool run_on_error = false;  // body runs though the context has failed (stream callbacks)
  FencePtr fence;             // made by submit() when empty
};

struct Lane : std::enable_shared_from_this<Lane> {
  Context* context = nullptr;
  int priority = 0;
  bool blocking = false;  // takes part in the legacy stream's ordering
  std::deque<Op> queue;
  bool busy = false;               // head is with a worker, the poller or a copy engine
  uint64_t stream = 0;             // the stream's id; of a graph's node: that of the launch
  size_t hardware_queue = 0;       // hardware_queues.h
  std::optional<Transfer> copied;  // the engine's queue, if the newest operation is a copy
  FencePtr tail;  // fence of the newest operation; null when nothing was ever submitted
};
using LanePtr = std::shared_ptr<Lane>;
using Lock = std::unique_lock<std::mutex>;

uint64_t now_ns();

// Appends to the lane and returns the operation's fence. Call with State::mutex held.
FencePtr submit(Lock& lock, const LanePtr& lane, Op op);

// Blocks until done. Call with the lock held; it is dropped while waiting.
void wait(Lock& lock, const FencePtr& fence);

// Starts a thread that takes no signals and is never joined.
void start_thread(void (*entry)());

// For the copy engines. Hands a copy that is its lane's head to a worker; looks once at what the
// poller watches. With the lock held.
void start_body(const LanePtr& lane);
void look_at_conditions(Lock& lock);

// Whether bodies access memory right now: what they found mapped must stay mapped. A body enters
// the scope before it looks.
bool memory_in_use(Lock& lock);
struct MemoryScope {
  MemoryScope();
  ~MemoryScope();
};

}  // namespace tube::sim

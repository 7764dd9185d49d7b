// The scheduler. advance() moves a lane as far as it can go; everything that can unblock a lane
// ends in a call to it.
#include "sim/machine/engine.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "sim/machine/copy_engines.h"
#include "sim/machine/hardware_queues.h"
#include "sim/machine/state.h"

namespace tube::sim {
namespace {

struct Workers {
  std::deque<LanePtr> ready[2];  // [0]: high priority
  std::condition_variable work;
  unsigned idle = 0;
  unsigned threads = 0;
  std::condition_variable done;  // somebody waits for a fence
  std::vector<LanePtr> polled;   // heads whose condition is not true yet
  std::condition_variable poll;
  bool poller = false;
  uint64_t completions = 0;
};

// Leaked: workers run until the process is gone.
Workers& pool() {
  static Workers* p = new Workers;
  return *p;
}

std::atomic<int> bodies_in_memory{0};

void advance(Lock& lock, const LanePtr& lane);

uint64_t time_of_completion() {
  const CopyEngines* engines = state().copy_engines.get();
  return engines == nullptr ? now_ns() : engines->now();
}

void complete(Lock& lock, const LanePtr& lane) {
  FencePtr fence = std::move(lane->queue.front().fence);
  lane->queue.pop_front();
  if (HardwareQueues* const queues = state().hardware_queues.get(); queues && lane->queue.empty())
    queues->is_idle(*lane);
  fence->done = true;
  fence->time_ns = time_of_completion();
  Workers& p = pool();
  ++p.completions;
  p.done.notify_all();
  if (!p.polled.empty()) p.poll.notify_one();
  auto waiters = std::move(fence->waiters);
  for (LanePtr& waiter : waiters) advance(lock, waiter);
}

void fail(Context* context, CUresult result) {
  CUresult none = CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) context->error.compare_exchange_strong(none, result);
}

void run_body(Lock& lock, const LanePtr& lane) {
  Op& op = lane->queue.front();
  Context* context = lane->context;
  const std::optional<Transfer> transfer = op.transfer;
  const bool dealt = op.grid.has_value();
  if (op.body && (op.run_on_error || context->error.load() == CUDA_SUCCESS)) {
    auto body = std::move(op.body);
    lock.unlock();
    CUresult result = body();
    body = nullptr;  // captured buffers go without the lock
    lock.lock();
    fail(context, result);
  }
  CopyEngines* engines = state().copy_engines.get();
  if (transfer) engines->reach_end(*transfer);
  lane->busy = false;
  complete(lock, lane);
  advance(lock, lane);
  if (transfer) engines->left(lock, *transfer);
  if (dealt) engines->kernel_left(lock);
}

void worker() {
  Workers& p = pool();
  Lock lock(state().mutex);
  for (;;) {
    while (p.ready[0].empty() && p.ready[1].empty()) {
      ++p.idle;
      p.work.wait(lock);
      --p.idle;
    }
    auto& queue = p.ready[0].empty() ? p.ready[1] : p.ready[0];
    LanePtr lane = std::move(queue.front());
    queue.pop_front();
    run_body(lock, lane);
  }
}

void run_in_place(const LanePtr& lane) {
  const Op& op = lane->queue.front();
  if (op.run_on_error || lane->context->error.load() == CUDA_SUCCESS)
    fail(lane->context, op.body());
}

void make_ready(const LanePtr& lane) {
  Workers& p = pool();
  lane->busy = true;
  p.ready[lane->priority < 0 ? 0 : 1].push_back(lane);
  size_t waiting = p.ready[0].size() + p.ready[1].size();
  if (p.idle >= waiting) {
    p.work.notify_one();
  } else {
    ++p.threads;
    start_thread(&worker);
  }
}

// True when a context failed: conditions are then dropped so that nothing hangs.
bool satisfied(const LanePtr& lane) {
  Op& op = lane->queue.front();
  return lane->context->error.load() != CUDA_SUCCESS || lane->context->cancel->load() ||
         op.condition();
}

// Goes on with the lanes whose condition is true; false: none.
bool look(Lock& lock) {
  std::vector<LanePtr> met;
  std::erase_if(pool().polled, [&met](const LanePtr& lane) {
    if (!satisfied(lane)) return false;
    met.push_back(lane);
    return true;
  });
  for (LanePtr& lane : met) {
    lane->busy = false;
    lane->queue.front().condition = nullptr;
    advance(lock, lane);
  }
  return !met.empty();
}

void poller() {
  Workers& p = pool();
  Lock lock(state().mutex);
  auto pause = std::chrono::microseconds(5);
  for (;;) {
    while (p.polled.empty()) {
      p.poll.wait(lock);
      pause = std::chrono::microseconds(5);
    }
    if (look(lock)) pause = std::chrono::microseconds(5);
    if (p.polled.empty()) continue;
    uint64_t seen = p.completions;
    p.poll.wait_for(lock, pause, [&p, seen] { return p.completions != seen; });
    pause = std::min(pause * 2, std::chrono::microseconds(500));
  }
}

void watch(const LanePtr& lane) {
  Workers& p = pool();
  lane->busy = true;
  p.polled.push_back(lane);
  if (!p.poller) {
    p.poller = true;
    start_thread(&poller);
  }
  p.poll.notify_one();
}

void advance(Lock& lock, const LanePtr& lane) {
  while (!lane->busy && !lane->queue.empty()) {
    Op& op = lane->queue.front();
    while (!op.waits.empty() && op.waits.back()->done) op.waits.pop_back();
    if (!op.waits.empty()) {
      op.waits.back()->waiters.push_back(lane);
      return;
    }
    if (op.condition) {
      if (!satisfied(lane)) return watch(lane);
      op.condition = nullptr;
    }
    if (op.transfer) {
      lane->busy = true;
      return state().copy_engines->add(lane, *op.transfer);
    }
    if (op.grid) {
      lane->busy = true;
      return state().copy_engines->add(lane, *op.grid);
    }
    if (op.body && !op.in_place) return make_ready(lane);
    if (op.body) run_in_place(lane);
    complete(lock, lane);
  }
}

}  // namespace

uint64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1000000000ull + static_cast<uint64_t>(ts.tv_nsec);
}

void start_thread(void (*entry)()) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread(entry).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

FencePtr submit(Lock& lock, const LanePtr& lane, Op op) {
  if (!op.fence) op.fence = std::make_shared<Fence>();
  FencePtr fence = op.fence;
  lane->tail = fence;
  if (HardwareQueues* const queues = state().hardware_queues.get()) queues->submits(*lane, op);
  if (op.transfer) {
    lane->copied = op.transfer;
    lane->copied->bytes = 0;
  } else if (op.is_word) {
    op.transfer = lane->copied;
  } else if (op.body && !op.in_place) {
    lane->copied.reset();
  }
  bool first = lane->queue.empty();
  lane->queue.push_back(std::move(op));
  if (first) advance(lock, lane);
  return fence;
}

void start_body(const LanePtr& lane) { make_ready(lane); }

void look_at_conditions(Lock& lock) {
  while (look(lock)) {
  }
}

void wait(Lock& lock, const FencePtr& fence) {
  if (!fence) return;
  pool().done.wait(lock, [&fence] { return fence->done; });
}

MemoryScope::MemoryScope() { bodies_in_memory.fetch_add(1); }
MemoryScope::~MemoryScope() { bodies_in_memory.fetch_sub(1); }
bool memory_in_use(Lock&) { return bodies_in_memory.load() != 0; }

}  // namespace tube::sim

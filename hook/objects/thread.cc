#include "hook/objects/thread.h"

#include <pthread.h>

#include <cstdlib>
#include <new>

namespace tube::hook {

namespace {

// Trivial, so that the thread-local needs no destructor; the pthread key recycles the Thread when
// the thread ends.
thread_local constinit Thread* t_thread = nullptr;

struct ThreadPool {
  Lock lock;  // rank 1
  Thread* free = nullptr;
  uint32_t count = 0;
  pthread_key_t key{};
  bool has_key = false;
};
constinit ThreadPool g_threads;

void destroy_own_streams(Thread& thread) {
  const bool usable = process().state() == State::kReady;
  for (uint32_t i = 0; usable && i < thread.own_stream_count; ++i) {
    const PerThreadStream& own = thread.own_streams[i];
    Locked locked(
        own.context->life);  // another thread may be ending the context, and this stream with it
    const Slot* slot = objects().find(Kind::kStream, own.handle);
    auto* stream = slot != nullptr ? static_cast<Stream*>(slot->object) : nullptr;
    // A capturing stream stays, with its capture, until its context ends: no thread can end the
    // capture any more.
    if (stream != nullptr && !capturing(stream)) destroy_stream(stream);
  }
  thread.own_stream_count = 0;
}

void thread_ended(void* argument) {
  auto* thread = static_cast<Thread*>(argument);
  t_thread = nullptr;
  if (is_forked_child()) return;  // a thread that is not here may hold the lock
  destroy_own_streams(*thread);
  thread->depth = 0;
  thread->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  thread->per_thread_default = false;
  thread->operation_stream = nullptr;
  Locked locked(g_threads.lock);
  thread->next_free = g_threads.free;
  g_threads.free = thread;
}

__attribute__((noinline)) Thread& make_thread() {
  Thread* thread = nullptr;
  {
    Locked locked(g_threads.lock);
    if (!g_threads.has_key)
      g_threads.has_key = pthread_key_create(&g_threads.key, thread_ended) == 0;
    thread = g_threads.free;
    if (thread != nullptr) {
      g_threads.free = thread->next_free;
    } else {
      thread = new (std::nothrow) Thread;
      if (thread == nullptr) std::abort();  // not even a hundred bytes
      thread->number = ++g_threads.count;
    }
  }
  if (g_threads.has_key) pthread_setspecific(g_threads.key, thread);
  t_thread = thread;
  return *thread;
}

}  // namespace

Thread& this_thread() {
  Thread* thread = t_thread;
  return thread != nullptr ? *thread : make_thread();
}

Context* current_context() {
  const Thread* thread = t_thread;
  return thread == nullptr || thread->depth == 0 ? nullptr : thread->stack[thread->depth - 1];
}

bool push_context(Context* context) {
  Thread& thread = this_thread();
  if (thread.depth == thread.capacity) {
    const uint32_t capacity = thread.capacity == 0 ? 8 : thread.capacity * 2;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
    auto* grown = static_cast<Context**>(std::realloc(thread.stack, capacity * sizeof(Context*)));
    if (grown == nullptr) return false;
    thread.stack = grown;
    thread.capacity = capacity;
  }
  thread.stack[thread.depth++] = context;
  return true;
}

}  // namespace tube::hook

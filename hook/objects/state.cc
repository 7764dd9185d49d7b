// Threads, contexts and streams as objects; the calls on them are in context.cc, streams.cc and
// events.cc.
#include "hook/objects/state.h"

#include <pthread.h>
#include <algorithm>

#include <cstdlib>
#include <new>

#include "hook/memory/pinned_cache.h"
#include "hook/memory/pool_cache.h"
#include "hook/objects/support.h"

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
    // One that captures stays, and its capture with it, until its context ends: nobody can end it
    // any more.
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

std::atomic<uint64_t> g_unique{1};

void link_stream(Stream* stream) {
  Locked locked(stream->context->streams_lock);
  stream->previous = nullptr;
  stream->next = stream->context->streams;
  if (stream->next != nullptr) stream->next->previous = stream;
  stream->context->streams = stream;
}

void unlink_stream(Stream* stream) {
  Locked locked(stream->context->streams_lock);
  if (stream->previous != nullptr) stream->previous->next = stream->next;
  if (stream->next != nullptr) stream->next->previous = stream->previous;
  if (stream->context->streams == stream) stream->context->streams = stream->next;
  stream->next = stream->previous = nullptr;
}

// A stream object for a new slot; the slot's former object is reused.
Stream* allocate_stream(Context* context, uint32_t flags, int32_t priority) {
  Slot* slot = objects().allocate(Kind::kStream);
  if (slot == nullptr) return nullptr;
  auto* stream = static_cast<Stream*>(slot->object);
  if (stream == nullptr) stream = new (std::nothrow) Stream;
  if (stream == nullptr) return nullptr;
  slot->object = stream;
  stream->slot = slot;
  stream->context = context;
  stream->id = slot->id;
  stream->unique = next_unique();
  stream->flags = flags;
  stream->priority = priority;
  stream->per_thread = false;
  stream->word = 0;
  stream->posted = stream->signalled = stream->value = 0;
  stream->capture.store(nullptr, std::memory_order_relaxed);
  return stream;
}

Stream* own_stream(Context* context, CUresult* error) {
  Thread& thread = this_thread();
  for (uint32_t i = 0; i < thread.own_stream_count; ++i) {
    PerThreadStream& own = thread.own_streams[i];
    if (own.context != context) continue;
    if (const Slot* slot = objects().find(Kind::kStream, own.handle); slot != nullptr)
      return static_cast<Stream*>(slot->object);
    own = thread.own_streams[--thread.own_stream_count];  // the context was reset meanwhile, or
                                                          // another one has its place
    break;
  }
  Stream* stream = nullptr;
  *error = create_stream(context, 0, 0, &stream);
  if (*error != CUDA_SUCCESS) return nullptr;
  stream->per_thread = true;
  auto* grown = static_cast<PerThreadStream*>(
      std::realloc(thread.own_streams, (thread.own_stream_count + 1) * sizeof(PerThreadStream)));
  if (grown == nullptr) {
    destroy_stream(stream);
    *error = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  thread.own_streams = grown;
  thread.own_streams[thread.own_stream_count++] = PerThreadStream{context, stream->handle()};
  return stream;
}

}  // namespace

uint64_t next_unique() { return g_unique.fetch_add(1, std::memory_order_relaxed); }

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
    auto* grown = static_cast<Context**>(std::realloc(thread.stack, capacity * sizeof(Context*)));
    if (grown == nullptr) return false;
    thread.stack = grown;
    thread.capacity = capacity;
  }
  thread.stack[thread.depth++] = context;
  return true;
}

Context* find_context(CUcontext handle) {
  Slot* slot = objects().find(Kind::kContext, handle);
  return slot == nullptr ? nullptr : static_cast<Context*>(slot->object);
}

Context* find_context_or_gone(CUcontext handle) {
  if (Context* context = find_context(handle);
      context != nullptr || !objects().gone(Kind::kContext, handle))
    return context;
  static Lock lock;
  static Context* gone = nullptr;
  Locked locked(lock);
  if (gone == nullptr) {
    Slot* slot = objects().allocate(Kind::kContext);
    auto* context = new (std::nothrow) Context;
    if (slot == nullptr || context == nullptr) return nullptr;
    context->slot = slot;  // for its handle; what an earlier context left there stays, since nobody
                           // finds this one by it
    context->legacy.context = context;
    gone = context;
  }
  return gone;
}

CUresult make_primary(uint32_t visible_device) {
  Process& p = process();
  if (p.primaries[visible_device] != nullptr) return CUDA_SUCCESS;
  Slot* slot = objects().allocate(Kind::kContext);
  auto* context = new (std::nothrow) Context;
  if (slot == nullptr || context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  slot->object = context;
  context->slot = slot;
  context->visible_device = visible_device;
  context->device = p.devices[visible_device];
  context->number = context->device + 1;
  context->primary = true;
  context->unique = next_unique();
  context->legacy.context = context;
  context->legacy.id = wire::kLegacyStream;
  context->legacy.unique = next_unique();
  context->api_version = context->info().api_version;
  context->alive.store(true, std::memory_order_relaxed);
  objects().publish(slot);
  p.primaries[visible_device] = context;
  return CUDA_SUCCESS;
}

Stream* find_stream_in(Context* context, CUstream handle, CUresult* error) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value > 2) {
    Slot* slot = objects().find(Kind::kStream, handle);
    if (slot != nullptr) return static_cast<Stream*>(slot->object);
    *error = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  if (context == nullptr) {
    *error = CUDA_ERROR_INVALID_CONTEXT;
    return nullptr;
  }
  if (value == 2 || (value == 0 && this_thread().per_thread_default))
    return own_stream(context, error);
  return &context->legacy;
}

Stream* find_stream(CUstream handle, CUresult* error) {
  return find_stream_in(current_context(), handle, error);
}

Event* find_event(CUevent handle) {
  Slot* slot = objects().find(Kind::kEvent, handle);
  return slot == nullptr ? nullptr : static_cast<Event*>(slot->object);
}

CUresult create_stream(Context* context, uint32_t flags, int32_t priority, Stream** out) {
  const info::DeviceInfo& d = context->info();
  priority = std::clamp(priority, d.greatest_priority, d.least_priority);
  Stream* stream = allocate_stream(context, flags, priority);
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    Request<wire::tubeStreamCreate> r;
    r.in_context(context);
    r->stream = stream->id;
    r->flags = flags;
    r->priority = priority;
    if (const CUresult result = r.post(); result != CUDA_SUCCESS) return result;
  }
  link_stream(stream);
  objects().publish(stream->slot);
  *out = stream;
  return CUDA_SUCCESS;
}

void destroy_stream(Stream* stream) {
  release_kept_of(stream);
  const uint64_t id = stream->id;
  Context* context = stream->context;
  unlink_stream(stream);
  const uint32_t word =
      stream
          ->word;  // until now another thread that synchronises the context might have given it one
  Retired gone(objects());
  if (!gone.add(stream->slot)) return;
  {
    Request<wire::tubeStreamDestroy> r;
    r.in_context(context);
    r->stream = id;
    (void)r.post();
  }
  // Behind the record: until the driver has ended it, others' signals must not go into a capture
  // that they no longer see.
  end_capture_of_destroyed(stream);
  if (word != 0) connection().words.release(word);
}

void forget_streams(Context* context, Retired* gone) {
  forget_kept_of(context);
  forget_kept_pinned(context);
  for (;;) {
    Stream* stream;
    {
      Locked locked(context->streams_lock);
      stream = context->streams;
    }
    if (stream == nullptr) return;
    end_capture_of_destroyed(stream);
    unlink_stream(stream);
    const uint32_t word = stream->word;
    if (gone->add(stream->slot) && word != 0) connection().words.release(word);
  }
}

}  // namespace tube::hook

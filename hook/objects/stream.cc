#include "hook/objects/stream.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "hook/objects/capture.h"
#include "hook/objects/event.h"
#include "hook/objects/handles.h"
#include "hook/objects/listeners.h"
#include "hook/objects/progress.h"
#include "hook/objects/request.h"
#include "hook/objects/thread.h"

namespace tube::hook {

namespace {

std::atomic<uint64_t> g_unique{1};

void link_stream(Stream* stream) {
  Locked locked(stream->context->streams_lock);
  stream->previous = nullptr;
  stream->next = stream->context->streams;
  if (stream->next != nullptr) stream->next->previous = stream;
  stream->context->streams = stream;
}

// `streams_lock` is held.
void unlink_stream(Stream* stream) {
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
  stream->posted = stream->signalled = stream->own_signalled = stream->value = 0;
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

Stream* find_stream_in(Context* context, CUstream handle, CUresult* error) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value > 2) {
    Slot* slot = objects().find(Kind::kStream, handle);
    if (slot != nullptr) return static_cast<Stream*>(slot->object);
    *error = ended_error(Kind::kStream, handle);
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
  Stream* stream = find_stream_in(current_context(), handle, error);
  if (stream == nullptr || !stream->legacy() || !legacy_would_wait(stream, true)) return stream;
  *error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return nullptr;
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
  if (const CUevent behind = context->behind.load(std::memory_order_acquire); behind != nullptr) {
    if (Event* event = find_event(behind)) (void)wait_event(stream, event, 0);
  }
  *out = stream;
  return CUDA_SUCCESS;
}

void destroy_stream(Stream* stream) {
  for (const Listener& listener : listeners())
    if (listener.stream_ends != nullptr) listener.stream_ends(stream);
  Context* context = stream->context;
  Retired gone(objects());
  if (!gone.add(stream->slot)) return;
  uint32_t word;
  {
    // Who waits for the context finds the stream in the list, or its work among that of ended ones:
    // nobody may look between the two, nor mark a stream that the proxy does not know any more.
    Locked locked(context->streams_lock);
    unlink_stream(stream);
    word = stream->word;  // until now another thread might have given it one
    Mark last;
    const bool works = !is_marked(stream, &last) || !mark_reached(last);
    Request<wire::tubeStreamDestroy> r;
    if (works && !stream->blocking()) ++context->ended.posted;  // the legacy stream has the others'
    r.in_context(context);
    r->stream = stream->id;
    (void)r.post();
  }
  // Behind the record: until the driver has ended it, others' signals must not go into a capture
  // that they no longer see.
  end_capture_of_destroyed(stream);
  if (word != 0) connection().words.release(word);
}

void forget_streams(Context* context, Retired* gone) {
  for (const Listener& listener : listeners())
    if (listener.context_ends != nullptr) listener.context_ends(context);
  for (;;) {
    Stream* stream;
    {
      Locked locked(context->streams_lock);
      stream = context->streams;
    }
    if (stream == nullptr) return;
    end_capture_of_destroyed(stream);
    {
      Locked locked(context->streams_lock);
      unlink_stream(stream);
    }
    const uint32_t word = stream->word;
    if (gone->add(stream->slot) && word != 0) connection().words.release(word);
  }
}

}  // namespace tube::hook

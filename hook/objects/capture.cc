// Stream capture: the proxy's stream captures in relaxed mode; which streams take part, and the
// stricter modes, are kept here, because they are rules about the threads of this process.
//
// A capture spreads as natively: an event recorded in a capturing stream carries the capture to
// every stream that waits for it. A call that is unsafe for a capture invalidates it; ending it
// then answers 901 as the driver does.
#include "hook/objects/capture.h"

#include <algorithm>
#include <deque>
#include <new>

#include "hook/objects/progress.h"

namespace tube::hook {

namespace {

struct Captures {
  Lock lock;  // rank 1
  std::vector<Capture*> active;
  std::deque<Capture*> ended;  // the oldest first
};
std::atomic<uint32_t> g_active_count{0};
Captures& captures() {
  static Captures* c = new Captures;
  return *c;
}
std::atomic<uint64_t> g_next_capture{1};
// A capture is used again only after this many others have ended. A thread may be about to break
// its stream's capture while another thread ends it; it must not break a new one.
constexpr size_t kRest = 64;

bool forbids(const Capture& c, const Thread& thread) {
  if (c.mode == CU_STREAM_CAPTURE_MODE_RELAXED || !c.active.load(std::memory_order_relaxed))
    return false;
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (c.thread == &thread) return true;
  return thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         c.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void join(Capture* capture, Stream* stream) {
  Locked locked(captures().lock);
  capture->streams.push_back(stream);
  stream->capture.store(capture, std::memory_order_release);
}

// A capture that nobody uses; the lock is held.
Capture* fresh_capture() {
  if (captures().ended.size() < kRest) return new (std::nothrow) Capture;
  Capture* capture = captures().ended.front();
  captures().ended.pop_front();
  return capture;
}

// Whether the capture that an event was recorded in goes on.
bool goes_on(const Capture& capture, uint64_t id) {
  return capture.active.load(std::memory_order_acquire) &&
         capture.id.load(std::memory_order_acquire) == id;
}

}  // namespace

void dissolve(Capture* capture) {
  Locked locked(captures().lock);
  for (Stream* s : capture->streams) {
    if (s->capture.load(std::memory_order_relaxed) == capture)
      s->capture.store(nullptr, std::memory_order_release);
  }
  capture->streams.clear();
  capture->active.store(false, std::memory_order_release);
  if (std::erase(captures().active, capture) != 0) captures().ended.push_back(capture);
  g_active_count.store(static_cast<uint32_t>(captures().active.size()), std::memory_order_release);
}

CUresult begin_checks(Stream* stream, CUstreamCaptureMode mode) {
  if (!valid_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  Mark before;  // a capturing stream takes no signal, and a waiter for its earlier work needs one
  return mark_stream(stream, &before);
}

Capture* begin_capture(Stream* stream, CUstreamCaptureMode mode, CUgraph graph) {
  Capture* capture = nullptr;
  {
    Locked locked(captures().lock);
    capture = fresh_capture();
    if (capture == nullptr) return nullptr;
    capture->id.store(g_next_capture.fetch_add(1, std::memory_order_relaxed),
                      std::memory_order_release);
    capture->mode = mode;
    capture->graph = graph;
    capture->thread = &this_thread();
    capture->origin = stream;
    capture->invalid.store(false, std::memory_order_relaxed);
    capture->told.store(nullptr, std::memory_order_relaxed);
    capture->active.store(true, std::memory_order_release);
    captures().active.push_back(capture);
    g_active_count.store(static_cast<uint32_t>(captures().active.size()),
                         std::memory_order_release);
  }
  join(capture, stream);
  return capture;
}

CUresult forbid_capture(const Stream* stream) {
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  if (Capture* capture = stream->capture.load(std::memory_order_acquire)) {
    capture->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return legacy_would_wait(stream, true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

bool legacy_would_wait(const Stream* stream, bool invalidates) {
  if (!stream->legacy() || g_active_count.load(std::memory_order_acquire) == 0) return false;
  Locked locked(captures().lock);
  for (Capture* capture : captures().active) {
    for (const Stream* s : capture->streams) {
      if (s->context != stream->context || !s->blocking()) continue;
      if (invalidates) capture->invalid.store(true, std::memory_order_release);
      return true;
    }
  }
  return false;
}

CUresult forbid_unsafe_call() {
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  const Thread& thread = this_thread();
  bool forbidden = false;
  Locked locked(captures().lock);
  for (Capture* capture : captures().active) {
    if (!forbids(*capture, thread)) continue;
    capture->invalid.store(true, std::memory_order_release);
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult forbid_context_sync(const Context* context) {
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  Locked locked(captures().lock);
  for (Capture* capture : captures().active) {
    if (capture->origin->context != context) continue;
    capture->invalid.store(true, std::memory_order_release);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

void capture_saw_record(Stream* stream, Event* event) {
  Capture* capture = stream->capture.load(std::memory_order_acquire);
  event->recorded = true;
  event->capture = capture;
  event->capture_id = capture == nullptr ? 0 : capture->id.load(std::memory_order_relaxed);
  event->mark = Mark{};
}

CUresult capture_saw_wait(Stream* stream, Event* event) {
  Capture* theirs;
  uint64_t their_id;
  {
    Locked locked(connection().producer);
    theirs = event->capture;
    their_id = event->capture_id;
  }
  // Recorded into a capture that has ended: there is nothing to wait for.
  if (theirs != nullptr && !goes_on(*theirs, their_id)) return CUDA_ERROR_INVALID_VALUE;
  if (g_active_count.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  Capture* ours = stream->capture.load(std::memory_order_acquire);
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  if (theirs == ours) return CUDA_SUCCESS;
  if (theirs == nullptr) {  // a capturing stream waits for ordinary work
    bool recorded;
    {
      Locked locked(connection().producer);
      recorded = event->recorded;
    }
    if (!recorded) return CUDA_SUCCESS;
    ours->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (ours != nullptr) {
    ours->invalid.store(true, std::memory_order_release);
    theirs->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream->legacy()) {
    theirs->invalid.store(true, std::memory_order_release);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  Mark before;  // as in begin_checks
  if (const CUresult r = mark_stream(stream, &before); r != CUDA_SUCCESS) return r;
  join(theirs, stream);
  return CUDA_SUCCESS;
}

CUresult ask_captured_event(Event* event) {
  Capture* capture;
  uint64_t id;
  {
    Locked locked(connection().producer);
    capture = event->capture;
    id = event->capture_id;
  }
  // The event says nothing about a capture that is over or broken.
  if (capture == nullptr || !goes_on(*capture, id)) return CUDA_ERROR_INVALID_VALUE;
  return capture->invalid.exchange(true, std::memory_order_acq_rel) ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_broken(const Stream* stream) {
  const Capture* capture = stream->capture.load(std::memory_order_acquire);
  return capture != nullptr && capture->invalid.load(std::memory_order_acquire)
             ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
             : CUDA_SUCCESS;
}

void operation_refused(const Stream* stream) {
  if (Capture* capture = stream->capture.load(std::memory_order_acquire))
    capture->invalid.store(true, std::memory_order_release);
}

CUresult admit_operation(const Stream* stream) {
  if (!stream->legacy()) return capture_broken(stream);
  return forbid_capture(stream);
}

void end_capture_of_destroyed(Stream* stream) {
  Capture* capture = stream->capture.load(std::memory_order_acquire);
  if (capture == nullptr) return;
  if (capture->origin == stream) {
    capture->invalid.store(true, std::memory_order_release);
    dissolve(capture);
    return;
  }
  // The capture goes on without a stream that had joined it; whether work is left unjoined in it,
  // the driver says at its end.
  Locked locked(captures().lock);
  std::erase(capture->streams, stream);
  stream->capture.store(nullptr, std::memory_order_release);
}

}  // namespace tube::hook

// Streams of the program, and points in their work.
//
// Objects live in reused slots (process/objects.h) and are never freed, so a stale pointer reads a
// valid, maybe newer object. The lock that guards a field stands beside it: "producer" is
// Connection::producer.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cuda_api.h"
#include "hook/process/process.h"

namespace tube::hook {

struct Context;
struct Capture;

// A point in a stream's work: reached when the word has the value. Word 0 means "nothing to wait
// for".
struct Mark {
  uint32_t word = 0;
  uint64_t value = 0;
};

struct Stream {
  Slot* slot = nullptr;  // nullptr: the context's own (Context::legacy, Context::ended)
  Context* context = nullptr;
  uint64_t id = 0;      // kLegacyStream for the legacy one, kEndedStreams for Context::ended
  uint64_t unique = 0;  // cuStreamGetId
  uint32_t flags = 0;   // CU_STREAM_NON_BLOCKING or 0
  int32_t priority = 0;
  bool per_thread = false;
  Stream* next = nullptr;  // list of the context, its `streams_lock`
  Stream* previous = nullptr;

  // producer:
  uint32_t word = 0;    // progress word, 0 until first needed
  uint64_t posted = 0;  // operations put into the ring for this stream
  uint64_t signalled =
      0;  // `posted` (legacy: the context's blocking_posted) when the last value was posted
  uint64_t own_signalled = 0;  // `posted` then, also of the legacy stream
  uint64_t value = 0;          // last value posted to `word`
  uint64_t uploads_until = 0;  // legacy: behind `signalled` only uploads were posted until the
                               // context's blocking_posted was this
  std::atomic<Capture*> capture{nullptr};

  bool legacy() const { return id == wire::kLegacyStream; }
  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  CUstream handle() const {
    return slot == nullptr ? nullptr : static_cast<CUstream>(objects().handle_of(slot));
  }
};

// cuda's stream handles, NULL, 1 and 2 included, in the calling thread. nullptr: no such stream (or
// no context for the default ones), `*error` says the code. The legacy stream cannot be named while
// a blocking stream of its context captures, and whoever does breaks that capture, whatever the
// call; find_stream_in() looks at it all the same.
Stream* find_stream(CUstream handle, CUresult* error);
Stream* find_stream_in(Context* context, CUstream handle, CUresult* error);
// Creates an ordinary stream in `context`; a priority beyond the device's range becomes the nearest
// in it.
CUresult create_stream(Context* context, uint32_t flags, int32_t priority, Stream** stream);
void destroy_stream(Stream* stream);
// A context that ends takes its streams along: their handles become invalid.
void forget_streams(Context* context, Retired* gone);
// While it captures, an operation becomes a node of a graph (capture.h).
inline bool capturing(const Stream* s) {
  return s->capture.load(std::memory_order_acquire) != nullptr;
}
// For the _ptsz entry points: stream 0 is the calling thread's own.
inline CUstream per_thread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}
// What cuStreamGetId and cuCtxGetId answer: never given twice in this process.
uint64_t next_unique();

}  // namespace tube::hook

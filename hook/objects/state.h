// What the hook knows about the program's contexts, streams, events and threads.
//
// Objects live in reused slots (objects.h) and are never freed, so a stale pointer reads a valid,
// maybe newer object. Who guards what stands at each field: "producer" is Connection::producer.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cuda_api.h"
#include "hook/objects/objects.h"
#include "hook/process/lock.h"
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
  Slot* slot = nullptr;  // nullptr: the context's legacy default stream
  Context* context = nullptr;
  uint64_t id = 0;      // kLegacyStream for the legacy one
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
  uint64_t value = 0;          // last value posted to `word`
  uint64_t uploads_until = 0;  // legacy: behind `signalled` only uploads were posted until the
                               // context's blocking_posted was this
  std::atomic<Capture*> capture{nullptr};

  bool legacy() const { return slot == nullptr; }
  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  CUstream handle() const {
    return legacy() ? nullptr : static_cast<CUstream>(objects().handle_of(slot));
  }
};

struct Event {
  Slot* slot = nullptr;
  Context* context = nullptr;
  uint64_t id = 0;
  uint32_t flags = 0;
  // producer:
  bool recorded = false;
  Mark mark;  // of the last record
  uint64_t stream_id = 0;
  bool asked = false;          // some graph records it: its state is asked of the proxy
  bool of_launch = false;      // so is it when a launch's attribute recorded it last
  Capture* capture = nullptr;  // the last record was into this capture
  uint64_t capture_id = 0;
};

struct Context {
  Slot* slot = nullptr;
  uint32_t number = 0;  // on the wire
  uint32_t visible_device = 0;
  uint32_t device = 0;  // the proxy's ordinal
  bool primary = false;
  uint64_t unique = 0;  // cuCtxGetId
  uint32_t api_version = 0;
  std::atomic<uint32_t> flags{0};
  std::atomic<uint64_t> limits[info::kLimitCount] = {};  // cuCtxSetLimit: value + 1, 0: never set
  std::atomic<int32_t> cache_config{-1};  // cuCtxSetCacheConfig; -1: the device's own
  std::atomic<int32_t> retains{0};        // primary: cuDevicePrimaryCtxRetain
  std::atomic<bool> live{
      false};  // primary: retained since the last reset, which leaves the references alone
  std::atomic<bool> alive{false};  // created: until destroyed; primary: always
  std::atomic<uint64_t> epoch{
      0};  // grows when it is reset or destroyed: kernels' and allocations' life
  std::atomic<int32_t> attached{1};  // cuCtxAttach; created contexts end at 0
  Slot* green = nullptr;             // a green context: its CUgreenCtx (call_green.cc)
  Stream legacy;
  Lock life;  // rank 0: `retains` and `live` change, and its contents end, under it; never held
              // while waiting for the GPU
  Lock streams_lock;             // rank 1
  Stream* streams = nullptr;     // all but the legacy one
  uint64_t blocking_posted = 0;  // producer: operations of the legacy and all blocking streams
  Stream* collector =
      nullptr;  // cuCtxRecordEvent (call_context_event.cc): a stream that waits for all others
  uint64_t collector_id = 0;  // its id when made: another one now means that it is gone
  Event* joint = nullptr;     // what it waits with
  uint64_t joint_id = 0;

  CUcontext handle() const { return static_cast<CUcontext>(objects().handle_of(slot)); }
  const info::DeviceInfo& info() const { return connection().device_infos[device]; }
};

struct PerThreadStream {
  Context* context;
  CUstream handle;  // names nothing any more once the context was reset or destroyed
};

// One per thread that made a call; recycled when the thread ends.
struct Thread {
  uint32_t number = 0;
  Context** stack = nullptr;  // current contexts, the last is current
  uint32_t depth = 0;
  uint32_t capacity = 0;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_callback = false;            // runs host functions, which may not call (800)
  bool per_thread_default = false;     // PerThreadDefault scope: stream 0 means this thread's own
  Stream* operation_stream = nullptr;  // the stream of the record being built (support.h)
  PerThreadStream* own_streams = nullptr;
  uint32_t own_stream_count = 0;
  Thread* next_free = nullptr;
};

Thread& this_thread();
// The calling thread's current context, or nullptr.
Context* current_context();
// nullptr when the handle names none; a destroyed one answers nullptr too.
Context* find_context(CUcontext handle);
// The same; a destroyed one's handle gives a context in which everything answers 709, as it may
// still be made current.
Context* find_context_or_gone(CUcontext handle);
CUresult make_primary(uint32_t visible_device);
// A context's turn to be the top of the calling thread's stack; false when out of memory.
bool push_context(Context* context);

// cuda's stream handles, NULL, 1 and 2 included, in the calling thread. nullptr: no such stream (or
// no context for the default ones), `*error` says the code.
Stream* find_stream(CUstream handle, CUresult* error);
Stream* find_stream_in(Context* context, CUstream handle, CUresult* error);
Event* find_event(CUevent handle);
// A new event of the current context, which nobody finds before its slot is published. nullptr: out
// of memory.
Event* allocate_event(uint32_t flags);
// Creates an ordinary stream in `context`; a priority beyond the device's range becomes the nearest
// in it.
CUresult create_stream(Context* context, uint32_t flags, int32_t priority, Stream** stream);
void destroy_stream(Stream* stream);
// A context that ends takes its streams and events along: their handles become invalid.
void forget_streams(Context* context, Retired* gone);
void forget_events(Context* context, Retired* gone);
uint64_t next_unique();

// Events by object. Only record_event may find the stream capturing.
CUresult create_event(Context* context, unsigned flags, Event** event);
CUresult record_event(Event* event, Stream* stream, unsigned flags);
CUresult wait_event(Stream* stream, Event* event, unsigned flags);

// ---- progress (progress.cc)
// ------------------------------------------------------------------------------------------- The
// stream's progress word, made on first use.
CUresult ensure_word(Stream* stream);
// The mark behind the last signal of `stream`; whether nothing was posted since.
bool is_marked(const Stream* stream, Mark* mark);
// The mark behind everything posted to `stream` so far; posts a signal only when something came
// since the last one.
CUresult mark_stream(Stream* stream, Mark* mark);
// For a query: is there work behind the last mark, asks the proxy. SUCCESS: it is done, and counts
// as marked.
CUresult ask_unmarked(Stream* stream);
// Waits; then the errors of posted calls, once, and the sticky error, always.
CUresult wait_mark(const Mark& mark, Stream* stream);
bool mark_reached(const Mark& mark);
CUresult settle_stream(Stream* stream);
// The same for calls at which the driver shows what kernels have printed: those that wait for the
// GPU by their nature.
CUresult sync_stream(Stream* stream);
CUresult sync_context(Context* context);
CUresult sync_all_contexts();
// What freeing device memory waits for: the contexts of its device, as natively; another GPU may be
// waiting for this one.
CUresult sync_device_of(Context* context);
// SUCCESS or the error of a posted call (taken) or the sticky error (kept); logs the call's name.
CUresult take_error();
// For queries that a program may repeat for ever: now and then looks whether the proxy and the GPU
// still live.
CUresult alive_while_polling(Stream* stream);

// ---- captures (call_capture.cc)
// ---------------------------------------------------------------------------------------
inline bool capturing(const Stream* s) {
  return s->capture.load(std::memory_order_acquire) != nullptr;
}
// The checks native makes when a call that must not run during a capture comes: 0, or the code (and
// invalidates).
CUresult forbid_capture(const Stream* stream);
// For calls like allocations: forbidden while any thread captures in global mode, or this one in
// thread-local mode.
CUresult forbid_unsafe_call();
// For cuCtxSynchronize: forbidden while any stream of the context captures, whatever the mode.
CUresult forbid_context_sync(const Context* context);
// What recording `event` does to captures (producer held), and waiting for it (not held).
void capture_saw_record(Stream* stream, Event* event);
CUresult capture_saw_wait(Stream* stream, Event* event);
void end_capture_of_destroyed(Stream* stream);
// The answer to who asks for the state of an event that a capture recorded, which breaks that
// capture. Producer not held.
CUresult ask_captured_event(Event* event);
// The code of an operation put into a broken capture, else 0.
CUresult capture_broken(const Stream* stream);

}  // namespace tube::hook

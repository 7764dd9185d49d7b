// Stream capture: which streams take part, and the rules about the threads of this process.
#pragma once

#include "hook/objects/event.h"
#include "hook/objects/thread.h"

namespace tube::hook {

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
// Asking for the state of an event that a capture recorded breaks that capture; this is the answer.
// Producer not held.
CUresult ask_captured_event(Event* event);
// The code of an operation put into a broken capture, else 0.
CUresult capture_broken(const Stream* stream);

// For an operation that goes into `stream`, and into its capture: the legacy stream may hold up
// captures of others, and a broken capture takes nothing any more.
CUresult admit_operation(const Stream* stream);
// The driver refused a launch into `stream`: that breaks its capture.
void operation_refused(const Stream* stream);

// ---- for the capture calls (calls/capture.cc) ----

// One capture. Never freed, since an event keeps a pointer to the capture it was recorded in; but
// reused, since programs capture step after step. A pointer kept for longer than a call is kept
// with the id, which no second capture has.
struct Capture {
  std::atomic<uint64_t> id{0};
  CUstreamCaptureMode mode{};
  const Thread* thread = nullptr;
  Stream* origin = nullptr;
  CUgraph graph = nullptr;  // captured into a graph of the program's
  std::atomic<CUgraph> told{
      nullptr};  // what cuStreamGetCaptureInfo called the graph that is being made
  std::atomic<bool> invalid{false};
  std::atomic<bool> active{true};
  std::vector<Stream*> streams;  // under captures().lock
};

inline bool valid_mode(CUstreamCaptureMode mode) {
  return static_cast<unsigned>(mode) <= CU_STREAM_CAPTURE_MODE_RELAXED;
}
// Whether `stream` is a legacy stream, which would wait for a capturing blocking stream of its
// context; such a use invalidates that capture.
bool legacy_would_wait(const Stream* stream, bool invalidates);
CUresult begin_checks(Stream* stream, CUstreamCaptureMode mode);
// Before the proxy captures: from the record that begins it on, nobody may put a signal or a free
// of kept memory into this stream any more, which other threads do at their synchronising calls
// (mark_stream looks again under the producer lock). nullptr: out of memory.
Capture* begin_capture(Stream* stream, CUstreamCaptureMode mode, CUgraph graph);
// All its streams leave it.
void dissolve(Capture* capture);

}  // namespace tube::hook

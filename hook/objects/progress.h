// Waiting for the GPU without asking the proxy: a stream's progress word (sharedmem/words.h).
#pragma once

#include <vector>

#include "hook/objects/context.h"

namespace tube::hook {

// For shared::Probe, whose waits call it when they have slept for 20 ms: the proxy looks at the
// Stream, and stores a sticky error if there is one. A round trip.
void probe_stream(void* stream);

// The stream's progress word, made on first use.
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
// Waits until then at most (base/clock.h), and takes no errors. False: not reached, or the proxy is
// gone.
bool reach_mark_by(const Mark& mark, Stream* stream, uint64_t deadline_ns);

// A point in a stream's work that has no mark: what was posted by then, as counts.
struct WorkPoint {
  uint64_t posted = 0;
  uint64_t legacy = 0;  // of the legacy stream, where the stream's work is behind that one's
};
WorkPoint work_so_far(const Stream* stream);
// True: everything before the point has ended. False: it has not, or there is no signal behind it
// that would tell. Uploads that nobody waited for are apart (below). Never waits.
bool work_ended(const Stream* stream, const WorkPoint& point);
// Whether all small uploads that returned before their copy (calls/copy_paths.cc) have ended, in
// all contexts; and a wait for them until then at most, which also waits for what the legacy
// streams have beside them.
bool uploads_ended();
void settle_uploads(uint64_t deadline_ns);

CUresult settle_stream(Stream* stream);
// The same for calls at which the driver shows what kernels have printed: those that wait for the
// GPU by their nature.
CUresult sync_stream(Stream* stream);
CUresult sync_context(Context* context);
CUresult sync_all_contexts();
// What freeing memory waits for: all work of the context that it belongs to, and of no other, whose
// work may be waiting for what this thread does next (H200, 13.0). A green context's memory is its
// primary context's. nullptr, or a context that has ended: nothing.
CUresult sync_owner(Context* owner);
// What all contexts of the program on that GPU (as it counts; -1: on all) have left to do. 906
// where a capture would be broken by asking. Takes no error from the program, nor do waits for it.
CUresult marks_on(int32_t visible_device, std::vector<Mark>* marks);
CUresult sync_device(int32_t visible_device);
// What the program's other contexts have left to do.
std::vector<Mark> marks_beside(const Context* owner);
// SUCCESS or the error of a posted call (taken) or the sticky error (kept); logs the call's name.
CUresult take_error();
// For queries that a program may repeat for ever: now and then looks whether the proxy and the GPU
// still live.
CUresult alive_while_polling(Stream* stream);

}  // namespace tube::hook

// Events of the program. A record posts a value of the stream's progress word behind it, so queries
// and waits read that word.
#pragma once

#include "hook/objects/stream.h"

namespace tube::hook {

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

Event* find_event(CUevent handle);
// A new event of the current context, which nobody finds before its slot is published. nullptr: out
// of memory.
Event* allocate_event(uint32_t flags);
// A context that ends takes its events along: their handles become invalid.
void forget_events(Context* context, Retired* gone);

// Events by object. Only record_event may find the stream capturing.
CUresult create_event(Context* context, unsigned flags, Event** event);
CUresult record_event(Event* event, Stream* stream, unsigned flags);
CUresult wait_event(Stream* stream, Event* event, unsigned flags);
// Other processes may see it: what happens to it must have reached the driver when the call
// returns, since they hear of it outside our ring, and its state is the driver's, since they may
// have recorded it.
inline bool interprocess(const Event* event) { return (event->flags & CU_EVENT_INTERPROCESS) != 0; }

}  // namespace tube::hook

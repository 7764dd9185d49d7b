#include "hook/objects/event.h"

#include <new>

#include "hook/objects/capture.h"
#include "hook/objects/context.h"
#include "hook/objects/progress.h"
#include "hook/objects/request.h"

namespace tube::hook {

namespace {

// True when nothing but this process can ask for the event, and not for a time.
bool untimed(const Event* event) {
  return (event->flags & (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)) ==
         CU_EVENT_DISABLE_TIMING;
}

// Everything that a record on `stream` is behind has its value on the way; producer held. What
// other streams a record waits for must have arrived: an event remembers one word.
bool marked(const Stream* stream) {
  const Stream& legacy = stream->context->legacy;
  const uint64_t blocking = stream->context->blocking_posted;
  if (stream->legacy()) return stream->signalled == blocking;
  if (stream->signalled != stream->posted) return false;
  if (!stream->blocking() || legacy.posted == 0) return true;
  return legacy.signalled == blocking && mark_reached(Mark{legacy.word, legacy.value});
}

}  // namespace

Event* find_event(CUevent handle) {
  Slot* slot = objects().find(Kind::kEvent, handle);
  return slot == nullptr ? nullptr : static_cast<Event*>(slot->object);
}

CUresult create_event(Context* context, unsigned flags, Event** out) {
  Event* event = allocate_event(flags);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = base_context(context);
  {
    Request<wire::tubeEventCreate> r;
    r.in_context(event->context);
    r->event = event->id;
    r->flags = flags;
    if (const CUresult result = r.post(); result != CUDA_SUCCESS) return result;
  }
  objects().publish(event->slot);
  *out = event;
  return CUDA_SUCCESS;
}

CUresult record_event(Event* event, Stream* stream, unsigned flags) {
  const bool captured = capturing(stream);
  if (!captured) {
    if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) return CUDA_ERROR_ILLEGAL_STATE;
    if (const CUresult r = ensure_word(stream); r != CUDA_SUCCESS) return r;
  }
  Request<wire::tubeEventRecord> r(stream);
  r->event = event->id;
  r->stream = stream->id;
  r->flags = flags;
  if (captured) {
    r->word = shared::kNoWord;
    if ((flags & CU_EVENT_RECORD_EXTERNAL) == 0) capture_saw_record(stream, event);
    else event->asked = true;  // a node of the graph records it
    return interprocess(event) ? r.call() : r.post();
  }
  if (untimed(event) && marked(stream)) {
    r->word = shared::kNoWord;
  } else {
    stream->value = connection().words.next_value(stream->word);
    r->word = stream->word;
    r->value = stream->value;
  }
  event->recorded = true;
  event->of_launch = false;
  event->capture = nullptr;
  event->mark = Mark{stream->word, stream->value};
  event->stream_id = stream->id;
  r.signals();
  return interprocess(event) ? r.call() : r.post();
}

// The proxy has freed its side with the context.
void forget_events(Context* context, Retired* gone) {
  for (uint32_t index = 1;; ++index) {
    Slot* slot = objects().at(Kind::kEvent, index);
    if (slot == nullptr) return;
    const auto* event = static_cast<const Event*>(slot->object);
    if (slot->live.load(std::memory_order_acquire) != 0 && event != nullptr &&
        event->context == context)
      gone->add(slot);
  }
}

Event* allocate_event(uint32_t flags) {
  Slot* slot = objects().allocate(Kind::kEvent);
  if (slot == nullptr) return nullptr;
  auto* event = static_cast<Event*>(slot->object);
  if (event == nullptr) event = new (std::nothrow) Event;
  if (event == nullptr) return nullptr;
  slot->object = event;
  *event = Event{};
  event->slot = slot;
  event->context = making_context();
  event->id = slot->id;
  event->flags = flags;
  return event;
}

CUresult wait_event(Stream* stream, Event* event, unsigned flags) {
  // Captured as a node: it waits for whatever the event's record is at the launch.
  const bool external = capturing(stream) && (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
  if (!external) {
    if (flags != 0 && !capturing(stream))
      return CUDA_ERROR_ILLEGAL_STATE;  // only nodes of a graph wait for external events
    if (const CUresult r = capture_saw_wait(stream, event); r != CUDA_SUCCESS) return r;
  }
  const bool interprocess =
      (event->flags & CU_EVENT_INTERPROCESS) != 0;  // another process may record it
  if (!interprocess && !external) {
    Locked locked(connection().producer);
    if (!event->recorded && !event->asked) return CUDA_SUCCESS;
  }
  Request<wire::tubeStreamWaitEvent> r(stream);
  r->stream = stream->id;
  r->event = event->id;
  r->flags = flags;
  return interprocess ? r.call() : r.post();  // behind the record of now, not a later one
}

}  // namespace tube::hook

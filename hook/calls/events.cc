// Event calls. A record posts a value of the stream's progress word behind it, so queries and waits
// read that word and an event needs none of its own; only elapsed times are asked of the proxy. A
// record without a time behind work that has its value already posts none: like a real driver's, it
// is over when that work is, which on an idle stream is at once.
#include <sched.h>

#include <ctime>
#include <new>

#include "hook/objects/context.h"
#include "hook/objects/device_output.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// Other processes may see it: what happens to it must have reached the driver when the call
// returns, since they hear of it outside our ring, and its state is the driver's, since they may
// have recorded it.
bool interprocess(const Event* event) { return (event->flags & CU_EVENT_INTERPROCESS) != 0; }
// So is that of an event that some graph records.
// And that of one that a launch recorded by its attribute.
bool at_driver(const Event* event) {
  return interprocess(event) || event->asked || event->of_launch;
}
// What nobody can ask for a time or from outside.
bool untimed(const Event* event) {
  return (event->flags & (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)) ==
         CU_EVENT_DISABLE_TIMING;
}

CUresult record(CUevent hEvent, CUstream hStream, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  Event* event = find_event(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (base_context(event->context) != base_context(stream->context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  return record_event(event, stream, flags);
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

// The event's state for a query or a wait; a captured one cannot be asked.
CUresult snapshot(CUevent hEvent, Event** event, Mark* mark) {
  *event = find_event(hEvent);
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    Locked locked(connection().producer);
    if ((*event)->capture == nullptr) {
      *mark = (*event)->recorded ? (*event)->mark : Mark{};
      return CUDA_SUCCESS;
    }
  }
  return ask_captured_event(*event);
}

}  // namespace

CUresult create_event(Context* context, unsigned flags, Event** out) {
  Event* event = allocate_event(flags);
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = context;
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

CUresult query_proxy(const Event* event) {
  Request<wire::tubeEventQuery> r;
  r.in_context(event->context);
  r->event = event->id;
  return r.call();
}

// Asked again and again with a growing pause: a wait inside the proxy would hold up this program's
// other threads, and a word that the GPU writes behind the event could outlive this process.
CUresult wait_for_proxy(const Event* event) {
  constexpr uint32_t kFirstUs = 20, kLongestUs = 1000;
  for (uint32_t pause_us = kFirstUs;;
       pause_us = pause_us * 2 < kLongestUs ? pause_us * 2 : kLongestUs) {
    const CUresult r = query_proxy(event);
    if (r != CUDA_ERROR_NOT_READY) return r;
    const timespec pause{0, static_cast<long>(pause_us) * 1000};
    nanosleep(&pause, nullptr);
  }
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
  event->context = current_context();
  event->id = slot->id;
  event->flags = flags;
  return event;
}

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Event* event = nullptr;
  if (const CUresult r = create_event(current_context(), Flags, &event); r != CUDA_SUCCESS)
    return r;
  *phEvent = static_cast<CUevent>(objects().handle_of(event->slot));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  Event* event = find_event(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* context = event->context;
  const uint64_t id = event->id;
  Retired gone(objects());
  if (!gone.add(event->slot)) return CUDA_ERROR_INVALID_HANDLE;
  Request<wire::tubeEventDestroy> r;
  r.in_context(context);
  r->event = id;
  return r.post();
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return record(hEvent, hStream, 0); }
CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return record(hEvent, hStream, flags);
}

CUresult cuEventQuery(CUevent hEvent) {
  if (hEvent == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = guard(Needs::kHandle); r != CUDA_SUCCESS) return r;
  Event* event;
  Mark mark;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = snapshot(hEvent, &event, &mark); r != CUDA_SUCCESS) return r;
  if (at_driver(event)) {
    const CUresult r = query_proxy(event);
    return r == CUDA_SUCCESS ? take_error() : r;
  }
  if (mark_reached(mark)) return take_error();
  if (const CUresult r = alive_while_polling(&event->context->legacy); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent) {
  Event* event;
  Mark mark;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = snapshot(hEvent, &event, &mark); r != CUDA_SUCCESS) return r;
  if (at_driver(event)) {
    const CUresult r = wait_for_proxy(event);
    collect_output();
    return r == CUDA_SUCCESS ? take_error() : r;
  }
  const CUresult result = wait_mark(mark, &event->context->legacy);
  collect_output();
  return result;
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // the driver's code for it
  // The words say when the work before both is done; the driver's own record comes right behind
  // them. A graph's record (asked) has no word: the driver alone knows.
  for (;; ::sched_yield()) {
    Event *start, *end;
    Mark start_mark, end_mark;
    if (const CUresult r = snapshot(hStart, &start, &start_mark); r != CUDA_SUCCESS) return r;
    if (const CUresult r = snapshot(hEnd, &end, &end_mark); r != CUDA_SUCCESS) return r;
    if ((!start->recorded && !start->asked) || (!end->recorded && !end->asked))
      return CUDA_ERROR_INVALID_HANDLE;
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    if ((!start->asked && !mark_reached(start_mark)) || (!end->asked && !mark_reached(end_mark)))
      return CUDA_ERROR_NOT_READY;
    CUresult result;
    wire::tubeEventElapsed_reply reply{};
    {
      Request<wire::tubeEventElapsed> r;
      r.in_context(start->context);
      r->start = start->id;
      r->end = end->id;
      result = r.call(&reply);
    }
    if (result == CUDA_SUCCESS) *pMilliseconds = reply.milliseconds;
    if (result != CUDA_ERROR_NOT_READY || start->asked || end->asked) return result;
  }
}

}  // namespace tube::hook

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

// The driver keeps its state: other processes, a graph or a launch's attribute record it.
bool at_driver(const Event* event) {
  return interprocess(event) || event->asked || event->of_launch;
}
CUresult record(CUevent hEvent, CUstream hStream, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  Event* event = find_event(hEvent);
  if (event == nullptr) return ended_error(Kind::kEvent, hEvent);
  if (base_context(event->context) != base_context(stream->context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = capture_broken(stream); r != CUDA_SUCCESS) return r;
  return record_event(event, stream, flags);
}

// The event's state for a query or a wait; a captured one cannot be asked.
CUresult snapshot(CUevent hEvent, Event** event, Mark* mark) {
  *event = find_event(hEvent);
  if (*event == nullptr) return ended_error(Kind::kEvent, hEvent);
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
  if (event == nullptr) return ended_error(Kind::kEvent, hEvent);
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

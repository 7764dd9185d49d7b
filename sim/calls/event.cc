// Events: a handle on the fence of the last record.
#include <algorithm>
#include <chrono>
#include <thread>

#include "sim/calls/ipc.h"
#include "sim/graphs/capture.h"
#include "sim/machine/hold.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult record(CUevent handle, CUstream hStream, unsigned flags, Context* context) {
  State& s = state();
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Lock lock(s.mutex);
  auto* event = live<Event>(s, handle, Kind::kEvent);
  if (event == nullptr) return ended_error(handle);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, context, hStream, &stream)) return r;
  if (base_context(event->context) != base_context(stream->context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (!stream->capture && (flags & CU_EVENT_RECORD_EXTERNAL) != 0) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture && (flags & CU_EVENT_RECORD_EXTERNAL) == 0)
    return capture_event(stream, event);
  return issue(lock, stream, EventRecordWork{event});
}

CUresult elapsed(float* out, CUevent hStart, CUevent hEnd) {
  if (out == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // the driver's code for it
  State& s = state();
  Lock lock(s.mutex);
  auto *start = live<Event>(s, hStart, Kind::kEvent), *end = live<Event>(s, hEnd, Kind::kEvent);
  if (start == nullptr || end == nullptr) return ended_error(start == nullptr ? hStart : hEnd);
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return CUDA_ERROR_INVALID_HANDLE;
  if (start->context->device != end->context->device) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->fence || !end->fence) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->fence->done || !end->fence->done) return CUDA_ERROR_NOT_READY;
  auto ns = static_cast<int64_t>(end->fence->time_ns) - static_cast<int64_t>(start->fence->time_ns);
  *out = static_cast<float>(static_cast<double>(ns) / 1e6);
  return CUDA_SUCCESS;
}

// No fence tells when another process's record is reached: look, with a growing pause. Without the
// lock.
void wait_shared(const SharedEvent& shared, const Context& context) {
  const uint64_t record = shared.last();
  auto pause = std::chrono::microseconds(5);
  while (!shared.reached(record) && context.error.load() == CUDA_SUCCESS) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
}

// Breaks the capture; one that is over or broken says nothing of the event any more.
CUresult ask_captured(const State& s, const Event* event) {
  const bool running =
      std::find(s.captures.begin(), s.captures.end(), event->capture) != s.captures.end();
  if (!running || event->capture->invalid != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  event->capture->invalid = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return CUDA_ERROR_CAPTURED_EVENT;
}

}  // namespace

// All streams of a context at once: an empty operation that waits for every lane.
CUresult record_context_event(Lock& lock, Context* context, CUevent handle) {
  State& s = state();
  auto* event = live<Event>(s, handle, Kind::kEvent);
  if (event == nullptr || base_context(event->context) != base_context(context))
    return CUDA_ERROR_INVALID_HANDLE;
  for (Stream* stream : context->streams)
    if (CUresult r = check_not_capturing(stream)) return r;
  Op op;
  for (auto& lane : context->lanes)
    if (lane->tail) op.waits.push_back(lane->tail);
  if (context->legacy->tail) op.waits.push_back(context->legacy->tail);
  if (FencePtr barrier = barrier_of(context)) op.waits.push_back(std::move(barrier));
  auto collector = std::make_shared<Lane>();
  collector->context = context;
  context->lanes.push_back(collector);
  event->fence = submit(lock, collector, std::move(op));
  event->capture = nullptr;
  return CUDA_SUCCESS;
}

CUresult wait_context_event(Lock& lock, Context* context, CUevent handle) {
  auto* event = live<Event>(state(), handle, Kind::kEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  for (Stream* stream : context->streams)
    if (CUresult r = check_not_capturing(stream)) return r;
  if (!event->fence || event->fence->done) return CUDA_SUCCESS;
  for (auto& lane : context->lanes) {
    Op op;
    op.waits.push_back(event->fence);
    submit(lock, lane, std::move(op));
  }
  Op op;
  op.waits.push_back(event->fence);
  submit(lock, context->legacy, std::move(op));
  return CUDA_SUCCESS;
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  SIM_ENTER_CONTEXT(context);
  if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  SharedEventPtr shared;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (shared = make_shared_event()) == nullptr)
    return CUDA_ERROR_OUT_OF_MEMORY;
  auto* event = new Event;
  event->context = base_context(context);
  event->flags = Flags;
  event->shared = std::move(shared);
  s.live.emplace(event, Kind::kEvent);
  *phEvent = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuEventDestroy_v2(CUevent hEvent) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* event = live<Event>(s, hEvent, Kind::kEvent);
  if (event == nullptr) return ended_error(hEvent);
  if (const CUresult broken = event->context->error.load(); broken != CUDA_SUCCESS) return broken;
  s.live.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  SIM_ENTER_STREAM(context, hStream);
  return record(hEvent, hStream, 0, context);
}

SIM_API CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  SIM_ENTER_STREAM(context, hStream);
  return record(hEvent, hStream, flags, context);
}

SIM_API CUresult cuEventQuery(CUevent hEvent) {
  if (hEvent == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;  // before everything else, cuInit included
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* event = live<Event>(s, hEvent, Kind::kEvent);
  if (event == nullptr) return ended_error(hEvent);
  if (CUresult r = check_capture_unsafe(s)) return r;
  if (event->capture) return ask_captured(s, event);
  if (event->shared != nullptr) {
    if (!event->shared->reached(event->shared->last())) return CUDA_ERROR_NOT_READY;
  } else if (event->fence && !event->fence->done) {
    return CUDA_ERROR_NOT_READY;
  }
  return event->context->error.load();
}

SIM_API CUresult cuEventSynchronize(CUevent hEvent) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* event = live<Event>(s, hEvent, Kind::kEvent);
  if (event == nullptr) return ended_error(hEvent);
  if (CUresult r = check_capture_unsafe(s)) return r;
  if (event->capture) return ask_captured(s, event);
  FencePtr fence = event->fence;
  Context* owner = event->context;
  SharedEventPtr shared = event->shared;
  if (shared == nullptr) wait(lock, fence);
  lock.unlock();
  if (shared != nullptr) wait_shared(*shared, *owner);
  flush_prints(owner);
  return owner->error.load();
}

SIM_API CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SIM_ENTER(kInit);
  return elapsed(pMilliseconds, hStart, hEnd);
}

SIM_API CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SIM_ENTER(kInit);
  return elapsed(pMilliseconds, hStart, hEnd);
}

SIM_API CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* context = live<Context>(s, hCtx, Kind::kContext);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const auto* event = live<Event>(s, hEvent, Kind::kEvent);
      event != nullptr && event->context != base_context(context))
    return CUDA_ERROR_INVALID_HANDLE;
  return record_context_event(lock, context, hEvent);
}

SIM_API CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* context = live<Context>(s, hCtx, Kind::kContext);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                            : wait_context_event(lock, context, hEvent);
}

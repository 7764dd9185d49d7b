// Streams: handles, the implicit ordering of the default streams, and how work gets onto them.
#include <algorithm>
#include <cstring>

#include "sim/calls/ipc.h"
#include "sim/graphs/capture.h"
#include "sim/machine/hold.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {
namespace {

Stream* make_stream(State& s, Context* context, unsigned flags, int priority) {
  auto* stream = new Stream;
  stream->id = s.new_id();
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->lane = std::make_shared<Lane>();
  stream->lane->context = context;
  stream->lane->priority = priority;
  stream->lane->stream = stream->id;
  stream->lane->blocking = stream->blocking();
  drop_drained_lanes(context);
  context->lanes.push_back(stream->lane);
  return stream;
}

Stream* per_thread_stream(State& s, Context* context) {
  Stream*& stream = context->per_thread[thread().id];
  if (stream == nullptr) {
    stream = make_stream(s, context, CU_STREAM_DEFAULT, 0);
    stream->per_thread = true;
  }
  return stream;
}

}  // namespace

CUresult enter_stream(const char* call, CUstream handle, Context** context) {
  if (CUresult entered = enter(call, Need::kHandle, context)) return entered;
  if (*context != nullptr) return CUDA_SUCCESS;
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_CONTEXT;
  State& s = state();
  Lock lock(s.mutex);
  const Stream* stream = live<Stream>(s, handle, Kind::kStream);
  if (stream == nullptr) return ended_error(handle);
  *context = stream->context;
  return CUDA_SUCCESS;
}

Stream* add_stream(State& s, Context* context, unsigned flags, int priority) {
  Stream* stream = make_stream(s, context, flags, priority);
  context->streams.push_back(stream);
  s.live.emplace(stream, Kind::kStream);
  return stream;
}

CUresult resolve_stream(Lock& lock, Context* current, CUstream handle, Stream** stream) {
  if (CUresult r = look_at_stream(lock, current, handle, stream)) return r;
  return *stream == (*stream)->context->legacy_stream
             ? check_legacy_capture(state(), (*stream)->context)
             : CUDA_SUCCESS;
}

CUresult look_at_stream(Lock&, Context* current, CUstream handle, Stream** stream) {
  State& s = state();
  const bool is_default =
      handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  if (is_default && current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  bool per_thread =
      handle == CU_STREAM_PER_THREAD || (handle == nullptr && thread().per_thread_default);
  if (per_thread) {
    *stream = per_thread_stream(s, current);
    return CUDA_SUCCESS;
  }
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    *stream = current->legacy_stream;
    return CUDA_SUCCESS;
  }
  *stream = live<Stream>(s, handle, Kind::kStream);
  if (*stream == nullptr) return ended_error(handle);
  return (*stream)->context->error.load();
}

FencePtr append(Lock& lock, Stream* stream, Op op) {
  Context* context = stream->context;
  if (stream == context->legacy_stream) {
    for (auto& lane : context->lanes)
      if (lane->blocking && lane->tail && !lane->tail->done) op.waits.push_back(lane->tail);
  } else if (stream->blocking()) {
    if (context->legacy->tail && !context->legacy->tail->done)
      op.waits.push_back(context->legacy->tail);
  }
  if (FencePtr barrier = barrier_of(context)) op.waits.push_back(std::move(barrier));
  return submit(lock, stream->lane, std::move(op));
}

CUresult issue(Lock& lock, Stream* stream, Work work, FencePtr* fence) {
  State& s = state();
  Context* context = stream->context;
  if (auto* w = std::get_if<EventWaitWork>(&work); w != nullptr && w->event->capture)
    return capture_wait(s, stream, w->event);
  if (stream->capture) return capture_work(lock, stream, std::move(work));
  if (stream == context->legacy_stream)
    if (CUresult r = check_legacy_capture(s, context)) return r;
  FencePtr last;
  if (auto* record = std::get_if<EventRecordWork>(&work)) {
    Op op;
    if (SharedEventPtr shared = record->event->shared) {
      op.body = [shared, ticket = shared->record()] {
        shared->reach(ticket);
        return CUDA_SUCCESS;
      };
      op.in_place = true;
      op.run_on_error = true;
    }
    last = append(lock, stream, std::move(op));
    record->event->fence = last;
    record->event->capture = nullptr;
    record->event->capture_deps.clear();
  } else if (auto* w = std::get_if<EventWaitWork>(&work)) {
    Op op;
    if (SharedEventPtr shared = w->event->shared) {
      const uint64_t ticket = shared->last();
      if (!shared->reached(ticket))
        op.condition = [shared, ticket] { return shared->reached(ticket); };
    } else if (w->event->fence && !w->event->fence->done) {
      op.waits.push_back(w->event->fence);
    }
    if (!op.waits.empty() || op.condition) last = append(lock, stream, std::move(op));
  } else {
    for (Op& op : make_ops(context, work)) last = append(lock, stream, std::move(op));
  }
  if (fence != nullptr) *fence = last;
  if (s.launch_blocking && std::holds_alternative<KernelWork>(work)) {
    wait(lock, last);
    return context->error.load();
  }
  return CUDA_SUCCESS;
}

}  // namespace tube::sim

using namespace tube::sim;

// Entry for calls that take a stream: `lock` is held, `stream` is resolved.
#define SIM_ON_STREAM(handle)        \
  SIM_ENTER_STREAM(context, handle); \
  Lock lock(state().mutex);          \
  Stream* stream = nullptr;          \
  if (CUresult bad = resolve_stream(lock, context, handle, &stream)) return bad

static CUresult create_stream(CUstream* out, unsigned flags, int priority) {
  Context* context = current_context();
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  if (context->streams.size() >= context->stream_room) {
    context->stream_room += kMoreStreams;
    (void)quiesce(lock, context);
  }
  Stream* stream = add_stream(s, context, flags, std::clamp(priority, -5, 0));
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  if (phStream == nullptr)
    return CUDA_ERROR_INVALID_VALUE;  // before everything else, cuInit included
  SIM_ENTER(kContext);
  return create_stream(phStream, Flags, 0);
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  SIM_ENTER(kContext);
  return create_stream(phStream, flags, priority);
}

SIM_API CUresult cuStreamDestroy_v2(CUstream hStream) {
  SIM_ENTER(kHandle);
  State& s = state();
  Lock lock(s.mutex);
  auto* stream = live<Stream>(s, hStream, Kind::kStream);
  if (stream == nullptr)
    return hStream == nullptr || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD
               ? CUDA_ERROR_INVALID_HANDLE
               : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  // Returns at once; the lane drains by itself.
  forget_capture(s, stream);
  Context* context = stream->context;
  std::erase(context->streams, stream);
  s.live.erase(stream);
  delete stream;
  drop_drained_lanes(context);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  SIM_ON_STREAM(hStream);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  SIM_ON_STREAM(hStream);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  SIM_ON_STREAM(hStream);
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *streamId = stream->id;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  SIM_ON_STREAM(hStream);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  SIM_ON_STREAM(hStream);
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamQuery(CUstream hStream) {
  SIM_ON_STREAM(hStream);
  if (CUresult r = check_not_capturing(stream)) return r;
  if (CUresult r = check_capture_unsafe(state())) return r;
  if (stream == context->legacy_stream) {
    for (auto& lane : context->lanes)
      if (lane->blocking && lane->tail && !lane->tail->done) return CUDA_ERROR_NOT_READY;
  }
  if (stream->lane->tail && !stream->lane->tail->done) return CUDA_ERROR_NOT_READY;
  return stream->context->error.load();
}

SIM_API CUresult cuStreamSynchronize(CUstream hStream) {
  SIM_ON_STREAM(hStream);
  if (CUresult r = check_not_capturing(stream)) return r;
  if (CUresult r = check_capture_unsafe(state())) return r;
  Context* owner = stream->context;
  // On the legacy stream an empty operation collects the blocking streams.
  FencePtr fence = stream == owner->legacy_stream ? append(lock, stream, {}) : stream->lane->tail;
  wait(lock, fence);
  lock.unlock();
  flush_prints(owner);
  return owner->error.load();
}

SIM_API CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  SIM_ON_STREAM(hStream);
  if ((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto* event = live<Event>(state(), hEvent, Kind::kEvent);
  if (event == nullptr) return ended_error(hEvent);
  if (!stream->capture && (Flags & CU_EVENT_WAIT_EXTERNAL) != 0) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture && !event->capture && (Flags & CU_EVENT_WAIT_EXTERNAL) == 0) {
    if (stream->capture->invalid != CUDA_SUCCESS) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (event->fence == nullptr) return CUDA_SUCCESS;
    stream->capture->invalid = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;  // depends on work outside the capture
  }
  return issue(lock, stream, EventWaitWork{event});
}

SIM_API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  SIM_ON_STREAM(hStream);
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  HostWork work;
  work.function = fn;
  work.data = userData;
  return issue(lock, stream, work);
}

SIM_API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                     unsigned int flags) {
  SIM_ON_STREAM(hStream);
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = check_not_capturing(stream)) return r;
  HostWork work;
  work.callback = callback;
  work.data = userData;
  work.stream = hStream;
  return issue(lock, stream, work);
}

SIM_API CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
  SIM_ON_STREAM(dst);
  Stream* from = nullptr;
  if (CUresult r = resolve_stream(lock, context, src, &from)) return r;
  if (stream->context->green != nullptr || from->context->green != nullptr)
    return CUDA_ERROR_INVALID_VALUE;  // (H100, H200, 13.0)
  stream->attributes = from->attributes;
  if (stream != stream->context->legacy_stream)
    stream->priority = stream->lane->priority = from->priority;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr,
                                      CUstreamAttrValue* value_out) {
  SIM_ON_STREAM(hStream);
  const int known = static_cast<int>(attr);
  if (value_out == nullptr || (known != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
                               known != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
                               known != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP &&
                               known != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
                               known != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN))
    return CUDA_ERROR_INVALID_VALUE;
  std::memset(value_out, 0, sizeof *value_out);
  auto it = stream->attributes.find(attr);
  if (it != stream->attributes.end()) *value_out = it->second;
  else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) value_out->priority = stream->priority;
  else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
    value_out->syncPolicy = static_cast<CUsynchronizationPolicy>(-1);  // never set
  else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value_out->memSyncDomainMap = {0, 1};
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                                      const CUstreamAttrValue* value) {
  SIM_ON_STREAM(hStream);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(attr)) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      stream->priority = std::clamp(value->priority, -5, 0);
      stream->lane->priority = stream->priority;
      break;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
          value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  stream->attributes[attr] = *value;
  return CUDA_SUCCESS;
}

// Events of a whole context, usage counts, and settings that no GPU has any more.
//
// An event of all activities: one hidden stream per context, its collector, waits for a record of
// every other stream, and the program's event is recorded there. The wait for an event by a whole
// context is a wait of each of its streams; a stream that is created later waits for nothing. Both
// cost a few posted records per stream.
#include "hook/calls/contexts.h"
#include "hook/objects/context.h"
#include "hook/objects/kernels.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constinit Lock
    g_collecting;  // rank 0: `collector` and `joint` of all contexts; held while records are posted

// Made when first needed, and again after a reset of the context.
CUresult ensure_collector(Context* context) {
  if (context->collector == nullptr || context->collector->id != context->collector_id ||
      objects().find(Kind::kStream, context->collector->handle()) != context->collector->slot) {
    if (const CUresult r = create_stream(context, CU_STREAM_NON_BLOCKING, 0, &context->collector);
        r != CUDA_SUCCESS)
      return r;
    context->collector_id = context->collector->id;
    context->joint = nullptr;
  }
  if (context->joint != nullptr && context->joint->id == context->joint_id) return CUDA_SUCCESS;
  const CUresult r = create_event(context, CU_EVENT_DISABLE_TIMING, &context->joint);
  if (r == CUDA_SUCCESS) context->joint_id = context->joint->id;
  return r;
}

template <class Visit>
CUresult for_each_stream(Context* context, Visit visit) {
  CUresult result = visit(&context->legacy);
  Locked locked(context->streams_lock);
  for (Stream* s = context->streams; s != nullptr && result == CUDA_SUCCESS; s = s->next) {
    if (s != context->collector) result = visit(s);
  }
  return result;
}

// The same, and what ended streams have left to do: behind them, since one that has left the list
// meanwhile is among these.
template <class Visit>
CUresult for_all_work(Context* context, Visit visit) {
  if (const CUresult r = for_each_stream(context, visit); r != CUDA_SUCCESS) return r;
  Mark mark;
  const bool ended = !is_marked(&context->ended, &mark) || !mark_reached(mark);
  return ended ? visit(&context->ended) : CUDA_SUCCESS;
}

// The context's event of that use, made when first needed and again after a reset.
CUresult event_of(Context* context, CUevent* handle, Event** event) {
  *event = find_event(*handle);
  if (*event != nullptr) return CUDA_SUCCESS;
  const CUresult r = create_event(context, CU_EVENT_DISABLE_TIMING, event);
  if (r == CUDA_SUCCESS) *handle = static_cast<CUevent>(objects().handle_of((*event)->slot));
  return r;
}

// The legacy stream, which stands for all blocking ones, and the others.
bool stands_for_itself(const Stream* stream) { return stream->legacy() || !stream->blocking(); }

}  // namespace

CUresult follow_work_of(Context* context, Stream* stream) {
  Locked locked(g_collecting);
  Event* pending = nullptr;
  return for_all_work(context, [&](Stream* other) {
    Mark mark;
    if (other == stream || !stands_for_itself(other) ||
        (is_marked(other, &mark) && mark_reached(mark)) || capturing(other))
      return CUDA_SUCCESS;
    CUresult r = event_of(context, &context->pending_work, &pending);
    if (r == CUDA_SUCCESS) r = record_event(pending, other, 0);
    return r == CUDA_SUCCESS ? wait_event(stream, pending, 0) : r;
  });
}

CUresult lead_work_of(std::span<Context* const> contexts, Stream* stream) {
  Locked locked(g_collecting);
  Event* copied = nullptr;
  Context* current = stream->context;
  CUresult r = event_of(current, &current->peer_copied, &copied);
  if (r == CUDA_SUCCESS) r = record_event(copied, stream, 0);
  for (Context* context : contexts) {
    if (r != CUDA_SUCCESS) return r;
    context->behind.store(current->peer_copied, std::memory_order_release);
    r = for_each_stream(context, [&](Stream* other) {
      return other == stream || !stands_for_itself(other) || capturing(other)
                 ? CUDA_SUCCESS
                 : wait_event(other, copied, 0);
    });
  }
  return r;
}

CUresult record_context_event(Context* context, CUevent hEvent) {
  Event* event = find_event(hEvent);
  if (event == nullptr || base_context(event->context) != base_context(context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult r = forbid_context_sync(context); r != CUDA_SUCCESS) return r;
  Locked locked(g_collecting);
  if (const CUresult r = ensure_collector(context); r != CUDA_SUCCESS) return r;
  const CUresult joined = for_all_work(context, [context](Stream* stream) {
    const CUresult r = record_event(context->joint, stream, 0);
    return r == CUDA_SUCCESS ? wait_event(context->collector, context->joint, 0) : r;
  });
  return joined == CUDA_SUCCESS ? record_event(event, context->collector, 0) : joined;
}

CUresult wait_context_event(Context* context, CUevent hEvent) {
  Event* event = find_event(hEvent);
  if (event == nullptr) return ended_error(Kind::kEvent, hEvent);
  if (const CUresult r = forbid_context_sync(context); r != CUDA_SUCCESS) return r;
  {
    Locked locked(connection().producer);
    if (event->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return for_each_stream(context, [event](Stream* stream) { return wait_event(stream, event, 0); });
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  Context* context = find_context(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Event* event = find_event(hEvent);
  if (event == nullptr || event->context != base_context(context)) return CUDA_ERROR_INVALID_HANDLE;
  return record_context_event(context, hEvent);
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  Context* context = find_context(hCtx);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : wait_context_event(context, hEvent);
}

// ---- usage counts ----

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  context->attached.fetch_add(1, std::memory_order_relaxed);
  *pctx = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  Context* context = current_context();
  if (context->handle() != ctx) return CUDA_ERROR_INVALID_CONTEXT;
  return context->attached.fetch_sub(1, std::memory_order_acq_rel) > 1 ? CUDA_SUCCESS
                                                                       : hook::cuCtxDestroy_v2(ctx);
}

// ---- settings of older GPUs ----

// Shared memory banks have been four bytes wide since compute capability 5.0.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return static_cast<unsigned>(config) > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  if (find_kernel(hfunc) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return hook::cuCtxSetSharedMemConfig(config);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  if (pExecAffinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val = static_cast<unsigned>(
      current_context()->info().attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

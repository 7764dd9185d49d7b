// Stream calls. Creating and destroying are posted; synchronising and queries read the progress
// word (progress.cc).
#include <algorithm>
#include <cstring>

#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

CUresult create(CUstream* phStream, unsigned flags, int priority) {
  if (phStream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  Stream* stream = nullptr;
  if (const CUresult r = create_stream(context, flags, priority, &stream); r != CUDA_SUCCESS)
    return r;
  *phStream = stream->handle();
  return CUDA_SUCCESS;
}

// The stream a query is about; the legacy stream belongs to the current context.
Stream* queried(CUstream hStream, CUresult* error) { return find_stream(hStream, error); }

}  // namespace

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  if (phStream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = guard(Needs::kContext); r != CUDA_SUCCESS) return r;
  return create(phStream, Flags, 0);
}
CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  Slot* slot = objects().find(Kind::kStream, hStream);
  if (slot == nullptr) return ended_error(Kind::kStream, hStream);
  auto* stream = static_cast<Stream*>(slot->object);
  if (stream->per_thread) return CUDA_ERROR_INVALID_HANDLE;
  destroy_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  return sync_stream(stream);
}

CUresult cuStreamQuery(CUstream hStream) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (const CUresult r = forbid_capture(stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  Mark mark;
  if (!is_marked(stream, &mark)) {
    if (const CUresult r = ask_unmarked(stream); r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
      return r;
    if (const CUresult r = mark_stream(stream, &mark); r != CUDA_SUCCESS) return r;
  }
  if (mark_reached(mark)) return take_error();
  if (const CUresult r = alive_while_polling(stream); r != CUDA_SUCCESS) return r;
  return CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  if ((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  Event* event = find_event(hEvent);
  if (event == nullptr) return ended_error(Kind::kEvent, hEvent);
  return wait_event(stream, event, Flags);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  CUresult error = CUDA_SUCCESS;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* stream = queried(hStream, &error);
  if (stream == nullptr) return error;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  CUresult error = CUDA_SUCCESS;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* stream = queried(hStream, &error);
  if (stream == nullptr) return error;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  CUresult error = CUDA_SUCCESS;
  Stream* dst = find_stream(dstStream, &error);
  if (dst == nullptr) return error;
  const Stream* src = find_stream(srcStream, &error);
  if (src == nullptr) return error;
  CUresult result;
  {
    Request<wire::cuStreamCopyAttributes> r(dst);
    r->dstStream = dst->id;
    r->srcStream = src->id;
    result = r.call();
  }
  if (result == CUDA_SUCCESS && !dst->legacy()) dst->priority = src->priority;
  return result;
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* param) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  if (param == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    Request<wire::cuStreamSetAttribute> r(stream);
    r->hStream = stream->id;
    r->attr = static_cast<decltype(r->attr)>(attr);
    std::memcpy(r->param, param, sizeof *param);
    error = r.call();
  }
  if (error != CUDA_SUCCESS || attr != CU_STREAM_ATTRIBUTE_PRIORITY) return error;
  const info::DeviceInfo& d = stream->context->info();
  stream->priority = std::clamp(param->priority, d.greatest_priority, d.least_priority);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  CUresult error = CUDA_SUCCESS;
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* stream = queried(hStream, &error);
  if (stream == nullptr) return error;
  *streamId = stream->unique;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  CUresult error = CUDA_SUCCESS;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* stream = queried(hStream, &error);
  if (stream == nullptr) return error;
  *device = static_cast<CUdevice>(stream->context->visible_device);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  CUresult error = CUDA_SUCCESS;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Stream* stream = queried(hStream, &error);
  if (stream == nullptr) return error;
  *pctx = stream->context->handle();
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

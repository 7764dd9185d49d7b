// Green contexts: contexts whose work runs on a part of the GPU's SMs (proxy/calls/green.cc).
//
// A green context is a created context like any other, whose CUgreenCtx is one more handle for it.
// Resources are numbers of the proxy inside the program's CUdevResource, beside the counts that a
// program reads. Nothing here is frequent: each call that makes something waits for the proxy's
// answer.
#include <cstring>
#include <new>

#include "hook/calls/contexts.h"
#include "hook/objects/context.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"

namespace tube::hook {
namespace {

constexpr uint32_t kMaxParts = 256;

// CUdevResource is the program's to keep and copy; its inner bytes are ours.
void fill(CUdevResource* out, uint64_t number, const uint32_t (&sms)[3]) {
  std::memset(out, 0, sizeof *out);
  if (number == 0) return;  // CU_DEV_RESOURCE_TYPE_INVALID
  out->type = CU_DEV_RESOURCE_TYPE_SM;
  std::memcpy(out->_internal_padding + 4, &number, sizeof number);
  out->sm.smCount = sms[0];
  out->sm.minSmPartitionSize = sms[1];
  out->sm.smCoscheduledAlignment = sms[2];
}

uint64_t number_of(const CUdevResource* resource) {
  uint64_t number = 0;
  std::memcpy(&number, resource->_internal_padding + 4, sizeof number);
  return number;
}

// The handle under which a program holds a description; the proxy checks the number.
CUdevResourceDesc description_handle(uint64_t number) {
  return reinterpret_cast<CUdevResourceDesc>(number << 8);
}
uint64_t description_number(CUdevResourceDesc handle) {
  return reinterpret_cast<uint64_t>(handle) >> 8;
}

CUresult get_resource(wire::ResourceOf source, uint32_t number, CUdevResource* resource,
                      CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  wire::tubeGetResource_reply reply{};
  Request<wire::tubeGetResource> r;
  r->source = source;
  r->number = number;
  r->type = static_cast<uint32_t>(type);
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) fill(resource, reply.resource, reply.sms);
  return result;
}

Context* find_green(CUgreenCtx handle) {
  Slot* slot = objects().find(Kind::kGreenContext, handle);
  return slot == nullptr ? nullptr : static_cast<Context*>(slot->object);
}

CUgreenCtx green_handle(const Context* context) {
  return context->green == nullptr ? nullptr
                                   : static_cast<CUgreenCtx>(objects().handle_of(context->green));
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  int32_t number = 0;
  if (const CUresult r = device_number(device, &number); r != CUDA_SUCCESS) return r;
  return get_resource(wire::ResourceOf::kDevice, static_cast<uint32_t>(number), resource, type);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  const Context* context = find_context(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return get_resource(wire::ResourceOf::kContext, context->number, resource, type);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                  CUdevResourceType type) {
  const Context* context = find_green(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return get_resource(wire::ResourceOf::kContext, context->number, resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int useFlags, unsigned int minCount) {
  if (nbGroups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  if (result != nullptr && *nbGroups == 0) return CUDA_ERROR_INVALID_VALUE;
  wire::tubeSplitResource_reply reply{};
  ReplyBlobs blobs;
  {
    Request<wire::tubeSplitResource> r;
    r->resource = number_of(input);
    r->groups = result == nullptr ? 0 : (*nbGroups < kMaxParts ? *nbGroups : kMaxParts);
    r->flags = useFlags;
    r->minimum = minCount;
    if (const CUresult error = r.call(&reply, &blobs); error != CUDA_SUCCESS) return error;
  }
  const auto bytes = blobs.get(reply.parts);
  const size_t parts = bytes.size() / sizeof(wire::SmPart);
  if (result != nullptr && (reply.groups > *nbGroups || parts != reply.groups + 1))
    return CUDA_ERROR_UNKNOWN;
  *nbGroups = reply.groups;
  for (size_t i = 0; i < parts; ++i) {
    wire::SmPart part;
    std::memcpy(&part, bytes.data() + i * sizeof part, sizeof part);
    CUdevResource* out = i < reply.groups ? &result[i] : remaining;
    if (out != nullptr) fill(out, part.resource, part.sms);
  }
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  if (phDesc == nullptr || resources == nullptr || nbResources == 0 || nbResources > kMaxParts)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t numbers[kMaxParts];
  for (unsigned i = 0; i < nbResources; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    numbers[i] = number_of(&resources[i]);
  }
  wire::tubeResourceDescription_reply reply{};
  const auto bytes = static_cast<uint32_t>(nbResources * sizeof numbers[0]);
  Request<wire::tubeResourceDescription> r(blob_room(bytes));
  r.put(&wire::tubeResourceDescription::resources, numbers, bytes);
  const CUresult result = r.call(&reply);
  if (result == CUDA_SUCCESS) *phDesc = description_handle(reply.description);
  return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  int32_t number = 0;  // no description, number 0: the whole device
  if (const CUresult r = device_number(dev, &number); r != CUDA_SUCCESS) return r;
  Slot* slot = objects().allocate(Kind::kGreenContext);
  if (slot == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Context* context = new_context(process().primaries[dev], 0);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    Request<wire::tubeGreenContextCreate> r;
    r.in_context(process().primaries[dev]);
    r->number = context->number;
    r->device = static_cast<uint32_t>(number);
    r->description = description_number(desc);
    r->flags = flags;
    if (const CUresult error = r.call(); error != CUDA_SUCCESS) return error;
  }
  CUcontext primary = nullptr;
  (void)hook::cuDevicePrimaryCtxRetain(&primary, dev);  // until the green context ends
  context->green = slot;
  slot->object = context;
  context->alive.store(true, std::memory_order_release);
  objects().publish(context->slot);
  objects().publish(slot);
  *phCtx = green_handle(context);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  Context* context = find_green(hCtx);
  if (context == nullptr || !objects().remove(context->green)) {
    return objects().gone(Kind::kGreenContext, hCtx) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                     : CUDA_ERROR_INVALID_CONTEXT;
  }
  const auto device = static_cast<CUdevice>(context->visible_device);
  const CUresult ended = end_context(context->handle());
  const CUresult released = hook::cuDevicePrimaryCtxRelease_v2(device);
  return ended != CUDA_SUCCESS ? ended : released;
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = find_green(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pContext = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = greenCtx == nullptr ? current_context() : find_green(greenCtx);
  if (context == nullptr || context->green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *greenCtxId = context->unique;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  Context* context = find_green(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return record_context_event(context, hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  Context* context = find_green(hCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return wait_context_event(context, hEvent);
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Context* context = find_green(greenCtx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = nullptr;
  if (const CUresult r = create_stream(context, flags, priority, &stream); r != CUDA_SUCCESS)
    return r;
  *phStream = stream->handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (hStream == CU_STREAM_PER_THREAD && current_context() != nullptr &&
      current_context()->green != nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = CUDA_SUCCESS;
  const Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  *phCtx = green_handle(stream->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (hStream == CU_STREAM_PER_THREAD && current_context() != nullptr &&
      current_context()->green != nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = CUDA_SUCCESS;
  const Stream* stream = find_stream(hStream, &error);
  if (stream == nullptr) return error;
  *pCtx = base_context(stream->context)->handle();
  if (pGreenCtx != nullptr) *pGreenCtx = green_handle(stream->context);
  return CUDA_SUCCESS;
}

}  // namespace tube::hook

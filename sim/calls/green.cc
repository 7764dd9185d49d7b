// Green contexts: parts of a device's SMs, and contexts that run on such a part.
//
// A part is a run of SMs of one device, named in CUdevResource's inner bytes together with where it
// came from; equal splits give equal bytes. The arithmetic is the documented one: groups of the
// asked size rounded up to the alignment, as many as fit, the rest remaining. A green context is a
// context beside the device's primary one, with streams of its own; memory, modules, arrays and
// events that are made with it current are the primary's (base_context), and outlive it (H200), as
// are printf buffer and peers. Where kernels take time (block_order.h), they run
// on the part's SMs alone.
#include <algorithm>
#include <cstring>

#include "sim/calls/teardown.h"
#include "sim/machine/state.h"
#include "sim/machine/work.h"

namespace tube::sim {

struct GreenContext {
  Context* context = nullptr;
  CUdevResource resource{};
};

namespace {

enum class Origin : uint32_t { kWhole = 1, kGroup, kRemaining };

// In CUdevResource::_internal_padding.
struct Inner {
  uint32_t magic;
  uint32_t device;
  Origin origin;
  uint32_t first;  // SM
};
constexpr uint32_t kMagic = 0x534d5253;
static_assert(sizeof(Inner) <= sizeof(CUdevResource::_internal_padding));

struct Description {
  uint32_t device = 0;
  CUdevResource resource{};
};

Inner inner_of(const CUdevResource& r) {
  Inner inner;
  std::memcpy(&inner, r._internal_padding + 4, sizeof inner);
  return inner;
}

// What can be split off: fewer SMs when nothing has to be scheduled together.
uint32_t granularity(const Device& device, bool ignore_coscheduling) {
  if (device.spec.sm >= 90) return ignore_coscheduling ? 2 : 8;
  return device.spec.sm >= 80 && !ignore_coscheduling ? 4 : 2;
}

CUdevResource make_resource(const Device& device, Origin origin, uint32_t first, uint32_t count) {
  CUdevResource r;
  std::memset(&r, 0, sizeof r);
  r.type = CU_DEV_RESOURCE_TYPE_SM;
  const Inner inner{kMagic, static_cast<uint32_t>(device.ordinal), origin, first};
  std::memcpy(r._internal_padding + 4, &inner, sizeof inner);
  r.sm.smCount = count;
  r.sm.minSmPartitionSize = r.sm.smCoscheduledAlignment = granularity(device, false);
  return r;
}

CUdevResource whole(const Device& device) {
  return make_resource(device, Origin::kWhole, 0, static_cast<uint32_t>(device.spec.sm_count));
}

CUresult check_type(const CUdevResource* out, CUdevResourceType type) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

CUresult check_input(const CUdevResource& r, Inner* inner) {
  if (r.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *inner = inner_of(r);
  return inner->magic == kMagic && device_at(static_cast<CUdevice>(inner->device)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

GreenContext* find_green(State& s, CUgreenCtx handle) {
  auto* green = live<GreenContext>(s, handle, Kind::kGreenContext);
  return green == nullptr || green->context->destroyed ? nullptr : green;
}

}  // namespace

Context* base_context(Context* context) {
  return context->green == nullptr ? context : context->device->primary;
}

SmRange sms_of(const Context& context) {
  if (context.green == nullptr) return {};
  return {inner_of(context.green->resource).first, context.green->resource.sm.smCount};
}

}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource* resource,
                                        CUdevResourceType type) {
  SIM_ENTER(kInit);
  const Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (CUresult r = check_type(resource, type)) return r;
  *resource = whole(*device);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource,
                                     CUdevResourceType type) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  auto* context = live<Context>(s, hCtx, Kind::kContext);
  if (context == nullptr || context->destroyed) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult r = check_type(resource, type)) return r;
  *resource = context->green != nullptr ? context->green->resource : whole(*context->device);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                          CUdevResourceType type) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  const GreenContext* green = find_green(s, hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult r = check_type(resource, type)) return r;
  *resource = green->resource;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                             const CUdevResource* input, CUdevResource* remaining,
                                             unsigned int useFlags, unsigned int minCount) {
  SIM_ENTER(kInit);
  if (nbGroups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Inner inner;
  if (CUresult r = check_input(*input, &inner)) return r;
  if (inner.origin != Origin::kWhole)
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;  // first make a green context of it
  if (result != nullptr && *nbGroups == 0) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  const Device& device = *device_at(static_cast<CUdevice>(inner.device));
  const uint32_t step =
      granularity(device, (useFlags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0);
  const uint32_t count = input->sm.smCount;
  if (minCount > count) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const uint32_t size = std::max(step, (minCount + step - 1) / step * step);
  uint32_t groups = count / size;
  if (groups == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (result == nullptr) {
    *nbGroups = groups;
    return CUDA_SUCCESS;
  }
  groups = std::min(groups, *nbGroups);
  for (uint32_t i = 0; i < groups; ++i)
    result[i] = make_resource(device, Origin::kGroup, inner.first + i * size, size);
  *nbGroups = groups;
  if (remaining == nullptr) return CUDA_SUCCESS;
  std::memset(remaining, 0, sizeof *remaining);
  const uint32_t rest = count - groups * size;
  if (rest != 0)
    *remaining = make_resource(device, Origin::kRemaining, inner.first + groups * size, rest);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                           unsigned int nbResources) {
  SIM_ENTER(kInit);
  if (phDesc == nullptr || resources == nullptr || nbResources == 0)
    return CUDA_ERROR_INVALID_VALUE;
  Inner first;
  if (CUresult r = check_input(resources[0], &first)) return r;
  uint32_t count = 0;
  for (unsigned i = 0; i < nbResources; ++i) {
    Inner inner;
    if (CUresult r = check_input(resources[i], &inner)) return r;
    if (inner.device != first.device || (nbResources != 1 && inner.origin == Origin::kWhole))
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    count += resources[i].sm.smCount;
  }
  State& s = state();
  Lock lock(s.mutex);
  auto* description = new Description;
  description->device = first.device;
  // Split again, it counts as whole: a green context's resource may be.
  description->resource = make_resource(*device_at(static_cast<CUdevice>(first.device)),
                                        Origin::kWhole, first.first, count);
  s.live.emplace(description, Kind::kResourceDescription);
  *phDesc = reinterpret_cast<CUdevResourceDesc>(description);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                                  unsigned int flags) {
  SIM_ENTER(kInit);
  if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext primary = nullptr;
  if (CUresult r = cuDevicePrimaryCtxRetain(&primary, dev)) return r;
  State& s = state();
  Lock lock(s.mutex);
  const auto* description = live<Description>(s, desc, Kind::kResourceDescription);
  const bool fits =
      desc == nullptr ||
      (description != nullptr && description->device == static_cast<uint32_t>(device->ordinal));
  if (!fits) {
    lock.unlock();
    cuDevicePrimaryCtxRelease_v2(dev);
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* green = new GreenContext;
  green->resource = description != nullptr ? description->resource : whole(*device);
  (void)quiesce(lock, device->primary);
  green->context = make_context(s, device, false);
  green->context->green = green;
  green->context->active = true;
  green->context->flags = device->primary->flags;
  device->primary->greens.push_back(green->context);
  s.live.emplace(green, Kind::kGreenContext);
  *phCtx = reinterpret_cast<CUgreenCtx>(green);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  const auto* green = live<GreenContext>(s, hCtx, Kind::kGreenContext);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Context* context = green->context;
  if (context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  tear_down(lock, context);
  std::erase(context->device->primary->greens, context);
  context->destroyed = true;  // where it is current it stays so (H200)
  const CUdevice device = context->device->ordinal;
  lock.unlock();
  return cuDevicePrimaryCtxRelease_v2(device);
}

SIM_API CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  SIM_ENTER(kInit);
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  const GreenContext* green = find_green(s, hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pContext = reinterpret_cast<CUcontext>(green->context);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  SIM_ENTER(kInit);
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  const GreenContext* green = nullptr;
  if (greenCtx != nullptr) green = find_green(s, greenCtx);
  else if (const Context* current = current_context(); current != nullptr) green = current->green;
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *greenCtxId = green->context->id;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  const GreenContext* green = find_green(s, hCtx);
  return green == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                          : record_context_event(lock, green->context, hEvent);
}

SIM_API CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  const GreenContext* green = find_green(s, hCtx);
  return green == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                          : wait_context_event(lock, green->context, hEvent);
}

SIM_API CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                        int priority) {
  SIM_ENTER(kInit);
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  const GreenContext* green = find_green(s, greenCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *phStream =
      reinterpret_cast<CUstream>(add_stream(s, green->context, flags, std::clamp(priority, -5, 0)));
  return CUDA_SUCCESS;
}

static CUresult stream_contexts(const char* call, CUstream hStream, CUcontext* context_out,
                                CUgreenCtx* green_out) {
  Context* current = nullptr;
  if (CUresult r = enter_stream(call, hStream, &current)) return r;
  if (current->green != nullptr && hStream == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  Lock lock(state().mutex);
  Stream* stream = nullptr;
  if (CUresult r = resolve_stream(lock, current, hStream, &stream)) return r;
  if (context_out != nullptr)
    *context_out = reinterpret_cast<CUcontext>(base_context(stream->context));
  if (green_out != nullptr) *green_out = reinterpret_cast<CUgreenCtx>(stream->context->green);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return pCtx == nullptr ? CUDA_ERROR_INVALID_VALUE
                         : stream_contexts(__func__, hStream, pCtx, pGreenCtx);
}

SIM_API CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return phCtx == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : stream_contexts(__func__, hStream, nullptr, phCtx);
}

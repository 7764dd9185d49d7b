// Contexts: per-thread stacks, primary contexts and their counts, created contexts as names for a
// share of the proxy's.
//
// All of it is bookkeeping of this process. The proxy hears of a created context (so that it can
// keep its streams and allocations apart) and of a primary reset, which frees what this program
// made there.
#include <cstring>
#include <new>

#include "hook/calls/contexts.h"
#include "hook/graphs/update_proofs.h"
#include "hook/memory/host_fork.h"
#include "hook/memory/memory_map.h"
#include "hook/objects/array.h"
#include "hook/objects/context.h"
#include "hook/objects/device_output.h"
#include "hook/objects/kernels.h"
#include "hook/objects/peers.h"
#include "hook/objects/support.h"
#include "protocol/hook_decls.gen.h"
#include "sharedmem/accessors.h"

namespace tube::hook {
namespace {

constexpr unsigned kFlagMask = CU_CTX_FLAGS_MASK;

Context* primary_of(CUdevice device) {
  Process& p = process();
  return device >= 0 && static_cast<uint32_t>(device) < p.device_count ? p.primaries[device]
                                                                       : nullptr;
}

bool valid_flags(unsigned flags) {
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~kFlagMask) == 0 &&
         (schedule & (schedule - 1)) == 0;  // at most one kind of waiting
}

CUresult broken() { return sticky_error(); }

// Forgets what was made in the context, before the record that ends it is posted. Memory that other
// threads give back, or get at the same addresses in other contexts, is then either named before
// that record or no part of this context.
void forget_contents(Context* context, Retired* gone) {
  context->epoch.fetch_add(1, std::memory_order_acq_rel);
  forget_all_updates();
  forget_streams(context, gone);
  forget_events(context, gone);
  forget_registrations(context);
  memory_map().forget_context(context);
  forget_modules(context, gone);
  forget_peers(context);
  forget_arrays(context, gone);
}

void set_resetting(Context* context, bool resetting) {
  Locked locked(context->streams_lock);
  context->resetting = resetting;
}

// Everything the program made in a primary context goes; handles become invalid. `life` is held;
// its work was waited for before, as that may need other threads which want the lock. What came
// since the proxy waits for.
CUresult reset_primary(Context* context) {
  set_resetting(context, true);
  Retired gone(objects());
  forget_contents(context, &gone);
  Request<wire::tubePrimaryReset> r;
  r.in_context(context);
  r->device = context->device;
  const CUresult result = r.call();
  context->flags.store(0, std::memory_order_relaxed);
  context->cache_config.store(-1, std::memory_order_relaxed);
  for (auto& limit : context->limits) limit.store(0, std::memory_order_relaxed);
  context->live.store(false, std::memory_order_release);
  set_resetting(context, false);
  return broken() != CUDA_SUCCESS ? CUDA_SUCCESS : result;
}

CUresult create_context(CUcontext* pctx, unsigned flags, CUdevice dev) {
  if (pctx == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Context* primary = primary_of(dev);
  if (primary == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult r = broken(); r != CUDA_SUCCESS) return r;
  Context* c = new_context(primary, flags);
  if (c == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    Request<wire::tubeContextCreate> r;
    r.in_context(primary);
    r->number = c->number;
    r->device = c->device;
    r->flags = flags;
    if (const CUresult result = r.post(); result != CUDA_SUCCESS) return result;
  }
  c->alive.store(true, std::memory_order_release);
  objects().publish(c->slot);
  if (!push_context(c)) return CUDA_ERROR_OUT_OF_MEMORY;
  *pctx = c->handle();
  return CUDA_SUCCESS;
}

}  // namespace

// ---- primary contexts ----

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = primary_of(dev);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Locked life(
      context->life);  // another thread may be releasing the last reference: then it ends first
  // A context that a fault ended may be reset, but not had again (H200, 13.0).
  if (!context->live.load(std::memory_order_acquire) && broken() != CUDA_SUCCESS) return broken();
  context->retains.fetch_add(1, std::memory_order_acq_rel);
  context->live.store(true, std::memory_order_release);
  *pctx = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Context* context = primary_of(dev);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (context->retains.load(std::memory_order_acquire) == 1) (void)sync_context(context);
  Locked life(context->life);
  if (context->retains.load(std::memory_order_relaxed) <= 0) return CUDA_ERROR_INVALID_CONTEXT;
  return context->retains.fetch_sub(1, std::memory_order_acq_rel) == 1 ? reset_primary(context)
                                                                       : CUDA_SUCCESS;
}

static CUresult reset_device(CUdevice dev, bool drops_references) {
  Context* context = primary_of(dev);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (context->retains.load(std::memory_order_acquire) != 0) (void)sync_context(context);
  Locked life(context->life);
  const CUresult r =
      context->retains.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS : reset_primary(context);
  if (drops_references) context->retains.store(0, std::memory_order_release);
  return r;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) { return reset_device(dev, false); }

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Context* context = primary_of(dev);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags.store(flags, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// The first versions: one release too many is no error, a reset drops the references, flags are for
// a context to come.
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  const CUresult r = hook::cuDevicePrimaryCtxRelease_v2(dev);
  return r == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS : r;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return reset_device(dev, true); }

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  const Context* context = primary_of(dev);
  if (context != nullptr && valid_flags(flags) && context->live.load(std::memory_order_acquire))
    return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  return hook::cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = primary_of(dev);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = context->flags.load(std::memory_order_relaxed);
  *active = context->live.load(std::memory_order_acquire) ? 1 : 0;
  return CUDA_SUCCESS;
}

// ---- the thread's stack ----

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = current_context();
  *pctx = context == nullptr ? nullptr : context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  Thread& thread = this_thread();
  if (ctx == nullptr) {
    if (thread.depth != 0) --thread.depth;
    return CUDA_SUCCESS;
  }
  Context* context = find_context_or_gone(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (thread.depth == 0) return push_context(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  thread.stack[thread.depth - 1] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  Context* context = find_context_or_gone(ctx);
  if (context == nullptr)
    return ctx == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
  return push_context(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  Thread& thread = this_thread();
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const Context* top = thread.stack[--thread.depth];
  if (pctx != nullptr) *pctx = top->handle();
  return CUDA_SUCCESS;
}

// ---- created contexts ----

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(pctx, flags, dev);
}
// Affinity and graphics-compute contexts divide the GPU between processes, which needs a context of
// one's own.
CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  if (numParams > 0 && paramsArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (numParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create_context(pctx, flags, dev);
}
CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  if (ctxCreateParams != nullptr && ctxCreateParams->numExecAffinityParams > 0)
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (ctxCreateParams != nullptr && ctxCreateParams->cigParams != nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  return create_context(pctx, flags, dev);
}

CUresult end_context(CUcontext handle) {
  Context* context = find_context(handle);
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const CUresult finished = sync_context(context);
  Locked life(context->life);
  if (find_context(handle) != context)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;  // another thread was faster
  {
    Locked locked(context->streams_lock);  // who is just marking its streams comes before the end
    context->alive.store(false, std::memory_order_release);
  }
  Retired gone(objects());
  forget_contents(context, &gone);
  const uint32_t number = context->number;
  if (!gone.add(context->slot)) return CUDA_ERROR_INVALID_CONTEXT;
  Thread& thread = this_thread();
  // A green one stays current, destroyed as it is (H200, 13.0).
  if (context->green == nullptr && thread.depth != 0 && thread.stack[thread.depth - 1] == context)
    --thread.depth;
  Request<wire::tubeContextDestroy> r;
  r.in_context(process().primaries[context->visible_device]);
  r->number = number;
  const CUresult posted = r.post();
  return finished != CUDA_SUCCESS ? finished : posted;
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Context* context = find_context(ctx);
  if (context == nullptr && objects().gone(Kind::kContext, ctx))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context == nullptr)
    return ctx == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary || context->green != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return end_context(ctx);
}

// ---- queries ----

CUresult cuCtxGetDevice(CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = static_cast<CUdevice>(current_context()->visible_device);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = ctx == nullptr ? current_context() : find_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = static_cast<CUdevice>(context->visible_device);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // Mapping host memory is always on; the driver says so here, of the primary context only, and not
  // in its state (H200, 13.0).
  *flags = context->flags.load(std::memory_order_relaxed) |
           (context->primary ? unsigned{CU_CTX_MAP_HOST} : 0u);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  current_context()->flags.store(flags, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = ctx == nullptr ? current_context() : find_context(ctx);
  if (context == nullptr)
    return ctx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ctxId = context->unique;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = ctx == nullptr ? current_context() : find_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  const info::DeviceInfo& d = current_context()->info();
  if (leastPriority != nullptr) *leastPriority = d.least_priority;
  if (greatestPriority != nullptr) *greatestPriority = d.greatest_priority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int32_t set = current_context()->cache_config.load(std::memory_order_relaxed);
  *pconfig = static_cast<CUfunc_cache>(set >= 0 ? set : current_context()->info().cache_config);
  return CUDA_SUCCESS;
}

// A hint for the whole context: not this program's to change, but it reads back what it set.
CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  if (static_cast<unsigned>(config) > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  current_context()->cache_config.store(config, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// ---- limits: set once for everybody by the proxy, remembered per program there ----

namespace {
CUresult limit_call(bool set, CUlimit limit, uint64_t value, uint64_t* out) {
  Request<wire::tubeContextLimit> r;
  r->set = set ? 1 : 0;
  r->limit = static_cast<int32_t>(limit);
  r->value = value;
  wire::tubeContextLimit_reply reply{};
  const CUresult result = r.call(&reply);
  *out = reply.value;
  return result;
}

}  // namespace

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto id = static_cast<uint32_t>(limit);
  if (id >= info::kLimitCount) return CUDA_ERROR_INVALID_VALUE;
  // Asked hundreds of times by one library; a limit only changes by our own calls.
  if (current_context()->info().limit_results[id] != 0)
    return static_cast<CUresult>(current_context()->info().limit_results[id]);
  const uint64_t value = current_context()->limits[id].load(std::memory_order_relaxed);
  *pvalue = value != 0 ? value - 1 : current_context()->info().limits[id];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  const auto id = static_cast<uint32_t>(limit);
  if (id >= info::kLimitCount) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = forbid_unsafe_call(); r != CUDA_SUCCESS) return r;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE && has_printed(current_context()))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t now = value;
  const CUresult result = limit_call(true, limit, value, &now);
  if (result == CUDA_SUCCESS)
    current_context()->limits[id].store(now + 1, std::memory_order_relaxed);
  return result;
}

// ---- synchronising ----

CUresult cuCtxSynchronize(void) {
  if (const CUresult r = forbid_context_sync(current_context()); r != CUDA_SUCCESS) return r;
  return sync_context(current_context());
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Context* context = ctx == nullptr ? current_context() : find_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult r = forbid_context_sync(context); r != CUDA_SUCCESS) return r;
  return sync_context(context);
}

CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

}  // namespace tube::hook

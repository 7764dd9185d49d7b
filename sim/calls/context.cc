// Contexts: the per-thread stack, primary contexts, limits, synchronisation.
//
// Primary contexts are one object per device and stay the same handle for the life of the process,
// inactive while nobody retains them. A reset clears a sticky error: what the real driver needs a
// new process for is one call here.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "sim/calls/teardown.h"
#include "sim/machine/attributes.h"
#include "sim/machine/control.h"
#include "sim/machine/devices.h"
#include "sim/machine/hold.h"
#include "sim/machine/state.h"

namespace tube::sim {

void set_default_limits(Context* c) {
  const auto shared = static_cast<size_t>(sm_limits(c->device->spec.sm).shared_per_block_optin);
  const size_t defaults[] = {1024, 8650752, 8388608, 2, 2048, 64, 11796480, shared, 0, 0};
  std::copy(std::begin(defaults), std::end(defaults), c->limits.begin());
}

// What a limit becomes when `value` is asked for.
CUresult settle_limit(const Context& c, CUlimit limit, size_t* value) {
  constexpr size_t kStackMax = 512 << 10;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = (*value + 15) / 16 * 16;
      return *value > kStackMax ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = std::max<size_t>(*value, 512 << 10);
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE: *value = std::max<size_t>(*value, 4 << 20); return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      return c.device->spec.sm >= 90 ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return *value > 128 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED: return CUDA_ERROR_NOT_PERMITTED;
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default: return CUDA_SUCCESS;
  }
}

Context* make_context(State& s, Device* device, bool primary) {
  auto* c = new Context;
  c->id = s.new_id();
  c->device = device;
  c->primary = primary;
  reset_context(s, c);
  set_default_limits(c);
  s.live.emplace(c, Kind::kContext);
  return c;
}

Context* primary_of(State& s, Device* device) {
  if (device->primary == nullptr) device->primary = make_context(s, device, true);
  return device->primary;
}

namespace {

constexpr unsigned kFlagsMask = CU_CTX_FLAGS_MASK;

bool valid_flags(unsigned flags) {
  if ((flags & ~kFlagsMask) != 0) return false;
  unsigned sched = flags & CU_CTX_SCHED_MASK;
  return sched == 0 || sched == 1 || sched == 2 || sched == 4;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice dev, unsigned version) {
  if (out == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  State& s = state();
  Lock lock(s.mutex);
  Context* c = make_context(s, device, false);
  c->flags = flags;
  c->api_version = version;
  c->active = true;
  thread().stack.push_back(c);
  *out = reinterpret_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}

// A context handle as an argument; destroyed ones are told apart from nonsense.
CUresult check_context(State& s, CUcontext handle, Context** out) {
  auto* c = live<Context>(s, handle, Kind::kContext);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (c->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = c;
  return CUDA_SUCCESS;
}

// NULL means the current context.
CUresult context_or_current(State& s, CUcontext handle, Context** out) {
  if (handle != nullptr) return check_context(s, handle, out);
  *out = current_context();
  return *out == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

enum class End : uint8_t { kRelease, kReset, kResetAndForget };

// An end waits for work without the lock: a caller that wants the context meanwhile gets the next
// one.
std::condition_variable ended;
void wait_for_end(Lock& lock, const Context* context) {
  ended.wait(lock, [context] { return context == nullptr || !context->ending; });
}

CUresult release_primary(CUdevice dev, End how) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(state().mutex);
  Context* c = device->primary;
  wait_for_end(lock, c);
  if (how == End::kRelease) {
    if (c == nullptr || c->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--c->retained > 0) return CUDA_SUCCESS;
  }
  if (how == End::kResetAndForget && c != nullptr) c->retained = 0;
  if (c == nullptr || !c->active) return CUDA_SUCCESS;
  c->ending = true;
  tear_down(lock, c);
  c->ending = false;
  ended.notify_all();
  set_default_limits(c);
  {
    std::lock_guard guard(c->print_mutex);
    c->printed = false;
  }
  // A reset leaves the references alone, but the context is inactive until it is retained again.
  c->active = false;
  c->flags = 0;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tube::sim

using namespace tube::sim;

SIM_API CUresult cuInit(unsigned int Flags) {
  if (CUresult injected = enter("cuInit", Need::kNothing)) return injected;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult failed = initialize()) return failed;
  static std::once_flag once;
  std::call_once(once, &serve_control);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  SIM_ENTER(kInit);
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  State& s = state();
  Lock lock(s.mutex);
  Context* c = primary_of(s, device);
  wait_for_end(lock, c);
  if (!c->active && device->broken != CUDA_SUCCESS) return device->broken;
  ++c->retained;
  c->active = true;
  *pctx = reinterpret_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}

// The first versions of the three: one release too many is no error, a reset drops the references,
// flags wait for the next context.
SIM_API CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  SIM_ENTER(kInit);
  const CUresult r = release_primary(dev, End::kRelease);
  return r == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS : r;
}
SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  SIM_ENTER(kInit);
  return release_primary(dev, End::kRelease);
}
SIM_API CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  SIM_ENTER(kInit);
  return release_primary(dev, End::kResetAndForget);
}
SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  SIM_ENTER(kInit);
  return release_primary(dev, End::kReset);
}

static CUresult set_primary_flags(CUdevice dev, unsigned flags, bool while_active) {
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  if (!while_active && primary_of(s, device)->active) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  primary_of(s, device)->flags = flags;
  return CUDA_SUCCESS;
}
SIM_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  SIM_ENTER(kInit);
  return set_primary_flags(dev, flags, false);
}
SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  SIM_ENTER(kInit);
  return set_primary_flags(dev, flags, true);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  SIM_ENTER(kInit);
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = device_at(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(state().mutex);
  *flags = device->primary == nullptr ? 0 : device->primary->flags;
  *active = device->primary != nullptr && device->primary->active ? 1 : 0;
  return CUDA_SUCCESS;
}

// The only contexts of the API of before kWideApi: they take its calls and no later forms of them.
SIM_API CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  SIM_ENTER(kInit);
  return create(pctx, flags, dev, 3010);
}

SIM_API CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  SIM_ENTER(kInit);
  return create(pctx, flags, dev, kWideApi);
}

SIM_API CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                                unsigned int flags, CUdevice dev) {
  SIM_ENTER(kInit);
  if (numParams > 0 && paramsArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (numParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(pctx, flags, dev, kWideApi);
}

SIM_API CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                                unsigned int flags, CUdevice dev) {
  SIM_ENTER(kInit);
  if (ctxCreateParams != nullptr && ctxCreateParams->numExecAffinityParams > 0)
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (ctxCreateParams != nullptr && ctxCreateParams->cigParams != nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  return create(pctx, flags, dev, kWideApi);
}

SIM_API CUresult cuCtxDestroy_v2(CUcontext ctx) {
  SIM_ENTER(kInit);
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Context* c = nullptr;
  if (CUresult r = check_context(s, ctx, &c)) return r;
  if (c->primary || c->green != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  tear_down(lock, c);
  c->destroyed = true;
  Thread& t = thread();
  if (!t.stack.empty() && t.stack.back() == c) t.stack.pop_back();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  SIM_ENTER(kInit);
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  // A destroyed context may be pushed; what is done in it then answers 709.
  auto* c = live<Context>(s, ctx, Kind::kContext);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  thread().stack.push_back(c);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  SIM_ENTER(kInit);
  Thread& t = thread();
  if (t.stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = reinterpret_cast<CUcontext>(t.stack.back());
  t.stack.pop_back();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCurrent(CUcontext ctx) {
  SIM_ENTER(kInit);
  Thread& t = thread();
  if (ctx == nullptr) {
    if (!t.stack.empty()) t.stack.pop_back();
    return CUDA_SUCCESS;
  }
  State& s = state();
  Lock lock(s.mutex);
  auto* c = live<Context>(s, ctx, Kind::kContext);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (t.stack.empty()) t.stack.push_back(c);
  else t.stack.back() = c;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCurrent(CUcontext* pctx) {
  SIM_ENTER(kInit);
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = reinterpret_cast<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevice(CUdevice* device) {
  SIM_ENTER(kInit);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = current_context();
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = c->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  SIM_ENTER(kInit);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Context* c = nullptr;
  if (CUresult r = context_or_current(s, ctx, &c)) return r;
  *device = c->device->ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetFlags(unsigned int* flags) {
  SIM_ENTER(kInit);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = current_context();
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = c->primary ? c->flags | CU_CTX_MAP_HOST : c->flags;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetFlags(unsigned int flags) {
  SIM_ENTER_CONTEXT(c);
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  c->flags = flags;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  SIM_ENTER(kInit);
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Context* c = nullptr;
  if (CUresult r = context_or_current(s, ctx, &c)) return r;
  *ctxId = c->id;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  SIM_ENTER(kInit);
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State& s = state();
  Lock lock(s.mutex);
  Context* c = nullptr;
  if (CUresult r = context_or_current(s, ctx, &c)) return r;
  *version = c->api_version;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSynchronize(void) {
  SIM_ENTER_CONTEXT(c);
  Lock lock(state().mutex);
  if (CUresult r = check_context_idle_of_captures(state(), c)) return r;
  return synchronize(lock, c);
}

SIM_API CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  SIM_ENTER(kInit);
  State& s = state();
  Lock lock(s.mutex);
  Context* c = nullptr;
  if (CUresult r = context_or_current(s, ctx, &c)) return r;
  if (CUresult r = check_context_idle_of_captures(s, c)) return r;
  return synchronize(lock, c);
}

SIM_API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SIM_ENTER_CONTEXT(c);
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = settle_limit(*c, limit, &value)) return r;
  {
    State& s = state();
    Lock lock(s.mutex);
    if (CUresult r = check_capture_unsafe(s)) return r;
    if (limit == CU_LIMIT_STACK_SIZE && value != c->limits[CU_LIMIT_STACK_SIZE]) {
      (void)quiesce(lock, c);
      unsettle(c);
    }
  }
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) {
    std::lock_guard guard(c->print_mutex);
    if (c->printed) return CUDA_ERROR_INVALID_VALUE;  // the buffer is in use
  }
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) {
    std::lock_guard guard(c->heap_mutex);
    if (c->heap_in_use) return CUDA_ERROR_INVALID_VALUE;  // whatever the value (H200, 13.0)
  }
  c->limits[static_cast<size_t>(limit)] = value;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  SIM_ENTER_CONTEXT(c);
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH && c->device->spec.sm >= 90)
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *pvalue = c->limits[static_cast<size_t>(limit)];
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  SIM_ENTER_CONTEXT(c);
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = c->cache_config;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  SIM_ENTER_CONTEXT(c);
  if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  c->cache_config = config;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  SIM_ENTER_CONTEXT(c);
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  (void)c;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // fixed in every GPU that is left
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  SIM_ENTER_CONTEXT(c);
  if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
    return CUDA_ERROR_INVALID_VALUE;
  (void)c;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  SIM_ENTER_CONTEXT(c);
  (void)c;
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = -5;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxResetPersistingL2Cache(void) {
  SIM_ENTER_CONTEXT(c);
  (void)c;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  SIM_ENTER_CONTEXT(c);
  if (pExecAffinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val = static_cast<unsigned>(c->device->spec.sm_count);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  SIM_ENTER_CONTEXT(c);
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  ++c->attach_count;
  *pctx = reinterpret_cast<CUcontext>(c);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDetach(CUcontext ctx) {
  SIM_ENTER_CONTEXT(c);
  if (reinterpret_cast<CUcontext>(c) != ctx) return CUDA_ERROR_INVALID_CONTEXT;
  if (--c->attach_count > 0) return CUDA_SUCCESS;
  return cuCtxDestroy_v2(ctx);
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  SIM_ENTER_CONTEXT(c);
  State& s = state();
  Lock lock(s.mutex);
  Context* peer = nullptr;
  if (CUresult r = check_context(s, peerContext, &peer)) return r;
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == c->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (!peer_capable(s, *c->device, *peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  uint64_t bit = 1ull << peer->device->ordinal;
  if ((c->peers.fetch_or(bit) & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  SIM_ENTER_CONTEXT(c);
  State& s = state();
  Lock lock(s.mutex);
  Context* peer = nullptr;
  if (CUresult r = check_context(s, peerContext, &peer)) return r;
  if (peer->primary && !peer->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  uint64_t bit = 1ull << peer->device->ordinal;
  if ((c->peers.load() & bit) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  synchronize(lock, c);
  c->peers.fetch_and(~bit);
  return CUDA_SUCCESS;
}

#include "proxy/gpu/driver_wrappers.h"

#include <utility>

#include "protocol/driver_table.gen.h"

namespace tube::proxy {
namespace {

ContextGate* g_gate = nullptr;  // of the wrapped table
thread_local GateCaller t_caller;
thread_local WaitOwner t_wait_owner = WaitOwner::kProgram;

const Driver& real() { return g_gate->unwrapped(); }

// ---- context-wide calls

template <auto Entry>
struct ContextWide;
template <class... A, CUresult (*Driver::*Entry)(A...)>
struct ContextWide<Entry> {
  static inline const char* name = "";
  static CUresult call(A... arguments) {
    return g_gate->context_wide(t_caller, name, [&] { return (real().*Entry)(arguments...); });
  }
};

template <auto Entry>
struct Deferring;
template <class... A, CUresult (*Driver::*Entry)(A...)>
struct Deferring<Entry> {
  static inline const char* name = "";
  static CUresult call(A... arguments) {
    return g_gate->context_wide_deferring(t_caller, name,
                                          [&] { return (real().*Entry)(arguments...); });
  }
};

// ---- what takes a slot of the stream reserve

// Before there is none left: at a moment when no stream waits, neither others' nor the caller's.
void grow_if_open(CUcontext context) {
  const CUdevice device = g_gate->current_device().value_or(0);
  const auto grow = [&] { g_gate->reserve().grow(real(), context); };
  if (!g_gate->inside(t_caller, device)) (void)g_gate->if_open(t_caller, grow);
  else if (g_gate->open_inside(t_caller, device)) grow();
}

// Only when no slot is left at all this waits, as the driver would.
template <class Handle, class Make>
CUresult make_counted(Handle* handle, Make make) {
  StreamReserve& reserve = g_gate->reserve();
  const CUcontext context = g_gate->current_context();
  auto slot = StreamReserve::Slot::kNone;
  while ((slot = reserve.take(context)) == StreamReserve::Slot::kNone) {
    (void)g_gate->context_wide(t_caller, "room for streams", [&] {
      reserve.grow(real(), context);
      return CUDA_SUCCESS;
    });
  }
  if (slot == StreamReserve::Slot::kTakenOfFew) grow_if_open(context);
  const CUresult error = make();
  if (error == CUDA_SUCCESS) reserve.made(context, *handle);
  else reserve.cancel(context);
  return error;
}

// Uncounted first: the driver may give the handle to the next one at once.
template <class Handle, class Destroy>
CUresult destroy_counted(Handle handle, Destroy destroy) {
  StreamReserve& reserve = g_gate->reserve();
  const bool counted = reserve.gone(handle);
  const CUresult error = destroy();
  if (error == CUDA_SUCCESS || !counted) return error;
  const CUcontext context = g_gate->current_context();
  if (reserve.take(context) != StreamReserve::Slot::kNone) reserve.made(context, handle);
  return error;
}

CUresult create_stream(CUstream* stream, unsigned int flags) {
  return make_counted(stream, [&] { return real().cuStreamCreate(stream, flags); });
}

CUresult create_stream_with_priority(CUstream* stream, unsigned int flags, int priority) {
  return make_counted(stream,
                      [&] { return real().cuStreamCreateWithPriority(stream, flags, priority); });
}

CUresult destroy_stream(CUstream stream) {
  return destroy_counted(stream, [&] { return real().cuStreamDestroy_v2(stream); });
}

// Instances take memory for their nodes as well, which the driver gets in blocks of its own: always
// a context-wide call.
template <class Make>
CUresult make_instance(CUgraphExec* exec, Make make) {
  return g_gate->context_wide(
      t_caller, "cuGraphInstantiate", [&] { return make_counted(exec, make); }, GateSpan::kItsGpus,
      WaitsFor::kNothingMostly);
}

CUresult instantiate(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return make_instance(exec,
                       [&] { return real().cuGraphInstantiateWithParams(exec, graph, params); });
}

CUresult instantiate_with_flags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return make_instance(exec,
                       [&] { return real().cuGraphInstantiateWithFlags(exec, graph, flags); });
}

CUresult destroy_instance(CUgraphExec exec) {
  return destroy_counted(exec, [&] { return real().cuGraphExecDestroy(exec); });
}

// ---- green contexts

CUresult create_green(CUgreenCtx* green, CUdevResourceDesc resources, CUdevice device,
                      unsigned int flags) {
  return g_gate->context_wide(t_caller, "cuGreenCtxCreate", [&] {
    const CUresult error = real().cuGreenCtxCreate(green, resources, device, flags);
    CUcontext context = nullptr;
    if (error != CUDA_SUCCESS || real().cuCtxFromGreenCtx(&context, *green) != CUDA_SUCCESS ||
        real().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
      return error;
    StreamReserve::grow_uncounted(real());
    (void)real().cuCtxPopCurrent_v2(&context);
    return error;
  });
}

// In the reserve of the green context, which is made current for that; streams of others are
// counted in the current context, too.
CUresult create_green_stream(CUstream* stream, CUgreenCtx green, unsigned int flags, int priority) {
  CUcontext context = nullptr;
  CUresult error = real().cuCtxFromGreenCtx(&context, green);
  if (error == CUDA_SUCCESS) error = real().cuCtxPushCurrent_v2(context);
  if (error != CUDA_SUCCESS) return error;
  error = make_counted(
      stream, [&] { return real().cuGreenCtxStreamCreate(stream, green, flags, priority); });
  (void)real().cuCtxPopCurrent_v2(&context);
  return error;
}

CUresult destroy_green(CUgreenCtx green) {
  CUcontext context = nullptr;
  if (real().cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS) g_gate->forget_context(context);
  return real().cuGreenCtxDestroy(green);
}

// ---- waits

template <auto Entry>
struct Waiting;
template <class... A, CUresult (*Driver::*Entry)(CUstream, A...)>
struct Waiting<Entry> {
  static CUresult call(CUstream stream, A... arguments) {
    return g_gate->submit_wait(t_caller, t_wait_owner, stream,
                               [&] { return (real().*Entry)(stream, arguments...); });
  }
};

// Its stream comes last.
CUresult wait_external(const CUexternalSemaphore* semaphores,
                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned int count,
                       CUstream stream) {
  return g_gate->submit_wait(t_caller, t_wait_owner, stream, [&] {
    return real().cuWaitExternalSemaphoresAsync(semaphores, params, count, stream);
  });
}

}  // namespace

GateCaller& this_caller() { return t_caller; }

ProxyWaits::ProxyWaits() : before_(std::exchange(t_wait_owner, WaitOwner::kProxy)) {}
ProxyWaits::~ProxyWaits() { t_wait_owner = before_; }

void wrap_driver(Driver& table, ContextGate& gate) {
  (void)gate.keep_unwrapped(table);
  g_gate = &gate;
#define TUBE_WRAP(kind, entry)          \
  kind<& Driver::entry>::name = #entry; \
  table.entry = kind<&Driver::entry>::call
  TUBE_WRAP(ContextWide, cuLibraryLoadData);  // its code comes later (main.cc: lazily), its
                                              // variables may not
  TUBE_WRAP(ContextWide, cuModuleUnload);
  TUBE_WRAP(ContextWide, cuLibraryUnload);
  TUBE_WRAP(ContextWide, cuModuleGetFunction);  // does not wait, but holds what comes after; its
                                                // module's deferred setup has run
  TUBE_WRAP(ContextWide, cuMemFree_v2);
  TUBE_WRAP(ContextWide, cuMemFreeHost);
  TUBE_WRAP(ContextWide, cuMemHostUnregister);
  TUBE_WRAP(ContextWide, cuArrayDestroy);
  TUBE_WRAP(ContextWide, cuMipmappedArrayDestroy);
  TUBE_WRAP(ContextWide, cuDestroyExternalMemory);
  TUBE_WRAP(Deferring, cuModuleLoadData);
  TUBE_WRAP(Deferring, cuModuleLoadDataEx);
  TUBE_WRAP(Deferring, cuKernelGetFunction);
  TUBE_WRAP(Deferring, cuCtxSetLimit);
#undef TUBE_WRAP
#define TUBE_WAITING(entry) table.entry = Waiting<&Driver::entry>::call
  TUBE_WAITING(cuStreamWaitValue32_v2);
  TUBE_WAITING(cuStreamWaitValue64_v2);
  TUBE_WAITING(cuStreamBatchMemOp_v2);
#undef TUBE_WAITING
  table.cuWaitExternalSemaphoresAsync = wait_external;
  table.cuGreenCtxCreate = create_green;
  table.cuGreenCtxDestroy = destroy_green;
  table.cuGreenCtxStreamCreate = create_green_stream;
  table.cuStreamCreate = create_stream;
  table.cuStreamCreateWithPriority = create_stream_with_priority;
  table.cuStreamDestroy_v2 = destroy_stream;
  table.cuGraphInstantiateWithParams = instantiate;
  table.cuGraphInstantiateWithFlags = instantiate_with_flags;
  table.cuGraphExecDestroy = destroy_instance;
}

}  // namespace tube::proxy

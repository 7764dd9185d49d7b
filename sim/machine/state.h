// The whole simulated driver: one State per process, made by the first cuInit, leaked on purpose.
//
// Programs call the driver from atexit handlers and from threads that outlive main, so nothing here
// has a destructor that runs at exit. After fork the child's copy is dead: every call answers
// CUDA_ERROR_NOT_INITIALIZED.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sim/machine/address_map.h"
#include "sim/machine/engine.h"
#include "sim/machine/objects.h"
#include "sim/machine/topology.h"

#define SIM_API extern "C" __attribute__((visibility("default")))

namespace tube::sim {

class CopyEngines;
class HardwareQueues;

enum class Kind : uint8_t {
  kContext,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kKernel,
  kLibrary,
  kLinker,
  kPool,
  kGraph,
  kNode,
  kGraphExec,
  kArray,
  kUserObject,
  kMipmap,
  kGreenContext,
  kResourceDescription,
  kExternalMemory,
  kExternalSemaphore,
};

struct State {
  State();
  ~State();
  std::mutex mutex;  // rank 1: guards everything below but `map`
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Fabric> fabric;
  std::unique_ptr<HardwareQueues> hardware_queues;  // null: as many as streams
  std::unique_ptr<CopyEngines> copy_engines;        // null: copies do not wait for each other
  AddressMap map;                                   // own lock, rank 2
  std::unordered_map<const void*, Kind> live;
  uint64_t next_id = 1;
  std::vector<CapturePtr> captures;
  bool launch_blocking = false;
  CUresult init_result = CUDA_SUCCESS;  // what cuInit answers; after a failure every other call
                                        // answers NOT_INITIALIZED
  CUmoduleLoadingMode loading_mode = CU_MODULE_LAZY_LOADING;

  uint64_t new_id() { return next_id++; }
};

// Valid after a successful enter().
State& state();
Thread& thread();

// What a call needs before it may start. kHandle: a current context is not needed (the handle knows
// its own), but one that is there must be well.
enum class Need : uint8_t { kNothing, kInit, kHandle, kContext };

// Every entry point starts with this: counts the call for fault injection, checks initialisation,
// the current context and its sticky error. `current` receives the context for Need::kContext, and
// for Need::kHandle the one that is there or null.
CUresult enter(const char* call, Need need, Context** current = nullptr);
// For calls that give something back: they need no current context, but a dead one answers its
// code. `current` may stay nullptr.
CUresult enter_to_free(const char* call, Context** current);
// The outputs that a call sets to zero before it looks at anything, initialisation included.
template <class... T>
void zero(T*... outputs) {
  ((outputs != nullptr ? void(*outputs = {}) : void()), ...);
}
#define SIM_ENTER(need)                                                                           \
  do {                                                                                            \
    if (CUresult entered = ::tube::sim::enter(__func__, ::tube::sim::Need::need)) return entered; \
  } while (0)
#define SIM_ENTER_CONTEXT(variable)                                                              \
  ::tube::sim::Context* variable = nullptr;                                                      \
  do {                                                                                           \
    if (CUresult entered = ::tube::sim::enter(__func__, ::tube::sim::Need::kContext, &variable)) \
      return entered;                                                                            \
  } while (0)

#define SIM_ENTER_HANDLE(variable)                                                              \
  ::tube::sim::Context* variable = nullptr;                                                     \
  do {                                                                                          \
    if (CUresult entered = ::tube::sim::enter(__func__, ::tube::sim::Need::kHandle, &variable)) \
      return entered;                                                                           \
  } while (0)
// For a call on a stream: `variable` is the current context or, without one, the stream's own.
// CUDA_ERROR_INVALID_CONTEXT when the default streams are meant and there is none.
CUresult enter_stream(const char* call, CUstream stream, Context** context);
#define SIM_ENTER_STREAM(variable, stream)                                                         \
  ::tube::sim::Context* variable = nullptr;                                                        \
  do {                                                                                             \
    if (CUresult entered = ::tube::sim::enter_stream(__func__, stream, &variable)) return entered; \
  } while (0)

Context* current_context();

// Handle checks; null when the handle is not a live object of that kind. Call with the lock held.
template <typename T>
T* live(State& s, const void* handle, Kind kind) {
  auto it = s.live.find(handle);
  if (it == s.live.end() || it->second != kind) return nullptr;
  return static_cast<T*>(const_cast<void*>(handle));
}

// Forgets and deletes it; `unknown` when nothing of that kind has the handle.
template <class T>
CUresult destroy_live(const void* handle, Kind kind, CUresult unknown) {
  State& s = state();
  Lock lock(s.mutex);
  T* object = live<T>(s, handle, kind);
  if (object == nullptr) return unknown;
  s.live.erase(object);
  delete object;
  return CUDA_SUCCESS;
}

// The device an ordinal names, or null.
Device* device_at(CUdevice ordinal);

// What the context's accesses look like to the address map.
Accessor accessor_of(const Context& context, bool dma);

// A context that is nobody's yet. With the lock held.
Context* make_context(State& s, Device* device, bool primary);
// The device's primary context, which nobody needs to have retained. With the lock held.
Context* primary_of(State& s, Device* device);
// What a stream, an event or an array is told that is no more: it ended with its context (H200; the
// driver crashes on most that did not).
inline CUresult ended_error(const void* handle) {
  return handle == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}
// The context whose memory, printf buffer and peers this one has: a green one's primary, or itself
// (green.cc).
Context* base_context(Context* context);
// Where the context's kernels run.
SmRange sms_of(const Context& context);
// Whether `from` has been let reach memory of `owner`: on one device always.
bool reaches(const Context& from, const Context* owner);

// Forgets lanes of destroyed streams that have drained, once they could be more than half. With the
// lock.
void drop_drained_lanes(Context* context);

// Waits for all work of the context; returns its sticky error. Takes and drops the lock.
CUresult synchronize(Lock& lock, Context* context);  // nothing to do for null
// The same for calls that the driver makes with an idle context only (code and memory that come or
// go): no kernel is launched by anybody meanwhile, and green contexts are waited for with their
// primary. Takes and drops the lock.
CUresult quiesce(Lock& lock, Context* context);
// Before a launch: waits until no such call is waiting. Takes and drops the lock.
void wait_for_quiescing(Lock& lock, Context* context);
// Prints what kernels printed since the last time. Without the lock.
void flush_prints(Context* context);
// An empty legacy stream, a cleared error: a context as new. With the lock held.
void reset_context(State& s, Context* context);
// The cuMemAddressReserve range that holds the address. With the lock held.
bool reservation_of(uint64_t address, uint64_t* base, uint64_t* size);

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when a capture forbids this kind of call now; invalidates
// that capture.
CUresult check_capture_unsafe(State& s);
// The same for synchronising a whole context: no stream of it may be capturing, whatever the mode.
// With the lock held.
CUresult check_context_idle_of_captures(State& s, const Context* context);

// Sets up device list and faults once; used by cuInit.
CUresult initialize();
bool initialized();

}  // namespace tube::sim

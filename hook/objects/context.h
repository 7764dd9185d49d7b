// Contexts of the program: primary ones, one a device, and created ones.
#pragma once

#include "hook/objects/stream.h"
#include "hook/process/lock.h"

namespace tube::hook {

struct Event;

struct Context {
  Slot* slot = nullptr;
  uint32_t number = 0;  // on the wire
  uint32_t visible_device = 0;
  uint32_t device = 0;  // the proxy's ordinal
  bool primary = false;
  uint64_t unique = 0;  // cuCtxGetId
  uint32_t api_version = 0;
  std::atomic<uint32_t> flags{0};
  std::atomic<uint64_t> limits[info::kLimitCount] = {};  // cuCtxSetLimit: value + 1, 0: never set
  std::atomic<int32_t> cache_config{-1};  // cuCtxSetCacheConfig; -1: the device's own
  std::atomic<int32_t> retains{0};        // primary: cuDevicePrimaryCtxRetain
  std::atomic<bool> live{
      false};  // primary: retained since the last reset, which leaves the references alone
  std::atomic<bool> alive{false};  // created: until destroyed; primary: always
  std::atomic<uint64_t> epoch{
      0};  // grows when it is reset or destroyed: kernels' and allocations' life
  std::atomic<int32_t> attached{1};  // cuCtxAttach; created contexts end at 0
  Slot* green = nullptr;             // a green context: its CUgreenCtx (calls/green.cc)
  Stream legacy;
  Stream ended;  // no stream of the program: what its non-blocking ones that ended have left to do
  Lock life;     // rank 0: `retains` and `live` change, and its contents end, under it; never held
                 // while waiting for the GPU
  Lock streams_lock;             // rank 1: the list, and whether others wait for what is in it
  bool resetting = false;        // primary, `streams_lock`: its contents end just now
  Stream* streams = nullptr;     // all but the legacy one
  uint64_t blocking_posted = 0;  // producer: operations of the legacy and all blocking streams
  Stream* collector =
      nullptr;  // cuCtxRecordEvent (calls/context_event.cc): a stream that waits for all others
  uint64_t collector_id = 0;  // its id when made: another one now means that it is gone
  Event* joint = nullptr;     // what it waits with
  uint64_t joint_id = 0;
  CUevent pending_work = nullptr;        // for peer copies (calls/context_event.cc): of each stream
  CUevent peer_copied = nullptr;         // the end of the last one made with this context current
  std::atomic<CUevent> behind{nullptr};  // what streams wait for that are made from now on
  Context* made_before = nullptr;        // list of all objects, which are never freed

  CUcontext handle() const { return static_cast<CUcontext>(objects().handle_of(slot)); }
  const info::DeviceInfo& info() const { return connection().device_infos[device]; }
};

// nullptr when the handle names none; a destroyed one answers nullptr too.
Context* find_context(CUcontext handle);
// The same; a destroyed one's handle gives a context in which everything answers 709, as it may
// still be made current.
Context* find_context_or_gone(CUcontext handle);
// The object of a device's primary context, once.
CUresult make_primary(uint32_t visible_device);
// An object for a context beside `primary`, not findable and not alive yet; nullptr when out of
// memory.
Context* new_context(Context* primary, unsigned flags);
// A context on the device that no program has and that never ends: memory that outlives every
// context of the program, the primary one's reset included (of pools, and staging of instances),
// belongs to some context in the proxy. nullptr: out of memory.
Context* unending_context(uint32_t visible_device);

// The context whose memory and events this one's go with: a green one's primary, or itself.
inline Context* base_context(Context* context) {
  return context->green == nullptr ? context : process().primaries[context->visible_device];
}
inline const Context* base_context(const Context* context) {
  return base_context(const_cast<Context*>(context));
}
// Where what the calling thread makes goes, but for streams: it outlives a green context.
// nullptr: no context is current.
Context* making_context();
// Where records about what belongs to no context go, however the current one may have ended: the
// primary one of the current one's device, or nullptr.
Context* lasting_context();

// The latest of all that were ever made.
extern std::atomic<Context*> last_made_context;
// Calls visit(context) for those that live, with `streams_lock` held. One that another thread is
// ending just now counts as ended: `life` is held meanwhile, which may take long.
template <class Visit>
void for_each_context(Visit visit) {
  Context* context = last_made_context.load(std::memory_order_acquire);
  for (; context != nullptr; context = context->made_before) {
    Locked locked(context->streams_lock);
    if (context->alive.load(std::memory_order_acquire) && !context->resetting) visit(context);
  }
}

}  // namespace tube::hook

#include "hook/objects/context.h"

#include <new>
#include <utility>

#include "hook/objects/request.h"
#include "hook/process/lock.h"

namespace tube::hook {

constinit std::atomic<Context*> last_made_context{nullptr};

namespace {

std::atomic<Context*> g_unending[info::kMaxDevices] = {};
std::atomic<uint32_t> g_next_number{wire::kFirstCreatedContext};

// The context's own streams, with nothing in them.
void begin_streams(Context* context) {
  for (Stream* stream : {&context->legacy, &context->ended}) {
    stream->context = context;
    stream->unique = next_unique();
    // Of the context that had this object before.
    connection().words.release(std::exchange(stream->word, 0));
    stream->posted = stream->signalled = stream->own_signalled = 0;
    stream->uploads_until = stream->value = 0;
  }
  context->legacy.id = wire::kLegacyStream;
  context->ended.id = wire::kEndedStreams;
  context->ended.flags = CU_STREAM_NON_BLOCKING;
  context->blocking_posted = 0;
}

Context* make_object() {
  auto* context = new (std::nothrow) Context;
  if (context == nullptr) return nullptr;
  context->made_before = last_made_context.load(std::memory_order_relaxed);
  while (!last_made_context.compare_exchange_weak(context->made_before, context,
                                                  std::memory_order_acq_rel)) {
  }
  return context;
}

// A context and a slot for it, which the caller connects; nullptr: out of memory or slots.
Context* make_context(Slot** slot) {
  *slot = objects().allocate(Kind::kContext);
  return *slot == nullptr ? nullptr : make_object();
}

}  // namespace

Context* find_context(CUcontext handle) {
  Slot* slot = objects().find(Kind::kContext, handle);
  return slot == nullptr ? nullptr : static_cast<Context*>(slot->object);
}

Context* find_context_or_gone(CUcontext handle) {
  if (Context* context = find_context(handle);
      context != nullptr || !objects().gone(Kind::kContext, handle))
    return context;
  static Lock lock;
  static Context* gone = nullptr;
  Locked locked(lock);
  if (gone == nullptr) {
    Slot* slot = nullptr;
    Context* context = make_context(&slot);
    if (context == nullptr) return nullptr;
    context->slot = slot;  // for its handle; what an earlier context left there stays, since nobody
                           // finds this one by it
    begin_streams(context);
    gone = context;
  }
  return gone;
}

CUresult make_primary(uint32_t visible_device) {
  Process& p = process();
  if (p.primaries[visible_device] != nullptr) return CUDA_SUCCESS;
  Slot* slot = nullptr;
  Context* context = make_context(&slot);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  slot->object = context;
  context->slot = slot;
  context->visible_device = visible_device;
  context->device = p.devices[visible_device];
  context->number = context->device + 1;
  context->primary = true;
  context->unique = next_unique();
  begin_streams(context);
  context->api_version = context->info().api_version;
  context->alive.store(true, std::memory_order_relaxed);
  objects().publish(slot);
  p.primaries[visible_device] = context;
  return CUDA_SUCCESS;
}

Context* new_context(Context* primary, unsigned flags) {
  Slot* slot = objects().allocate(Kind::kContext);
  if (slot == nullptr) return nullptr;
  auto* c = static_cast<Context*>(slot->object);
  if (c == nullptr) c = make_object();
  if (c == nullptr) return nullptr;
  slot->object = c;
  Locked locked(c->life);  // others look whether it is still the one that they knew
  c->slot = slot;
  c->visible_device = primary->visible_device;
  c->device = primary->device;
  c->number = g_next_number.fetch_add(1, std::memory_order_relaxed);
  c->primary = false;
  c->unique = next_unique();
  c->api_version = primary->api_version;
  c->attached.store(1, std::memory_order_relaxed);
  c->green = nullptr;
  c->collector = nullptr;
  c->pending_work = c->peer_copied = nullptr;
  c->behind.store(nullptr, std::memory_order_relaxed);
  c->flags.store(flags, std::memory_order_relaxed);
  c->cache_config.store(-1, std::memory_order_relaxed);
  for (auto& limit : c->limits) limit.store(0, std::memory_order_relaxed);
  c->epoch.fetch_add(1, std::memory_order_relaxed);
  begin_streams(c);
  return c;
}

Context* making_context() {
  Context* context = current_context();
  return context == nullptr ? nullptr : base_context(context);
}

Context* lasting_context() {
  const Context* context = current_context();
  return context == nullptr ? nullptr : process().primaries[context->visible_device];
}

Context* unending_context(uint32_t visible_device) {
  std::atomic<Context*>& known = g_unending[visible_device];
  if (Context* context = known.load(std::memory_order_acquire)) return context;
  Context* primary = process().primaries[visible_device];
  Context* made = new_context(primary, 0);
  if (made == nullptr) return nullptr;
  {
    Request<wire::tubeContextCreate> r;
    r.in_context(primary);
    r->number = made->number;
    r->device = made->device;
    if (r.post() != CUDA_SUCCESS) return nullptr;
  }
  Context* first = nullptr;  // of another thread, whose context it is then; ours stays empty
  return known.compare_exchange_strong(first, made, std::memory_order_acq_rel) ? made : first;
}

}  // namespace tube::hook

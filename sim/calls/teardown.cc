#include "sim/calls/teardown.h"

#include "sim/calls/array.h"
#include "sim/calls/module.h"
#include "sim/calls/texture.h"
#include "sim/graphs/capture.h"
#include "sim/machine/heap.h"

namespace tube::sim {

// An event ends with its context.
static void forget_events(State& s, const Context* context) {
  for (auto it = s.live.begin(); it != s.live.end();) {
    auto* event =
        it->second == Kind::kEvent ? static_cast<Event*>(const_cast<void*>(it->first)) : nullptr;
    const bool gone = event != nullptr && event->context == context;
    it = gone ? s.live.erase(it) : std::next(it);
    if (gone) delete event;
  }
}

void tear_down(Lock& lock, Context* context) {
  State& s = state();
  if (context->primary && context->error.load() != CUDA_SUCCESS)
    context->device->broken = context->error.load();
  context->cancel->store(true);
  for (Stream* stream : context->streams) forget_capture(s, stream);
  synchronize(lock, context);
  while (!context->modules.empty()) destroy_module(s, context->modules.back());
  for (Stream* stream : context->streams) {
    s.live.erase(stream);
    delete stream;
  }
  for (auto& [id, stream] : context->per_thread) delete stream;
  forget_events(s, context);
  context->streams.clear();
  context->per_thread.clear();
  context->lanes.clear();
  forget_arrays(s, context);
  forget_textures(context);
  auto gone = s.map.remove_if([context](const Range& r) { return r.context == context; });
  for (Range& r : gone) release_range(s, r);
  delete context->legacy_stream;
  if (context->primary) {
    for (auto& [object, kind] : s.live) {
      if (kind != Kind::kContext) continue;
      static_cast<Context*>(const_cast<void*>(object))
          ->peers.fetch_and(~(1ull << context->device->ordinal));
    }
  }
  reset_context(s, context);
}

}  // namespace tube::sim

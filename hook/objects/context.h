// Created contexts, for the calls that make other kinds of them.
#pragma once

#include "hook/objects/state.h"

namespace tube::hook {

// An object for a context beside `primary`, not findable and not alive yet; nullptr when out of
// memory.
Context* new_context(Context* primary, unsigned flags);
// Waits for its work, then everything made in it and the context itself are gone, here and in the
// proxy.
CUresult end_context(CUcontext handle);

// The context whose memory and events this one's go with: a green one's primary, or itself.
inline const Context* base_context(const Context* context) {
  return context->green == nullptr ? context : process().primaries[context->visible_device];
}

// Of all streams of a context (call_context_event.cc).
CUresult record_context_event(Context* context, CUevent hEvent);
CUresult wait_context_event(Context* context, CUevent hEvent);

}  // namespace tube::hook

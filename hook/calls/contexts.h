// Ends and events of whole contexts, for the chapters that make other kinds of contexts.
#pragma once

#include "hook/calls/contexts.h"
#include "hook/objects/context.h"

namespace tube::hook {

// Waits for its work, then everything made in it and the context itself are gone, here and in the
// proxy.
CUresult end_context(CUcontext handle);

// Events of all streams of a context (context_event.cc).
CUresult record_context_event(Context* context, CUevent hEvent);
CUresult wait_context_event(Context* context, CUevent hEvent);

}  // namespace tube::hook

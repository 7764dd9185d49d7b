// Ends and events of whole contexts, for the chapters that make other kinds of contexts.
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "hook/objects/context.h"
#include "hook/objects/thread.h"

namespace tube::hook {

// Waits for its work, then everything made in it and the context itself are gone, here and in the
// proxy.
CUresult end_context(CUcontext handle);

// Events of all streams of a context (context_event.cc).
CUresult record_context_event(Context* context, CUevent hEvent);
CUresult wait_context_event(Context* context, CUevent hEvent);

// cuMemcpyPeer and cuMemcpy3DPeer are in order with all work of the contexts, pending and to come,
// and do not wait themselves (H200, 13.0): the copy on `stream` comes behind the one, and the other
// behind it. Nothing waits for the GPU.
CUresult follow_work_of(Context* context, Stream* stream);
CUresult lead_work_of(std::span<Context* const> contexts, Stream* stream);

// Handles that name no context are left to the caller.
template <class Copy>
CUresult in_peer_order(CUcontext dst, CUcontext src, Copy copy) {
  std::array<Context*, 3> contexts{current_context()};
  size_t count = 1;
  for (CUcontext handle : {dst, src}) {
    Context* context = handle == nullptr ? nullptr : find_context(handle);
    const auto end = contexts.begin() + static_cast<std::ptrdiff_t>(count);
    if (context != nullptr && std::find(contexts.begin(), end, context) == end)
      contexts[count++] = context;
  }
  if (count == 1) return copy();
  CUresult error = CUDA_SUCCESS;
  Stream* stream = find_stream(nullptr, &error);
  if (stream == nullptr) return error;
  const std::span<Context* const> others(contexts.data(), count);
  for (Context* context : others) {
    if (const CUresult r = follow_work_of(context, stream); r != CUDA_SUCCESS) return r;
  }
  const CUresult copied = copy();
  const CUresult led = lead_work_of(others, stream);
  return copied != CUDA_SUCCESS ? copied : led;
}

}  // namespace tube::hook

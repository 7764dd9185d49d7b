// Calls of the API from before CUDA 3.2, whose sizes and device addresses have 32 bits. They work
// in contexts of cuCtxCreate's first form only (H200, 13.0), whose memory lies where such addresses
// reach.
#pragma once

#include "sim/machine/state.h"

namespace tube::sim {

// Runs a later form of the call. In every other context: CUDA_ERROR_INVALID_CONTEXT.
template <class Wide>
CUresult in_old_context(Wide wide) {
  const Context* context = current_context();
  if (context == nullptr || context->api_version >= kWideApi) return CUDA_ERROR_INVALID_CONTEXT;
  thread().in_old_call = true;
  const CUresult r = wide();
  thread().in_old_call = false;
  return r;
}

// An address or a size that the later form answered. CUDA_ERROR_INVALID_VALUE where the answer has
// more than 32 bits.
template <class From>
CUresult narrow(From from, unsigned* to) {
  if (to == nullptr) return CUDA_SUCCESS;
  if (from > From{0xffffffffu}) return CUDA_ERROR_INVALID_VALUE;
  *to = static_cast<unsigned>(from);
  return CUDA_SUCCESS;
}

}  // namespace tube::sim

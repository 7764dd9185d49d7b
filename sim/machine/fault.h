// Fault injection: TUBE_SIM_FAULT, a list of rules parsed at cuInit. Syntax and examples:
// sim/README.md.
#pragma once

#include <string>

#include "base/cuda_api.h"

namespace tube::sim {

class Fabric;

// Parses the rules; a malformed rule is skipped and named in *error (one line).
void load_faults(const char* text, Fabric* fabric, std::string* error);

// Counts the call. `error`: what the call must return instead of running (0: nothing). `fault`:
// sticky error that the context gets once the call has been accepted (0: none). Lock-free when no
// rule exists.
struct Injected {
  CUresult error = CUDA_SUCCESS;
  CUresult fault = CUDA_SUCCESS;
};
Injected count_call(const char* call);

}  // namespace tube::sim

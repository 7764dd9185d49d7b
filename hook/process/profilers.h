// Programs under a profiler (CUPTI, and what is built on it: torch.profiler, Nsight).
//
// A profiler records what a context does, and this process has none: the GPU's work is the proxy's.
// CUPTI's first private table is refused, it answers its caller with an error, and profilers go on
// with what they see of the CPU. An injection library, which the driver loads in cuInit, is not
// loaded: it would watch the driver beside the hook, which does nothing, and call the hook from
// inside that driver's cuInit. A process says once that nothing is recorded.
#pragma once

#include <cstdint>

namespace tube::hook {

// The environment variable whose library the driver loads in cuInit.
inline constexpr char kInjection[] = "CUDA_INJECTION64_PATH";

// Whether only CUPTI asks for the export table whose id begins so. Any thread.
bool is_profilers_table(uint32_t short_name);
// Says that nothing of the GPU is recorded. Any thread.
void say_not_recorded();
// The same when an injection library was to be loaded; called when CUDA starts.
void say_not_injected();

}  // namespace tube::hook

#include "hook/process/profilers.h"

#include <cstdlib>

#include "base/log.h"

namespace tube::hook {
namespace {

Once g_said;

}  // namespace

bool is_profilers_table(uint32_t short_name) {
  // What CUPTI asks for first, in 11.8, 12.1, 12.4, 12.8 and 13.4, and in 13.0. cudart, cuBLAS,
  // cuDNN and NCCL do not hold these ids.
  return short_name == 0x7CB63F9B || short_name == 0x2C8E0AD8;
}

void say_not_recorded() {
  if (g_said.first())
    log_warn(
        "this program is under a profiler (CUPTI), which records nothing of the GPU here: kernels "
        "and copies run in the proxy; events (cuEventRecord) give their times");
}

void say_not_injected() {
  const char* library = std::getenv(kInjection);
  if (library == nullptr || *library == '\0' || !g_said.first()) return;
  log_warn(
      "%s (%s) is not loaded: a profiler records nothing of the GPU here, kernels and copies run "
      "in "
      "the proxy",
      kInjection, library);
}

}  // namespace tube::hook

#include "proxy/code/compile_ahead.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "policies/compile_ahead.h"
#include "protocol/driver_table.gen.h"
#include "proxy/code/image_scan.h"
#include "proxy/gpu/context_gate.h"

namespace tube::proxy {

namespace {
constexpr uint32_t kLeastErrorBytes = 1024;  // of a log that shows whether there was an error
}  // namespace

// False: there is an error. The compiler's own is not told by a library's load but by its first
// use, and by the log.
bool CompileAhead::load(const Image& image, const Asked& asked, JitOptions* jit,
                        uint64_t* took_ns) {
  if (jit->build(asked.untrusted_options, asked.untrusted_values, asked.untrusted_info_bytes,
                 std::max(asked.untrusted_error_bytes, kLeastErrorBytes)) != CUDA_SUCCESS)
    return false;
  const Driver& driver = gate_.unwrapped();
  CUlibrary library = nullptr;
  const uint64_t begin = now_ns();
  const CUresult error = driver.cuLibraryLoadData(&library, image.data(), jit->options(),
                                                  jit->values(), jit->count(), nullptr, nullptr, 0);
  *took_ns = now_ns() - begin;
  return error == CUDA_SUCCESS && driver.cuLibraryUnload(library) == CUDA_SUCCESS &&
         !jit->error_told();
}

// What a second load of the image says of the driver's cache. Of two threads that ask at once both
// do, and learn the same.
void CompileAhead::prove(const Image& image, const Asked& asked, uint64_t first_ns) {
  uint64_t again_ns = 0;
  JitOptions again;
  if (!policies::tells_of_cache(first_ns) || !load(image, asked, &again, &again_ns)) return;
  const bool serves = policies::cache_serves(first_ns, again_ns);
  if (cache_.exchange(serves ? Cache::kServes : Cache::kDoesNot) == Cache::kUnknown && !serves)
    log_warn(
        "the driver keeps no code that it compiled (CUDA_CACHE_DISABLE, or no room in "
        "CUDA_CACHE_PATH): all functions' launches stand while a program's PTX is compiled");
}

bool CompileAhead::compile(const Image& image, int capability, const Asked& asked,
                           JitOptions* answers) {
  if (cache_.load(std::memory_order_relaxed) == Cache::kDoesNot ||
      !is_compiled({image.data(), image.size()}, capability))
    return false;
  uint64_t took_ns = 0;
  if (!load(image, asked, answers, &took_ns)) return false;
  if (cache_.load(std::memory_order_relaxed) == Cache::kUnknown) prove(image, asked, took_ns);
  return true;
}

}  // namespace tube::proxy

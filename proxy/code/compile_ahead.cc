#include "proxy/code/compile_ahead.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

// CUDA_SUCCESS: not an error of the text by itself. What goes wrong later, as texts and limits of
// the GPU come together, a load of a module says in other words, or not at all.
CUresult CompileAhead::refusal(const Image& image, const Asked& asked, JitOptions* answers) {
  JitOptions jit;
  if (jit.build(asked.untrusted_options, asked.untrusted_values, asked.untrusted_info_bytes,
                asked.untrusted_error_bytes) != CUDA_SUCCESS)
    return CUDA_SUCCESS;
  const Driver& driver = gate_.unwrapped();
  CUlinkState link = nullptr;
  if (driver.cuLinkCreate_v2(jit.count(), jit.options(), jit.values(), &link) != CUDA_SUCCESS)
    return CUDA_SUCCESS;
  const bool fatbin = is_fatbin({image.data(), image.size()});
  const size_t bytes = fatbin ? image.size()
                              : strnlen(reinterpret_cast<const char*>(image.data()), image.size()) +
                                    1;  // the text's NUL belongs to it
  const CUresult error =
      driver.cuLinkAddData_v2(link, fatbin ? CU_JIT_INPUT_FATBINARY : CU_JIT_INPUT_PTX,
                              const_cast<std::byte*>(image.data()), bytes, "", 0, nullptr, nullptr);
  driver.cuLinkDestroy(link);
  // With verbose logs it says more of some texts.
  if ((error != CUDA_ERROR_INVALID_PTX && error != CUDA_ERROR_UNSUPPORTED_PTX_VERSION) ||
      !jit.says_as(*answers))
    return CUDA_SUCCESS;
  *answers = std::move(jit);
  return error;
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

CUresult CompileAhead::compile(const Image& image, int capability, const Asked& asked,
                               JitOptions* answers, bool* answered) {
  *answered = false;
  if (cache_.load(std::memory_order_relaxed) == Cache::kDoesNot ||
      !is_compiled({image.data(), image.size()}, capability))
    return CUDA_SUCCESS;
  uint64_t took_ns = 0;
  *answered = load(image, asked, answers, &took_ns);
  if (!*answered) {
    if (!asked.as_module || !answers->error_told()) return CUDA_SUCCESS;
    const CUresult error = refusal(image, asked, answers);
    *answered = error != CUDA_SUCCESS;
    return error;
  }
  if (cache_.load(std::memory_order_relaxed) == Cache::kUnknown) prove(image, asked, took_ns);
  return CUDA_SUCCESS;
}

}  // namespace tube::proxy

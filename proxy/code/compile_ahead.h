// PTX is compiled before it is loaded, where nobody stands behind it.
//
// The driver compiles PTX while it loads it. A load as a module holds the context for so long, and
// every load stands in the context gate: launches and copies of all functions, or their waits and
// frees, would stand behind 7 ms with the smallest text and 120 ms with ten thousand instructions
// (on an H200). So the image is loaded as a library before, past the gate, and thrown away: that
// neither waits for the context nor holds it (bench/holds/compiling, and `library:text` among its
// scenarios; docs/decisions/0037). What stays is the machine code in the driver's cache on disk,
// where the load finds it: of the same image, by the same options and the driver's own compiler, so
// that nothing can come out differently.
//
// Text that the compiler refuses leaves nothing in the cache, and a library's load does not tell
// the error. The linker does: as it takes the text in, it answers what the load of a module would.
//
// A driver that keeps no cache (CUDA_CACHE_DISABLE, no place to write) would compile twice. The
// first long compile shows it: the same image again takes as long. Then there are no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/cuda_api.h"
#include "proxy/code/image_store.h"
#include "proxy/code/jit_options.h"

namespace tube::proxy {

class ContextGate;
struct Driver;

class CompileAhead {
 public:
  // Outlives this.
  explicit CompileAhead(const ContextGate& gate) : gate_(gate) {}
  CompileAhead(const CompileAhead&) = delete;
  CompileAhead& operator=(const CompileAhead&) = delete;

  // A client's (JitOptions::build).
  struct Asked {
    bool as_module;  // a library's load succeeds whatever the text
    std::span<const uint32_t> untrusted_options;
    std::span<const uint64_t> untrusted_values;
    uint32_t untrusted_info_bytes = 0, untrusted_error_bytes = 0;
  };
  // Compiles what a GPU of this capability (times ten) has to compile of the image, if anything. An
  // error is the load's: there is no need for it. `answered`: `answers` has what the compiler said,
  // which the load will not say again; else the load says what there is to say. For as long as the
  // compiler works. Any session's thread, the GPU's context current, without a lock and outside
  // the gate.
  CUresult compile(const Image& image, int capability, const Asked& asked, JitOptions* answers,
                   bool* answered);

 private:
  enum class Cache : uint8_t { kUnknown, kServes, kDoesNot };
  bool load(const Image& image, const Asked& asked, JitOptions* jit, uint64_t* took_ns);
  CUresult refusal(const Image& image, const Asked& asked, JitOptions* answers);
  void prove(const Image& image, const Asked& asked, uint64_t first_ns);

  const ContextGate& gate_;
  std::atomic<Cache> cache_{Cache::kUnknown};
};

}  // namespace tube::proxy

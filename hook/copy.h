// The copy paths behind every cuMemcpy form (call_copy.cc, copy_paths.cc, call_copy_2d.cc).
#pragma once

#include <cstdint>

#include "hook/state.h"

namespace tube::hook {

enum class Side : uint32_t { kDevice, kPinned, kPageable };
Side side_of(uint64_t address);
inline bool gpu_visible(Side s) { return s != Side::kPageable; }

// One-dimensional copy on `stream` between any two kinds of memory. `synchronous`: the semantics of the forms without
// Async (cuda-shim.md 4.2): host memory may be reused or read when it returns; device to device does not wait.
CUresult copy_bytes(uint64_t dst, uint64_t src, uint64_t bytes, Stream* stream, bool synchronous);

// Pageable to GPU-visible: returns when `src` may be reused.
CUresult upload(uint64_t dst, const std::byte* src, uint64_t bytes, Stream* stream);
// GPU-visible to pageable: returns when the bytes are there.
CUresult download(std::byte* dst, uint64_t src, uint64_t bytes, Stream* stream);

// A result of the transport or chunk waits as a CUresult.
CUresult chunk_wait_code(shared::WaitResult result);
void probe_for_faults(void* stream);

}  // namespace tube::hook

// What is in a module image: what its kernels call of the device runtime (printf, assert and malloc
// leave their names in it), whether it has managed variables, and which part of it a GPU runs.
//
// An image is PTX text, a cubin, or a fatbin whose entries may be packed; of a fatbin only the
// entries that this proxy's GPUs would take are looked at. Of machine code the answer is per kernel
// (image/kernel_calls.h), of PTX per image: a kernel that does not print then counts as printing
// when another one of its image does, which costs its launches some microseconds, never text.
// `stateless`: no variables that a program could tell from another program's (image/state.h), so
// that one load may serve many. Reads the whole image once (about a gigabyte per second, packed
// entries a third of that); callers keep the answer (proxy::Image).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "image/fatbin.h"
#include "image/kernel_calls.h"
#include "protocol/handle_id.h"

namespace tube::proxy {

// PTX that may hold a managed variable, or machine code that does. Beside wire::kKernelPrints and
// wire::kKernelAsserts.
inline constexpr uint32_t kImageManaged = 1u << 16;
// The kernel may come to the device runtime's malloc, or to another of its functions. Beside these
// too; the client is not told.
inline constexpr uint32_t kKernelAllocates = 4;
inline constexpr uint32_t kRuntimeFlags =
    wire::kKernelPrints | wire::kKernelAsserts | kKernelAllocates;

struct ImageFacts {
  uint32_t all = 0;  // wire::kKernel..., kImageManaged: anything in the image
  image::CallsByFunction
      by_function;          // what is known better; empty when `all` has no kKernel... flag
  bool stateless = false;   // on every GPU
  uint64_t code_bytes = 0;  // of the GPU's memory, at most (image/code_size.h); of PTX its text
  uint32_t writes(const std::string& kernel) const;  // wire::kKernel...
  // Of kRuntimeFlags, what the kernel may use, and what it is known to: of PTX, and of a kernel
  // that calls through pointers, nothing is known for sure.
  struct Runtime {
    uint32_t possible = 0, certain = 0;
  };
  Runtime runtime(const std::string& kernel) const;
};
// `capabilities`: of the GPUs, times ten. Of an image whose packed entries take more than
// `max_bytes` the worst is assumed. Any thread.
ImageFacts scan_image(std::span<const std::byte> untrusted_image, std::span<const int> capabilities,
                      uint64_t max_bytes = image::kMaxUnpackedBytes);

// Not one machine code or text by itself.
bool is_fatbin(std::span<const std::byte> untrusted_image);

// Whether a GPU of this capability compiles what it takes of the image: PTX, where there is no
// machine code for it. Unpacks nothing.
bool is_compiled(std::span<const std::byte> untrusted_image, int capability);

// The machine code, or the PTX, that a GPU of this capability takes of the image; empty when there
// is none.
enum class Form { kMachineCode, kPtx };
std::string select_code(std::span<const std::byte> untrusted_image, int capability, Form form);

}  // namespace tube::proxy

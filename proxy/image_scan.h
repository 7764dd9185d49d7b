// What the kernels of a module image may write to: the device runtime's printf and assert leave their names in it.
//
// An image is PTX text, a cubin, or a fatbin whose entries may be packed; of a fatbin only the entries that this proxy's
// GPUs would take are looked at. The answer is per image, so a kernel that does not print counts as printing when another
// one of its image does: that costs its launches some microseconds, never text. Reads the whole image once (about a
// gigabyte per second, packed entries a third of that); callers keep the answer (proxy::Image).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tube::proxy {

// wire::kKernelPrints | wire::kKernelAsserts. `capabilities`: of the GPUs, times ten. Any thread.
uint32_t scan_image(std::span<const std::byte> untrusted_image, std::span<const int> capabilities);

}  // namespace tube::proxy

// How much GPU memory machine code takes when it is loaded as a whole: its instructions, constants
// and variables. The driver adds what it rounds up, and leaves out kernels that nobody has looked
// up yet, so this is an estimate for telling functions' shares apart. The bytes are untrusted; what
// they claim is bounded. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tube::image {

inline constexpr uint64_t kMostCodeBytes = uint64_t{1} << 40;

// 0: it cannot be read.
uint64_t code_size(std::span<const std::byte> untrusted_elf);

}  // namespace tube::image

// Whether code from an image keeps anything in module variables. An image without state may be
// loaded once for several programs.
//
// A module's variables lie in the sections .nv.global, .nv.global.init and .nv.constant3 of machine
// code, and in lines that begin with .global or .const in PTX. Three kinds of variables hold no
// state although they stand there:
//
//   - what the compiler makes of string literals and __func__ ($str..., __unnamed_...): a program
//     cannot name them
//   - the tags of libcu++, Thrust, CUB and CuTe (std::in_place, placeholders::_1, cute::product,
//     ...): one byte each, with internal linkage, in each file that includes those headers
//   - tables of numbers that NVIDIA's headers and the compiler's library bring along (cuRAND's, and
//     those of lgamma, sin and cos), known by name, size and content, with internal linkage: the
//     code that comes with them only reads them. Of PTX they count as state.
//
// Textures, surfaces and managed variables are state. So is a function that the driver has to
// supply, but for a known few. What cannot be read counts as state. The bytes are untrusted; time
// is linear in them. Any thread.
#pragma once

#include <cstddef>
#include <span>

namespace tube::image {

// Machine code (ELF).
bool code_is_stateless(std::span<const std::byte> untrusted_elf);
// PTX text, with or without its NUL.
bool text_is_stateless(std::span<const std::byte> untrusted_text);

}  // namespace tube::image

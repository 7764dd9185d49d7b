// Which kernels of machine code may call a function of the device runtime, such as vprintf.
//
// The compiler leaves for every function the runtime's functions that its code calls
// (.nv.info.NAME), and the call graph between functions (.nv.callgraph). Both are followed; a
// function that calls through a pointer counts as calling whatever some function of the image
// calls. The bytes are untrusted: time and memory are linear in the image (but for sorting its
// names), whatever its tables say. Nothing here keeps state; any thread; a millisecond for ten
// thousand kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

namespace tube::image {

// By name. Sorted: names can be made that share a hash.
using CallsByFunction = std::map<std::string, uint32_t, std::less<>>;

// Beside the names' bits: it may call through a pointer. It then has the bits of all that anybody
// in the image calls.
inline constexpr uint32_t kCallsThroughPointer = 1u << 31;

// Bit i of the answer for a function: it may call names[i] (at most 31), or, where that is nullptr,
// any other function outside of the image. False when the image does not say: it is no machine
// code, is damaged (names or tables that overlap without end among it), or has one of the names but
// no function that calls it.
bool kernel_calls(std::span<const std::byte> untrusted_elf, std::span<const char* const> names,
                  CallsByFunction* calls);

// Whether the image has functions outside of itself, as vprintf and malloc are. True also when it
// does not say. Reads the table of its symbols alone.
bool calls_outside(std::span<const std::byte> untrusted_elf);

}  // namespace tube::image

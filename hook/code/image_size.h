// How long a module image is that comes as a bare pointer (docs/facts.md, "Images").
//
//   0x466243B1  fatbin wrapper: its data pointer leads to a fatbin
//   0xBA55ED50  fatbin: header and payload sizes
//   7F 'ELF'    cubin: the end of the last section, program header or table
//   otherwise   PTX text, NUL included
//
// The pointer is the program's own, as trustworthy as the program; still no size is computed past
// 2^40.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tube::hook {

struct Image {
  const std::byte* data = nullptr;  // behind the wrapper, if there was one
  uint64_t size_bytes = 0;          // 0: not an image
};

Image find_image(const void* pointer);

}  // namespace tube::hook

// What cuLinkComplete returns: an ELF file whose section .tube.sim.ptx holds the texts, so that
// anything that measures an image by its ELF headers (the hook, cuobjdump-like tools) gets the size
// right.
//
// Managed variables are in it as in machine code of a real GPU: marked symbols with their initial
// values, and in constant bank 4 a slot for each that a relocation fills at load. Where the
// relocation is gone, the slot says where the variable lives, and the variable gets no storage
// (image/managed_code.h does that to images).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/ptx/ptx.h"

namespace tube::sim {

// A variable that lives at an address of somebody else's choice.
struct PlacedVariable {
  std::string name;
  uint64_t address = 0;
};

std::string pack_linked(const std::vector<std::string>& texts,
                        const std::vector<ptx::Variable>& variables);
// True when the image is one of ours. The bytes may be anybody's. `placed` may be nullptr.
bool unpack_linked(const void* image, size_t size, std::vector<std::string_view>* texts,
                   std::vector<PlacedVariable>* placed = nullptr);

}  // namespace tube::sim

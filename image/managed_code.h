// Managed variables of machine code: which ones an image has, and making its code use them at
// addresses of our choice.
//
// nvcc marks a __managed__ variable in its ELF symbol. Code reaches it through relocations, which
// the driver fills when it loads the image: 64 bits in constant bank 4 or in a variable's initial
// value, or two halves in a pair of instructions. place_managed() fills these itself and takes them
// out of the tables. The driver then has nothing to do with the variable's address, and the storage
// that it still gives the variable stays unused (docs/decisions/0007).
//
// The bytes may come from anybody: every offset is checked before it is used, and time and memory
// are linear in the image, whatever its tables say. Nothing here keeps state; any thread. Reads the
// symbol table, and with place_managed() the relocations: microseconds for a program's image, some
// milliseconds for a library's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tube::image {

struct ManagedVariable {
  std::string name;
  uint64_t bytes = 0;
  uint32_t symbol = 0;   // index in the symbol table
  uint64_t initial = 0;  // offset of its initial value in the image; 0: zeros
};

// In the order of the symbol table; empty when there are none or the bytes are no machine code, or
// damaged (more symbols or bytes of names than elf_file.h allows).
std::vector<ManagedVariable> managed_variables(std::span<const std::byte> untrusted_elf);

// Code that can be loaded as it is; a relocatable object cannot.
bool is_executable(std::span<const std::byte> untrusted_elf);

// `addresses`: one per variable. The initial values are then to be read from the image, which may
// hold addresses of the others now. False: *why in one line, and the image may be changed in part;
// load the original then.
bool place_managed(std::span<std::byte> untrusted_elf,
                   const std::vector<ManagedVariable>& variables,
                   std::span<const uint64_t> addresses, std::string* why);

}  // namespace tube::image

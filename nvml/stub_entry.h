// Entries of names that are passed on as they are (gen_stubs.py writes them): the first call of
// each finds the real function, all further ones are a jump.
#pragma once

#include <cstdint>

namespace tube::nvml {

// The names of the entries that are passed on, in the order of their slots.
extern const char* const kForwarded[];

}  // namespace tube::nvml

extern "C" {
// One a name: where the entry jumps to.
extern void* tube_nvml_slots[];
// Finds the function of an entry and fills its slot. Called from assembly, any thread.
void* tube_nvml_find(uint64_t index);
}

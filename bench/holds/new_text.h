// PTX that no cache has yet.
#pragma once

#include <string>

// A kernel `plain` of (pointer, int) with so many pairs of instructions, another text each time and
// in each process. `with_variable`: it writes to one of the module's, too. One thread.
std::string new_text(int pairs, bool with_variable = false);

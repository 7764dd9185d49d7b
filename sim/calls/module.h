// From an image to functions with addresses: finding PTX, compiling, and placing variables in a
// context.
#pragma once

#include <memory>
#include <string>
#include "sim/machine/image.h"

#include "sim/machine/state.h"

namespace tube::sim {

// Gives the code's variables memory in the context and makes its functions. With the lock held.
CUresult instantiate(State& s, Context* context, Code code, Module** module);
void destroy_module(State& s, Module* module);

// Of a kernel of a library in a context (nullptr: none): the driver loads it, and waits until the
// context is idle. With the lock held, but not all along.
void first_use(Lock& lock, Context* context, Function* kernel);
// The module of a library in a context, made on first use; waits then until the context is idle, as
// the driver does. With the lock held.
CUresult library_module(Lock& lock, Context* context, Library* library, Module** module);

}  // namespace tube::sim

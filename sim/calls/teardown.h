// The end of a context and of all that belongs to it.
#pragma once

#include "sim/machine/state.h"

namespace tube::sim {

// Frees everything that belongs to the context (streams, modules, memory). With the lock held.
void tear_down(Lock& lock, Context* context);

}  // namespace tube::sim

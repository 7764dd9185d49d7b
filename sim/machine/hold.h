// Calls that hold the GPU: they return at once, but whatever is submitted to the context
// afterwards, in whatever stream, stands until all that was submitted before is done. Beside a
// stream that waits for a value, that is until the value comes (docs/decisions/0009, measured on an
// H200).
//
// A context remembers what the driver has prepared on the GPU for its kernels, and a launch that
// finds something missing holds or blocks:
// - Unsettled, as a context is with another stack limit, and once a module needs more than any
//   before it: the next launch holds. A new one is not: each case of conformance that holds a
//   stream and then launches for the first time went on.
// - No kernel that prints has been launched: the first one holds.
// - Its kernel needs more local memory than any before: it blocks, like everything in quiesce().
// Instantiating a graph with such kernels does the same, launching it nothing. A green context has
// all of this in common with its primary one.
//
// All functions: with State::mutex held.
#pragma once

#include "sim/machine/state.h"

namespace tube::sim {

// From now on the context's work stands behind what it has been given so far.
void hold(Lock& lock, Context* context);
// What work submitted to the context now has to wait for; null: nothing.
FencePtr barrier_of(Context* context);

// The context got the code, which may need more than all before.
void note_loaded(Context* context, const ptx::Module& code);
// Makes the next launch hold.
void unsettle(Context* context);

// A kernel is to run: holds when it is the first since the context was unsettled, or the first that
// prints.
void hold_for_kernel(Lock& lock, Context* context, bool prints);
// The same for its local memory, per thread: blocks when no kernel before needed as much. Takes and
// drops the lock.
void provide_local(Lock& lock, Context* context, uint32_t bytes);
// Both, for a launch; what is about to be unloaded may be gone then. Takes and drops the lock.
void prepare_launch(Lock& lock, Context* context, const ptx::Kernel& kernel);

}  // namespace tube::sim

// What handlers do with a client's libraries, modules and kernels (session/module_state.h).
//
// All of these are for the session's thread, in the current context of the record, and answer with
// the driver's code. All but describe() may ask the driver to load, which waits until the whole
// context has been idle (module_cache.h): no lock may be held.
#pragma once

#include <cstdint>
#include <span>

#include "base/cuda_api.h"
#include "proxy/session/module_state.h"

namespace tube::proxy {

class JitOptions;
class Session;
enum class LaunchGate : uint32_t;  // context_gate.h

// The driver's load of an image, as a library or as a module. `raw` becomes its handle.
CUresult load_library(Session& session, const Image& image, JitOptions& jit, unsigned int jit_count,
                      std::span<const uint32_t> untrusted_options,
                      std::span<const uint64_t> untrusted_values, uint64_t* raw);
CUresult load_module(Session& session, const Image& image, JitOptions& jit, unsigned int jit_count,
                     uint64_t* raw);

// The state of a kernel as its module describes it, where it was looked up.
void describe(KernelState& kernel, LoadedModule& module, LoadedKernel& loaded, uint32_t gpu);
// What a module's kernel may have of dynamic shared memory on a GPU before anybody sets it;
// KernelState::kNoLimit: the driver names none, or nobody has asked there.
int32_t first_limit(LoadedModule& module, const LoadedKernel& kernel, uint32_t gpu);
// The client's library or module `id` gets a module of its own instead of the shared one, and its
// kernels their functions there: pointers to kernels and their states stay, what they say changes.
// Loads the image and every kernel that the client knows of it, and drops the graphs of held runs.
// After an error everything is as before.
CUresult take_own_module(Session& session, wire::Kind kind, uint64_t id);
// The same for the library or module of a kernel.
CUresult take_own_module_of(Session& session, uint64_t kernel_id);
// A kernel's module, own or shared; nullptr: the client has unloaded it.
LoadedModule* module_of(Session& session, const Object& kernel);
// Before the driver uses a library's kernel in the context of another GPU than it was looked up
// for: loads it there, once.
CUresult load_here(Session& session, const Object& object);
// Ask before that. True: it would go into the driver while a stream of the client waits for the
// client; the record comes again, and its handler returns CUDA_SUCCESS (Session::waits_for_own).
// `changes`: the record changes the kernel, although it is not marked so.
bool load_stays(Session& session, const Object& object, bool changes = false);
// How a launch of the kernel passes the gate of the record's GPU (context_gate.h), or putting it
// into an instance of a graph. After one that was not kNone: note_launched().
LaunchGate launch_gate(Session& session, const Object& object);
void note_launched(Session& session, const Object& object);
// The kernel comes into a graph of the client, as a node or captured: updating an instance with it
// brings it to the GPU as a first launch would, through the gate as update_gate() says. After that,
// or when an instance was made (always context-wide): note_update().
void graph_gains_kernel(Session& session, const Object& object);
LaunchGate update_gate(Session& session);
void note_update(Session& session);
// Before the driver sees a launch of a shared kernel: another client may have raised the limit that
// this one would have met. If so, and `shared_bytes` lie beyond the client's own limit, the above.
CUresult keep_own_limit(Session& session, uint64_t kernel_id, const KernelState& kernel,
                        uint32_t shared_bytes);

}  // namespace tube::proxy

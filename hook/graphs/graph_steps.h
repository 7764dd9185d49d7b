// Steps of graphs in the client: host functions, and copies from and to pageable memory
// (protocol/graph_params.h).
//
// A tag names an entry of a table that only grows: equal steps share one entry, so a program that
// captures the same work over and over costs nothing more. An instance of a graph with steps has a
// word for each of them, and pinned staging for its copies; while launches of it are outstanding,
// two helper threads (calls/callback.cc) look at these words, do what the tag in a word says and
// store "done": one the host functions, the other the copies, which must not stand behind a
// function that waits for them.
//
// Any thread, unless it says otherwise.
#pragma once

#include <cstdint>

#include "base/cuda_api.h"
#include "hook/objects/thread.h"
#include "protocol/graph_params.h"

namespace tube::hook {

// The tag of a host function; 0 when out of memory.
uint64_t tag_of(CUhostFn function, void* data);
// The tag of a copy with a pageable side, and `step` filled but for `staging`.
// CUDA_ERROR_INVALID_VALUE as for the node calls.
CUresult tag_of(const CUDA_MEMCPY3D& copy, wire::GraphStepParams* step);
// Whether a side of the copy is memory that the GPU does not see.
bool needs_step(const CUDA_MEMCPY3D& copy);
// What a tag stands for, as the program gave it. False: a copy (the first), or a function (the
// second).
bool function_of(uint64_t tag, CUDA_HOST_NODE_PARAMS* params);
bool copy_of(uint64_t tag, CUDA_MEMCPY3D* params);

// Captures the step into `stream`'s graph. Waits for the proxy.
CUresult capture_function(Stream* stream, CUhostFn function, void* data);
CUresult capture_copy(Stream* stream, const CUDA_MEMCPY3D& copy);

// The program's graphs contain memory nodes from now on: launching an instance with some may be
// refused at the call.
void memory_nodes_exist();

// ---- instances ----
struct StepSet;  // words and staging of one instance

// What an instance is beyond its handle. Lives in its slot, reused with it.
struct Exec {
  StepSet* steps = nullptr;  // nullptr: it has none
  bool memory_nodes = false;
};

// Asks for the graph's steps and takes words and staging for them; `*set` stays nullptr when there
// are none. `before`: what the instance has, if there is one. Costs nothing when this process never
// made a step or a memory node.
struct Places {
  StepSet* set = nullptr;
  const wire::GraphStepPlace* places = nullptr;
  uint32_t bytes = 0;
  bool memory_nodes = false;
};
CUresult take_places(uint64_t graph, const StepSet* before, Places* places);
// The set's instance is gone (or was never made): everything is given back when its last launch has
// ended, at the program's next such call.
void retire(StepSet* set);
// Posts a launch of the instance, watched from before the GPU can reach a step. `post` posts;
// `stream` does not capture.
CUresult launch_watched(StepSet* set, Stream* stream, CUresult (*post)(void*), void* argument);
// More staging, which goes with the set, for the step whose word is `word`; and another word for it
// while launches are outstanding, whose copies have the old place. The step has the new place once
// that is taken.
CUresult larger_place(StepSet* set, uint32_t word, uint64_t bytes, wire::GraphStepPlace* place);
void take_place(StepSet* set, uint32_t word, const wire::GraphStepPlace& place);
void give_up_place(uint32_t word, const wire::GraphStepPlace& place);

// ---- for the helper threads ----

enum class StepKind { kFunction, kCopy };
// Does one step of the kind that is due, or lets go of a set whose launches have ended. False:
// nothing to do; `*waiting` when launches with such steps are outstanding. `broken`: the work has
// failed (work_failure()), so nothing will come.
bool run_due_step(StepKind kind, bool broken, bool* waiting);
// Start the thread for host functions, and the one for copies, when there is none; false: out of
// memory. wake_callbacks() makes both look. (calls/callback.cc)
bool start_callbacks();
bool start_copies();
void wake_callbacks();

// User objects whose destructors the thread runs (calls/user_object.cc). `*waiting` when there are
// some.
bool run_due_destructor(bool* waiting);

}  // namespace tube::hook

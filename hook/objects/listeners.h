// Higher rooms that must hear when something ends: caches of memory, proofs of updates.
#pragma once

#include <span>

namespace tube::hook {

struct Context;
struct Stream;

// Each may be nullptr. Called in the order of the list, by the thread that does it.
struct Listener {
  void (*stream_ends)(const Stream* stream) = nullptr;     // before its record goes to the proxy
  void (*context_ends)(const Context* context) = nullptr;  // before its streams are forgotten
  void (*synchronised)() = nullptr;        // a call that waits for the GPU has waited
  void (*posted_call_failed)() = nullptr;  // found by a synchronising call
};

// The list stands in hook/listeners.cc, which alone may name all rooms: no registration at run
// time, since the hook has no static constructors.
std::span<const Listener> listeners();

}  // namespace tube::hook

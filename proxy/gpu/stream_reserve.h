// A reserve of streams in each GPU's context, so that making one seldom waits for everybody.
//
// Each stream and each instance of a graph takes a slot in the context. The driver makes slots for
// some tens of them at a time, waits for the whole context when it does, and keeps them
// (docs/decisions/0009-context-gate.md). So the proxy counts the slots that are taken and grows the
// reserve ahead of need, inside the gate (context_gate.h), by making streams and destroying them.
//
// Any thread. Takes the lock of the counts (a leaf) and calls no driver under it.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

class StreamReserve {
 public:
  // From here on the slots of this context, which is current, are counted. Makes the first reserve:
  // some ten milliseconds.
  void prepare(const Driver& driver, CUcontext context);

  // Counts what is about to be made in `context`. kTakenOfFew: grow() is wanted as soon as no
  // stream waits; kNone: not taken, the driver would have to make slots now. Contexts that were not
  // prepared have slots. Then made() with the handle, and gone() when it is destroyed, or cancel().
  enum class Slot { kTaken, kTakenOfFew, kNone };
  Slot take(CUcontext context);
  void cancel(CUcontext context);
  void made(CUcontext context, const void* handle);
  bool gone(const void* handle);
  // Waits for the whole context, which is current.
  void grow(const Driver& driver, CUcontext context);
  // The same for a context that is new and was not prepared, a green one: slots for some streams,
  // which nobody counts.
  static void grow_uncounted(const Driver& driver);

 private:
  struct Counted {
    CUcontext context = nullptr;
    uint32_t taken = 0;
    uint32_t slots = 0;
    std::mutex growing;  // only inside the gate
  };
  Counted* of(CUcontext context);

  std::mutex mutex_;             // of what follows
  std::deque<Counted> counted_;  // each stays where it is
  std::unordered_map<const void*, Counted*> holders_;
};

}  // namespace tube::proxy

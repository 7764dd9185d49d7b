// Keeps the GPUs' own contexts settled, so that ordinary calls of one program do not wait for
// another's streams.
//
// The driver puts some things off to the next launch, of whatever kernel: after a module that needs
// more than all before it (local memory, printf), after a new stack limit. That launch returns at
// once, but everything submitted to the context behind it, in whatever stream, stands until
// everything before it is done (measured, docs/decisions/0009-quiet-calls.md). Beside a stream that
// waits for its program it would join programs that know nothing of each other. So whoever loads or
// limits launches an empty kernel right behind it, in the turn that it has (quiet_calls.h): when
// the turn ends nothing is put off any more.
//
// The other thing is room. Each stream and each instance of a graph takes a place; the driver makes
// room for some tens of them at a time, waits for the whole context when it does, and keeps the
// room. So room is made ahead, in a turn, and places are counted.
//
// prepare() before other threads; the rest from any thread. Takes the lock of the counts (a leaf)
// and calls no driver under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

class SettledContexts {
 public:
  // For the context of a GPU, which is current: loads the empty kernel, launches it, and makes
  // room. Costs some ten milliseconds. After an error the context is not settled by anybody, and
  // works.
  CUresult prepare(const Driver& driver, CUdevice device, CUcontext context);
  // Behind a call that may have put something off in the context of `device`, which is the
  // caller's, in that call's turn. When hundreds of these launches have not run yet it does
  // nothing: the context is held anyway, by who looked kernels up. Returns at once, unless another
  // call waits for the context, where the caller's next launch would stand as well. On no other
  // GPU: what stands there may be waiting for the caller.
  void settle(const Driver& driver, CUdevice device);

  // Counts what is about to be made in `context`. kTakenOfFew: make_room() is wanted as soon as no
  // stream waits; kNone: not taken, the driver would have to make room now. Contexts that were not
  // prepared have places. Then placed() with what was made, and gone() when it is destroyed, or
  // cancel_place().
  enum class Place { kTaken, kTakenOfFew, kNone };
  Place take_place(CUcontext context);
  void cancel_place(CUcontext context);
  void placed(CUcontext context, const void* handle);
  bool gone(const void* handle);
  // Waits for the whole context, which is current.
  void make_room(const Driver& driver, CUcontext context);
  // The same for one that is new and was not prepared, a green one: for some streams, which nobody
  // counts.
  static void make_first_room(const Driver& driver);

 private:
  struct Prepared {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUfunction empty = nullptr;
    CUstream stream = nullptr;
    std::atomic<uint32_t> launched{0};  // since the stream was known to be idle
    uint32_t taken = 0;                 // places
    uint32_t room = 0;
    std::mutex growing;  // only in a turn
  };
  Prepared* of(CUcontext context);
  static void launch(const Driver& driver, Prepared& prepared);

  std::deque<Prepared> prepared_;  // does not change after the start
  std::mutex mutex_;               // of the counts
  std::unordered_map<const void*, Prepared*> places_;
};

}  // namespace tube::proxy

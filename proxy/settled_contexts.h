// Keeps the GPUs' own contexts settled, so that ordinary calls of one program do not wait for another's streams.
//
// The driver puts some things off to the next launch, of whatever kernel: after a module that needs more than all before it (local memory,
// printf), after a new stack limit. That launch returns at once, but everything submitted to the context behind it, in whatever stream,
// stands until everything before it is done (measured, docs/decisions/0009-quiet-calls.md). Beside a stream that waits for its program it
// would join programs that know nothing of each other. So whoever loads or limits launches an empty kernel right behind it, in the turn
// that it has (quiet_calls.h): when the turn ends nothing is put off any more.
//
// The other thing is room. Each stream and each instance of a graph takes a place; the driver makes room for some tens of them at a time, waits for
// the whole context when it does, and keeps the room. So room is made ahead, in a turn, and places are counted.
//
// prepare() before other threads; the rest from any thread. Takes the lock of the counts (a leaf) and calls no driver under it.
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
  // For the context of a GPU, which is current: loads the empty kernel, launches it, and makes room. Costs some ten milliseconds. After
  // an error the context is not settled by anybody, and works.
  CUresult prepare(const Driver& driver, CUdevice device, CUcontext context);
  // Behind a call that may have put something off in the context of `device`, in that call's turn. Returns at once, unless hundreds of these
  // launches have not run yet: then it waits for them, as the call itself may have.
  void settle(const Driver& driver, CUdevice device);

  // Counts what is about to be made in `context`: false when the driver would have to make room first, which make_room() does in a turn.
  // Always true for contexts that were not prepared. Then placed() with what was made, and gone() before it is destroyed, or cancel_place().
  bool take_place(CUcontext context);
  void cancel_place(CUcontext context);
  void placed(CUcontext context, const void* handle);
  void gone(const void* handle);
  // Waits for the whole context, which is current.
  void make_room(const Driver& driver, CUcontext context);

 private:
  struct Prepared {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUfunction empty = nullptr;
    CUstream stream = nullptr;
    std::atomic<uint32_t> launched{0};  // since the stream was known to be idle
    uint32_t taken = 0;                 // places
    uint32_t room = 0;
  };
  Prepared* of(CUcontext context);

  std::deque<Prepared> prepared_;  // does not change after the start
  std::mutex mutex_;               // of the counts
  std::mutex growing_;             // only in a turn
  std::unordered_map<const void*, Prepared*> places_;
};

}  // namespace tube::proxy

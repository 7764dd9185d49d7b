// Runs what the driver defers to a context's next launch, so that no client's launch has to.
//
// After a module that needs more than all before it (local memory, printf), and after another stack
// limit, the driver sets the context up at the next launch, of whatever kernel. That launch returns
// at once, but everything submitted to the context behind it, in whatever stream, stands until
// everything before it is done (measured, docs/decisions/0009-context-gate.md). Beside a stream
// that waits for its program that would join programs that know nothing of each other. So a load of
// code or a new limit is followed by an empty kernel, still inside the gate (context_gate.h): 5 us.
//
// prepare() before other threads; run() from any thread, with no lock needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

class DeferredSetup {
 public:
  // For the context of a GPU, which is current: loads the empty kernel and launches it. After an
  // error run() does nothing for this GPU, and all else works.
  CUresult prepare(const Driver& driver, CUdevice device, CUcontext context);
  // Behind a call that may have deferred something in the context of `device`, inside the gate.
  // Does nothing while hundreds of these launches have not run yet: the look-ups of kernels
  // hold the context anyway. Returns at once, unless another call waits for the context, where the
  // caller's next launch would stand as well. On no other GPU: what stands there may be waiting for
  // the caller.
  void run(const Driver& driver, CUdevice device);

 private:
  struct Prepared {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUfunction empty = nullptr;
    CUstream stream = nullptr;
    std::atomic<uint32_t> launched{0};  // since the stream was known to be idle
  };
  static void launch(const Driver& driver, Prepared& prepared);

  std::deque<Prepared> prepared_;  // does not change after the start
};

}  // namespace tube::proxy

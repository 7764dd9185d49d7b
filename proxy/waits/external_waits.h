// A client's waits for external semaphores in its streams that have not been answered yet, so that
// its death does not leave them waiting.
//
// Natively such a wait ends with the program's context. Here it would stay in the shared one: the
// client's memory would be taken for good, and whatever waits for the whole context
// (context_gate.h) would stand. So behind each wait lies an event, and at the client's end what
// still waits is signalled as its partner would have done it. For a timeline that is a value which
// nobody else had reached; other users of the timeline see it. At most kMost of them are known.
// Session thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;

class ExternalWaits {
 public:
  static constexpr size_t kMost = 1024;

  // Right behind the wait for `semaphores` (the client's ids) in `stream`, whose context is current
  // and has this number.
  void add(const Driver& driver, CUstream stream, uint32_t context,
           std::span<const uint64_t> semaphores,
           std::span<const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS> params);
  // Signals what is waited for, of each semaphore one value: the next one in a call after that wait
  // has passed. `signal` submits it, in a stream that waits for nothing. Does not wait itself.
  using Signal = std::function<void(uint32_t context, uint64_t semaphore, uint64_t value)>;
  void signal_next(const Driver& driver, const Signal& signal);
  // The context's events are about to end.
  void forget(const Driver& driver, uint32_t context);
  void forget_all(const Driver& driver);
  size_t count() const;

 private:
  struct Wait {
    uint64_t semaphore;
    uint64_t value;
    bool signalled;
  };
  struct Call {
    CUevent behind;
    uint32_t context;
    std::vector<Wait> waits;
  };
  void drop_passed(const Driver& driver);

  std::deque<Call> calls_;
};

}  // namespace tube::proxy

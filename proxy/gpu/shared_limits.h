// Limits of a GPU's context that all functions share: what each of them asked for, and what the
// context has.
//
// The stack, the printf buffer and the pending launches of the device runtime are as large as the
// largest wish, the heap as large as all wishes beyond the default together, since its users share
// it. Nothing is lowered while somebody needs it; the stack goes down again when the session that
// wanted more has gone, because it costs memory for every thread the GPU can hold. What the driver
// refuses leaves no wish behind; of a limit that it refuses because kernels use the heap or the
// buffer, the wish is what there is.
//
// The driver waits for the context when it changes the stack, so a change passes the
// gate (context_gate.h), then `changing_` (rank 14); it may last as long as anybody's work.
// `mutex_` (rank 15) guards the tables and is not held meanwhile: a wish that changes nothing never
// waits. Any thread; the GPU's context is current.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>

#include "base/cuda_api.h"

namespace tube::proxy {

class ContextGate;
struct Driver;

class SharedLimits {
 public:
  // `value` as the driver would round it. SUCCESS too when the context has enough already, or the
  // limit is one that is not applied.
  CUresult want(const Driver& driver, ContextGate& gate, uint64_t session, uint32_t context,
                int32_t limit, uint64_t value);
  // Makes the heap that large for wishes to come, before any kernel can have used it. Its default,
  // and so what functions are told, stays what it was.
  CUresult reserve_heap(const Driver& driver, uint64_t bytes);
  // A context of the session ended. Waits when the stack becomes smaller by that.
  void forget(const Driver& driver, ContextGate& gate, uint64_t session, uint32_t context);

 private:
  struct Applied {
    uint64_t initial = 0;
    uint64_t now = 0;
  };
  using Wisher = std::tuple<int32_t, uint64_t, uint32_t>;  // limit, session, context

  CUresult look(const Driver& driver, int32_t limit, Applied** applied);
  uint64_t needed(int32_t limit, uint64_t initial, const Wisher& who, uint64_t value) const;
  uint64_t rest_of_stack(const Applied& applied) const;
  CUresult raise(const Driver& driver, const Wisher& who, uint64_t value);
  CUresult lower_stack(const Driver& driver);

  std::mutex changing_;  // rank 14: held while the driver changes a limit
  std::mutex mutex_;     // rank 15: the members below
  std::map<int32_t, Applied> applied_;
  std::map<Wisher, uint64_t> wishes_;
};

}  // namespace tube::proxy

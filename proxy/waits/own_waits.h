// Calls that natively wait for all work of their program, while a stream of it waits for the
// program: loads of code, the first use of a library's kernel, another stack limit, and first
// launches that hold what is submitted behind them.
//
// In the driver such a call would keep the session's thread there until the stream goes on. But
// what lets it go on may be a record that the session has not executed yet: one that is kept back
// (a value written behind a copy that waits for its link), or one that another thread of the
// program sends. So the record comes again when the streams that waited before it have gone on, and
// the others are executed meanwhile; natively its caller waits as long. Streams that begin to wait
// later do not count, or a program in which some stream always waits would never load. After the
// gate's patience it is made all the same, as beside others' waits (gpu/context_gate.h).
//
// Session thread only. Costs a call a look at the gate's waits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda_api.h"

namespace tube::proxy {

class ContextGate;

class OwnWaits {
 public:
  // `owner`: the client, as the gate knows it. The gate outlives it.
  OwnWaits(ContextGate& gate, uint64_t owner) : gate_(gate), owner_(owner) {}

  // Whether the record, whose call waits for the device's context, is to come again.
  bool stays(uint64_t record, CUdevice device);
  bool any() const { return !calls_.empty(); }
  // Whether one of them may go since the last look.
  bool look();
  // The record was executed for good. Another one may have done meanwhile what its call was to wait
  // for (the first use of the same kernel): then it did not ask again.
  void forget(uint64_t record);
  // The client is gone.
  void clear() { calls_.clear(); }

 private:
  struct Call {
    uint64_t record;
    CUdevice device;
    uint64_t since_ns;
    bool goes = false;
  };

  ContextGate& gate_;
  const uint64_t owner_;
  std::vector<Call> calls_;  // those that come again
};

}  // namespace tube::proxy

// Waits of one client's streams for values that its program has yet to write, and that are not
// submitted for now because too many streams of all functions wait already.
//
// A stream that waits on the GPU stands in one of the hardware queues, which are 32 for all
// functions of a context, and all streams whose work was put into the same queue stand behind it.
// So while the waits of programs take half of the queues, or those of this one an eighth and others
// are there, a further one is kept in the proxy: its stream is held (parked_records.h), its other
// streams and everybody else go on. The session looks at the value itself, and submits the wait
// when it is there or when fewer streams wait.
//
// Of values in memory that this process can read: pinned memory and host functions. A wait for a
// value in device memory is submitted as ever. Session thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda_api.h"
#include "policies/gate_admission.h"
#include "proxy/session/parked_records.h"

namespace tube::proxy {

class ContextGate;
struct StreamState;

class ParkedWaits {
 public:
  // A word of memory that stays readable as long as something waits for it.
  struct Wait {
    const void* word = nullptr;
    uint64_t value = 0;
    uint32_t flags = 0;  // CUstreamWaitValue_flags
    uint32_t bytes = 4;
    bool satisfied() const;
  };

  // `room`: so many waits of programs may be on a GPU at a time. `owner`: the client, as the gate
  // knows it. All outlive it.
  ParkedWaits(ContextGate& gate, ParkedRecords& parked, uint64_t owner, policies::WaitRoom room)
      : gate_(gate), parked_(parked), owner_(owner), room_(room) {}

  // Whether the wait of this record, for a stream that does not capture, is kept back: the record
  // then comes again.
  bool stays(const Wait& wait, const StreamState& stream, CUdevice device, uint64_t record);
  // Whether the record was kept back before. Before stays().
  bool came_before(uint64_t record) const;

  bool any() const { return !holds_.empty(); }
  // Whether one of them may go by now.
  bool look();
  // All of them go, however many wait already: what is kept back behind them has no more room, and
  // may be what their program is waiting to do.
  void give_up();
  // Lets the streams of those go; then their records come again.
  void settle();
  // They came, or will not.
  void settled() { passes_.clear(); }
  // The client is gone.
  void clear();

 private:
  struct Hold {
    Wait wait;
    ParkKeys keys;
    CUdevice device;
    uint64_t record;
    bool goes = false;
  };

  ContextGate& gate_;
  ParkedRecords& parked_;
  const uint64_t owner_;
  const policies::WaitRoom room_;
  std::vector<Hold> holds_;
  std::vector<uint64_t> passes_;  // records that were let go and are about to come
};

}  // namespace tube::proxy

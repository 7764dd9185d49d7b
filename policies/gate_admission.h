// Who may pass the context gate: calls that make the driver wait for a whole context, and streams
// that wait for a value which their program writes later.
//
// A context-wide call beside such a wait stands in the driver until that program goes on, and every
// launch of every other program stands with it (docs/decisions/0009-context-gate.md). So the two
// keep out of each other's way before they reach the driver, and these functions say when:
//
//   a call begins     when no other program's stream waits on its GPUs and no wait is about to be
//                     submitted there; or when its patience is over. A wait older than the patience
//                     is not waited for again. A wait of a program that is stopped is: nothing ends
//                     it, so the call stays out of the driver for `stopped_ns`, in which whoever
//                     owns the gate may end that program.
//   a wait goes out   when no call is in the driver on its GPU. Behind a call that may itself stand
//                     for what other programs do (`bounded`) it stands for its patience only.
//
// A wait of the proxy's own (owner kGateProxy) is for work that has been submitted: it ends by
// itself and is in nobody's way. A program's own waits never hold its own calls up, as natively.
//
// Pure functions over plain values; locks, events and clocks are in proxy/gpu/context_gate.h.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace tube::policies {

inline constexpr uint64_t kGateProxy = 0;  // as an owner: the proxy itself
using GateGpus = uint64_t;                 // a bit for each GPU

// A wait that is in a stream and has not been seen to end.
struct GateWait {
  uint64_t owner = kGateProxy;
  GateGpus gpus = 0;
  uint64_t since_ns = 0;
  bool stopped = false;  // its program is known to be (SIGSTOP): nothing ends the wait
};

// How many waits of programs may stand in the hardware queues of a GPU at a time: of all functions,
// and of one of them that has others beside it.
struct WaitRoom {
  uint32_t all = 16;
  uint32_t one = 4;
};

// What is on its way or inside on one GPU.
struct GateTraffic {
  uint32_t waits_standing = 0;    // behind the calls below
  uint32_t waits_submitting = 0;  // let through, not yet in their streams
  uint32_t calls = 0;             // in the driver
  uint32_t bounded_calls = 0;     // in the driver; waits stand behind these not without end
  uint64_t bounded_since_ns = 0;  // since when there are any
};

struct GateCall {
  uint64_t owner = kGateProxy;
  GateGpus gpus = 0;
  uint64_t since_ns = 0;     // when it came to the gate
  uint64_t patience_ns = 0;  // for programs that run
  uint64_t stopped_ns = 0;   // for one that is stopped
};

enum class GateVerdict : uint32_t { kBegin, kBeginBesideWaits, kStand };
struct GateDecision {
  GateVerdict verdict = GateVerdict::kBegin;
  const GateWait* in_the_way = nullptr;  // the oldest that matters; one of the given
};

// True when the wait matters to the call at all: of another program and on one of its GPUs.
bool gate_wait_matters(const GateCall& call, const GateWait& wait);

// May the call begin? `waits_on_their_way`: some wait on its GPUs stands behind a call, or is let
// through and not yet in its stream. `stopped` of the waits only matters when the answer would be
// kBeginBesideWaits: whoever asks may look which programs are stopped then, and ask again.
GateDecision admit_call(const GateCall& call, std::span<const GateWait> waits,
                        bool waits_on_their_way, uint64_t now_ns);

// The same for what can be left undone: nothing may wait on its GPUs, the caller's own included.
bool admit_call_now(const GateCall& call, std::span<const GateWait> waits, bool waits_on_their_way);

// May a wait on this GPU be submitted? False: it stands, and asks again at `*until_ns` or when a
// call has returned.
bool admit_wait(const GateTraffic& traffic, uint64_t patience_ns, uint64_t* until_ns,
                uint64_t now_ns);

// Whether one more wait of `owner` may go to this GPU. `alone`: no other function is there, so that
// it keeps nobody waiting but itself.
bool wait_has_room(std::span<const GateWait> waits, GateGpus gpu, uint64_t owner, bool alone,
                   WaitRoom room);

// Which stopped programs have been in others' way for too long. One that runs, or is in nobody's
// way, starts anew.
class StoppedLimit {
 public:
  explicit StoppedLimit(uint64_t limit_ns) : limit_ns_(limit_ns) {}
  // `in_the_way`: the programs that are stopped and in somebody's way now. Those that have been so
  // at every look for as long as the limit.
  std::vector<uint64_t> look(const std::set<uint64_t>& in_the_way, uint64_t now_ns);

 private:
  const uint64_t limit_ns_;
  std::map<uint64_t, uint64_t> since_ns_;
};

}  // namespace tube::policies

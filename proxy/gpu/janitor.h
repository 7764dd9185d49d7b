// The thread that gives back to the driver what functions left behind: segments, pinned memory,
// modules.
//
// Giving these back makes the driver wait until the whole context is idle
// (docs/decisions/0009-context-gate.md), which may take as long as some function's work does, or
// never end. So the server, which must answer at all times, never does it: it says that there is
// something to do, and the janitor's work takes it from where it lies. A whole batch is one
// context-wide call (context_gate.h).
//
// Mostly nothing here is urgent, so the janitor has more patience than a function's own calls: it
// does not begin while some stream waits for its program, but looks again, after a second at the
// latest. Where what it gives back runs short (Need) it looks every few milliseconds, so that it
// finds the moments in which nothing waits; and where somebody cannot go on without, it has no more
// patience than a function's own call would.
//
// While streams of a function that is gone still work (a kernel or a wait that never ends:
// stand_behind) it never begins: it might stand in the driver, and everybody with it, for good. In
// the driver it still may stand for as long as a kernel runs. The end of the process asks
// finish().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cuda_api.h"

namespace tube::proxy {

struct Driver;
class Gpus;

class Janitor {
 public:
  enum class State : uint32_t { kIdle, kHeldBack, kWorking };
  // When what is due must be done: when nothing waits, and copies are not in flight; when nothing
  // waits, and such a moment should not be missed; or after the patience of context_gate.h also
  // beside a stream that waits.
  enum class Need : uint32_t { kAnyTime, kSoon, kNow };

  // All on the janitor's thread, with no lock held. What needs a lock that comes before the gate
  // belongs into the first and the last.
  struct Duties {
    std::function<void()> collect;  // takes what is due; often, because the work may not begin then
    std::function<void()>
        work;  // gives it back: inside the gates of all GPUs, in the first one's context
    std::function<void()> told;           // it is done
    std::function<bool()> disturbs = {};  // copies are in flight; without it none are
  };
  // Starts the thread, so that nothing which can fail is left for later.
  Janitor(const Driver& driver, Gpus& gpus, Duties duties);
  // Ends the thread after the batch in hand, however long that takes: finish() first. Before the
  // GPUs close.
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // There is something to do. Any thread; never waits.
  void wake(Need need = Need::kAnyTime);
  // All that is due by now is needed so; nothing, if nothing is due. Any thread; never waits.
  void hurry(Need need);
  // Streams of a function that is gone, whose work may never end: nothing begins before they are
  // idle, and then they are destroyed. Any thread; never waits.
  void stand_behind(const std::vector<CUstream>& streams);
  enum class Refused : uint32_t { kGiveUp, kWaitOn };
  // Has everything done that is due now. False: it cannot begin (kWaitOn: and still could not when
  // the time was over), or is not through after `timeout_ms`; then the destructors of whatever
  // needs the driver may never return, and the process has to end without them.
  bool finish(uint32_t timeout_ms, Refused refused = Refused::kGiveUp);

  State state() const;

 private:
  void run();
  void raise(Need need);
  bool out_of_patience() const;
  bool pass_gate(bool all_the_same);
  bool old_work_goes_on();
  bool stands_back();

  const Driver& driver_;
  Gpus& gpus_;
  const Duties duties_;
  mutable std::mutex mutex_;  // rank 17: the members below. Nothing is called under it but
                              // cuStreamQuery and cuStreamDestroy, which never wait.
  std::condition_variable changed_;
  std::vector<CUstream> old_streams_;
  // Wishes are counted: up to which one all was done, and up to which one the work could not begin.
  uint64_t asked_ = 0;
  uint64_t done_ = 0;
  uint64_t refused_ = 0;
  Need need_ = Need::kAnyTime;
  uint64_t needed_ = 0;     // up to which wish
  uint64_t needed_ns_ = 0;  // kNow: since when
  bool working_ = false;
  bool stop_ = false;
  uint64_t stands_back_ns_ = 0;  // the thread's: since when; 0: it does not
  std::thread thread_;           // last: it uses all of them
};

}  // namespace tube::proxy

// How late a thread's timers may fire.
#pragma once

#include <sys/prctl.h>

namespace tube {

// 50 us by default, more than our shortest nap. Narrowed to one while the calling thread has this,
// and given back, because in a function's process the slack is the program's.
class NarrowTimerSlack {
 public:
  NarrowTimerSlack() : before_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1000UL); }
  ~NarrowTimerSlack() {
    if (before_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_));
  }
  NarrowTimerSlack(const NarrowTimerSlack&) = delete;
  NarrowTimerSlack& operator=(const NarrowTimerSlack&) = delete;

 private:
  int before_;
};

}  // namespace tube

// Says in the log which calls of the driver took long, and which thread made them: the driver has
// locks that all threads of the proxy share, so one slow call is another function's wait.
#pragma once

#include <cstdint>

namespace tube::proxy {

struct Driver;

// Puts a clock around every entry of the table. A call that takes `least_us` or longer is a line of
// the log: its name, its microseconds, when it ended (base/clock.h) and the thread's name. Once for
// a process, right after the table was filled and before the gate wraps it, so that what is
// measured is the driver alone. Two readings of the clock for each call.
void watch_slow_calls(Driver& table, uint64_t least_us);

}  // namespace tube::proxy

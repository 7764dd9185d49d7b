// What tubed does for itself at its start, because it holds everybody's GPU memory: it is the last
// one that the kernel should end, and the first one that must find a descriptor or a place for a
// log line.
#pragma once

#include <string>

namespace tube::proxy {

// Descriptors up to the hard limit, a lower oom_score_adj where the process may (CAP_SYS_RESOURCE),
// SIGBUS not blocked, SIGXFSZ and SIGXCPU ignored. Before other threads.
void defend_process();
// Bounds the log in what it says, in size and in time (base/log_limits.h). `folder` is the runtime
// folder, whose log files are the proxy's to begin anew. Before other threads.
void defend_log(const std::string& folder);
// Says in the log what of the machine's and the container's limits is narrower than it should be.
void say_limits();

}  // namespace tube::proxy

// Timestamps before log lines, for a daemon whose log is a file that is read later.
#pragma once

namespace tube {

// From now on each line of log.h begins with the time, `2026-11-24T23:25:01.123Z `. Programs whose
// standard error is a person's do without. Call before any thread is started.
void stamp_log_lines();

}  // namespace tube

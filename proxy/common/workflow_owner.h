// Which process is the proxy of a workflow: the one that holds the lock of WORKFLOW.owner in the
// runtime folder, from before it opens the GPUs until its process has ended. The sockets' names
// are that process's alone to make, to take over from a dead proxy and to take away.
//
// The kernel drops the lock with the process, so a proxy may die at any instruction. The file
// stays: taking it away would let two processes hold the locks of two files of one name.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace tube::proxy {

// The lock, held until the descriptor and its copies are closed. Waits while another process holds
// it and does not serve: it is starting, or ending. An error when that one serves (EADDRINUSE), has
// done neither after `patience_ms`, or when this process is told to end meanwhile by a signal that
// is blocked (SIGTERM, SIGINT, SIGHUP).
Result<UniqueFd> own_workflow(const std::string& runtime_dir, const std::string& workflow,
                              uint32_t patience_ms);

}  // namespace tube::proxy

// Starts a proxy in the background, once, however many ask at the same time.
//
// Who wants to start the proxy of a workflow takes an exclusive flock on <dir>/<workflow>.lock,
// looks again whether one answers, and only then starts it; the lock is held until the proxy
// accepts, so everyone else finds it running. The proxy gets its own session (setsid), /dev/null as
// input and <dir>/<workflow>.log as output, and says on a pipe when it accepts.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/result.h"
#include "tools/tubectl/layout.h"

namespace tube::ctl {

struct ProxyOptions {
  std::string workflow;
  std::string gpus;              // "0,1"; empty: the proxy's own default
  std::string backend = "auto";  // auto | driver | sim
  std::string copy_policy;       // empty: the proxy's own default
  std::string memory;            // of all functions together, and of each; empty: no limit
  std::string function_memory;
  size_t weight = 0;        // of its share of the GPUs' time; 0: the proxy's own default
  bool slices = false;      // GPUs are split at the start
  size_t hang_timeout = 0;  // seconds; 0: the proxy's own default
  std::string on_fault;     // wait | end; empty: the proxy's own default
  std::string profile;      // a folder: the proxy profiles its functions' memory (cmd_profile.cc)
  std::string share_store;  // prefixes of names, or all; empty: nothing is shared
  bool verify_shared = false;
};

struct Started {
  bool already_running = false;
  pid_t pid = 0;
  std::string version;  // of the proxy
  std::string backend;  // driver | sim
  std::string log_path;
};

// The proxy that runs. An error when it is of another version than this program, or has other
// settings than `options` ask for; error code ENOENT when none runs.
Result<Started> find_proxy(const ProxyOptions& options);
// The same, after starting one where none runs. Blocks
// until the proxy accepts (loading a driver and making contexts takes a second or two), at
// most two minutes.
Result<Started> ensure_proxy(const ProxyOptions& options, const Layout& layout);

}  // namespace tube::ctl

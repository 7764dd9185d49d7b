// Starts a proxy outside of what its first program was given: it serves all later ones, too.
//
// Where a program stands (its session, terminal, folder) and what was narrowed for it (soft limits,
// cores, signals, variables) is left behind. What only root could leave is not: hard limits, the
// control group, a raised oom_score_adj, namespaces, seccomp. These are named.
#pragma once

#include <string>
#include <vector>

namespace tube::ctl {

// In the child that becomes the proxy: raises soft limits to hard ones, runs on all cores, with the
// default signals and none blocked, with the environment that a proxy needs and no more. Never
// fails.
void leave_limits_behind();
// What of this process's limits the proxy keeps although it is narrow, in words.
std::vector<std::string> limits_that_stay();

}  // namespace tube::ctl

// Putting the hook under a program, and becoming it: what `run` and `profile` have in common.
#pragma once

#include <string>
#include <vector>

namespace tube::ctl {

struct UnderHook {
  std::string workflow;
  std::string function;  // its name; empty: the program's file name
  std::string hook_lib;  // as the loader takes it (preload_path)
};

// Sets this process's environment.
void put_hook_under(const UnderHook& what);
// Returns only when the program cannot be executed, which is said: an exit code.
int become(std::vector<std::string>& words);

}  // namespace tube::ctl

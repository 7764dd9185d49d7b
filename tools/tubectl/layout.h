// Where the other pieces of Tube are: the hook, the simulated GPU and the proxy's program.
//
// tubectl knows two layouts relative to its own file, the installed one (bin/ beside lib/tube/) and
// the build tree's, and takes TUBE_HOOK_LIB, TUBE_SIM_LIB and TUBE_TUBED before both.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tube::ctl {

struct Layout {
  std::string hook_lib;  // .../libcuda.so.1 of the hook; the three are empty when not found
  std::string sim_lib;
  std::string tubed;
};

Layout find_layout();

// The same file by a path that LD_PRELOAD can hold, which takes a space, a colon or a semicolon for
// the end of a path: then by a link in the runtime folder, which is made now.
Result<std::string> preload_path(const std::string& hook_lib);

// The folder part of a path ("." when it has none).
std::string folder_of(const std::string& path);

}  // namespace tube::ctl

#include "tools/tubectl/program.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/driver_file.h"
#include "tools/tubectl/layout.h"
#include "tools/tubectl/verbs.h"

namespace tube::ctl {
namespace {

void prepend(const char* variable, const std::string& entry) {
  const char* old = getenv(variable);
  std::string value = old != nullptr && *old != '\0' ? entry + ":" + old : entry;
  setenv(variable, value.c_str(), 1);
}

// Behind what the user preloads, whose functions come first with the driver, too;
// AddressSanitizer's library must. Not behind another hook.
void preload(const std::string& hook) {
  const char* old = getenv("LD_PRELOAD");
  std::string value;
  std::istringstream rest(old != nullptr ? old : "");
  for (std::string word; std::getline(rest, word, ':');) {
    std::istringstream entries(word);
    for (std::string entry; entries >> entry;)
      if (!entry.ends_with("/libcuda.so.1")) value += entry + ":";
  }
  setenv("LD_PRELOAD", (value + hook).c_str(), 1);
}

}  // namespace

void put_hook_under(const UnderHook& what) {
  if (const DriverSearch driver = search_driver(); !driver.found.empty())
    setenv("TUBE_REAL_DRIVER", driver.found.front().c_str(), 1);
  preload(what.hook_lib);
  prepend("LD_LIBRARY_PATH", folder_of(what.hook_lib));
  setenv("TUBE_WORKFLOW", what.workflow.c_str(), 1);
  if (!what.function.empty()) setenv("TUBE_FUNCTION", what.function.c_str(), 1);
  setenv("TUBE_PREINIT", "1", 1);
}

int become(std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  int error_number = errno;
  fmt::print(stderr, "tubectl: cannot run {}: {}\n", words[0], strerror(error_number));
  return error_number == ENOENT ? kExitNotFound : kExitCannotExec;
}

}  // namespace tube::ctl

#include "tools/tubectl/layout.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <functional>
#include <memory>

#include "base/runtime_dir.h"

namespace tube::ctl {
namespace {

std::string own_path() {
  char buffer[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", buffer, sizeof buffer);
  return length > 0 ? std::string(buffer, static_cast<size_t>(length)) : std::string();
}

std::string resolved(const std::string& path) {
  std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  return real ? real.get() : std::string();
}

std::string first_existing(const char* variable, std::initializer_list<std::string> candidates) {
  const char* override_path = getenv(variable);
  if (override_path != nullptr && *override_path != '\0') return override_path;
  for (const std::string& candidate : candidates) {
    if (std::string real = resolved(candidate); !real.empty()) return real;
  }
  return {};
}

bool can_be_preloaded(const std::string& path) {
  return path.find_first_of(" \t\n:;$") == path.npos;
}

// Makes `link` point to `folder`, whatever was there; one rename, so that nobody finds nothing.
Status point_link(const std::string& link, const std::string& folder) {
  char now[PATH_MAX];
  const ssize_t length = readlink(link.c_str(), now, sizeof now);
  if (length > 0 && folder == std::string(now, static_cast<size_t>(length))) return {};
  const std::string fresh = link + "." + std::to_string(getpid());
  if (symlink(folder.c_str(), fresh.c_str()) != 0) return errno_error(errno, fresh);
  if (rename(fresh.c_str(), link.c_str()) != 0) return errno_error(errno, link);
  return {};
}

}  // namespace

Result<std::string> preload_path(const std::string& hook_lib) {
  if (can_be_preloaded(hook_lib)) return hook_lib;
  Result<std::string> folder = make_runtime_dir();
  if (!folder.ok()) return folder.error();
  if (!can_be_preloaded(*folder))
    return errorf(
        "the dynamic loader takes no path with a space or a colon, and both %s and the runtime "
        "folder "
        "%s have one: set TUBE_DIR to another folder",
        hook_lib.c_str(), folder->c_str());
  const std::string real = folder_of(hook_lib);
  char name[32];
  snprintf(name, sizeof name, "hook-%016zx", std::hash<std::string>{}(real));
  const std::string link = *folder + "/" + name;
  if (Status made = point_link(link, real); !made.ok()) return made.error();
  return link + hook_lib.substr(real.size());
}

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Layout find_layout() {
  std::string bin = folder_of(own_path());
  std::string installed = bin + "/../lib/tube", build = bin + "/../..";
  Layout layout;
  layout.hook_lib = first_existing(
      "TUBE_HOOK_LIB", {installed + "/hook/libcuda.so.1", build + "/hook/lib/libcuda.so.1"});
  layout.sim_lib = first_existing(
      "TUBE_SIM_LIB", {installed + "/sim/libcuda.so.1", build + "/sim/lib/libcuda.so.1"});
  layout.tubed = first_existing("TUBE_TUBED", {bin + "/tubed", build + "/proxy/tubed"});
  return layout;
}

}  // namespace tube::ctl

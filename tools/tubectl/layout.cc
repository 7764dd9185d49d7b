#include "tools/tubectl/layout.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>

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

}  // namespace

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

#include "tools/tubectl/layout.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tube::ctl {
namespace {

// Folders where drivers are mounted or installed without being in the loader's cache.
constexpr const char* kDriverFolders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64",
                                          "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"};

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

std::vector<std::string> split_path_list(const char* list) {
  std::vector<std::string> parts;
  for (const char* at = list; at != nullptr && *at != '\0';) {
    const char* colon = strchrnul(at, ':');
    if (colon != at) parts.emplace_back(at, static_cast<size_t>(colon - at));
    at = *colon == ':' ? colon + 1 : colon;
  }
  return parts;
}

// libcuda.so.1 as /etc/ld.so.cache has it. The cache's format is the loader's own affair, so its own tool reads it.
std::vector<std::string> loader_cache() {
  std::vector<std::string> paths;
  for (const char* tool : {"/sbin/ldconfig", "/usr/sbin/ldconfig"}) {
    if (access(tool, X_OK) != 0) continue;
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((std::string(tool) + " -p 2>/dev/null").c_str(), "re"), &pclose);
    char line[1024];
    while (pipe && fgets(line, sizeof line, pipe.get()) != nullptr) {
      const char* arrow = strstr(line, "=> ");
      if (strstr(line, "libcuda.so.1 ") == nullptr || arrow == nullptr) continue;
      paths.emplace_back(arrow + 3, strcspn(arrow + 3, "\n"));
    }
    break;
  }
  return paths;
}

// Tube's own libraries carry the driver's SONAME, and so may another build's; the folder tells (proxy/backend.cc agrees).
// The toolkit's stub is no driver either.
bool is_no_driver(const std::string& real, const Layout& layout) {
  if (real == resolved(layout.hook_lib) || real == resolved(layout.sim_lib)) return true;
  return real.find("/hook/") != real.npos || real.find("/sim/") != real.npos || real.find("/stubs/") != real.npos;
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
  layout.hook_lib = first_existing("TUBE_HOOK_LIB", {installed + "/hook/libcuda.so.1", build + "/hook/lib/libcuda.so.1"});
  layout.sim_lib = first_existing("TUBE_SIM_LIB", {installed + "/sim/libcuda.so.1", build + "/sim/lib/libcuda.so.1"});
  layout.tubed = first_existing("TUBE_TUBED", {bin + "/tubed", build + "/proxy/tubed"});
  return layout;
}

DriverSearch find_real_driver(const Layout& layout) {
  std::vector<std::string> candidates;
  if (const char* given = getenv("TUBE_REAL_DRIVER"); given != nullptr && *given != '\0') candidates.emplace_back(given);
  for (const std::string& folder : split_path_list(getenv("LD_LIBRARY_PATH"))) candidates.push_back(folder + "/libcuda.so.1");
  for (std::string& path : loader_cache()) candidates.push_back(std::move(path));
  for (const char* folder : kDriverFolders) candidates.push_back(std::string(folder) + "/libcuda.so.1");
  DriverSearch search;
  for (const std::string& candidate : candidates) {
    std::string real = resolved(candidate);
    if (!real.empty() && is_no_driver(real, layout)) continue;
    search.looked_in.push_back(candidate);
    if (real.empty()) continue;
    search.path = candidate;
    return search;
  }
  return search;
}

}  // namespace tube::ctl

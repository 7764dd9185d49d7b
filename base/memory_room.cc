#include "base/memory_room.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/unique_fd.h"

namespace tube {
namespace {

std::string read_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char piece[4096];
  for (ssize_t got; fd.valid() && (got = ::read(fd.get(), piece, sizeof(piece))) > 0;)
    text.append(piece, static_cast<size_t>(got));
  return text;
}

// UINT64_MAX: it is not there, or "max".
uint64_t number_in(const std::string& path) {
  const std::string text = read_file(path);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? number : UINT64_MAX;
}

// What a version of control groups calls things.
struct Names {
  const char *root, *limit, *used, *reclaimable;
};
constexpr Names kV2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr Names kV1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                    "total_inactive_file"};

// The group's path in its line of /proc/self/cgroup; of v2 the number is 0 and the list is empty.
bool path_in(const std::string& groups, bool v2, std::string* path) {
  for (size_t at = 0; at < groups.size();) {
    size_t end = groups.find('\n', at);
    if (end == std::string::npos) end = groups.size();
    const std::string_view line(groups.data() + at, end - at);
    const size_t list = line.find(':'), name = line.find(':', list + 1);
    at = end + 1;
    if (name == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(list + 1, name - list - 1);
    if (v2 ? !controllers.empty() : controllers != "memory") continue;
    *path = line.substr(name + 1);
    return true;
  }
  return false;
}

// Every group from the process's own to the root, as a folder. Inside a container the path is
// relative to what is mounted, so that some are not there; the root is visited without any path.
template <class Visit>
void each_group(const Visit& visit) {
  const std::string groups = read_file("/proc/self/cgroup");
  for (const bool v2 : {true, false}) {
    const Names& names = v2 ? kV2 : kV1;
    std::string path;
    (void)path_in(groups, v2, &path);
    while (path.size() > 1) {
      visit(names, names.root + path);
      path.resize(path.rfind('/'));
    }
    visit(names, std::string(names.root));
  }
}

constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // v1 writes a number near 2^63 for none

}  // namespace

uint64_t bytes_of_line(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string_view::npos) end = text.size();
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.empty() || (line.front() != ' ' && line.front() != ':')) continue;
    const size_t digit = line.find_first_of("0123456789");
    uint64_t number = 0;
    if (digit == std::string_view::npos ||
        std::from_chars(line.data() + digit, line.data() + line.size(), number).ec != std::errc())
      continue;
    return line.ends_with("kB") ? number << 10 : number;
  }
  return 0;
}

uint64_t available_memory_bytes() {
  uint64_t least = UINT64_MAX;
  if (const uint64_t left = bytes_of_line(read_file("/proc/meminfo"), "MemAvailable")) least = left;
  each_group([&least](const Names& names, const std::string& folder) {
    const uint64_t limit = number_in(folder + names.limit);
    const uint64_t used = limit < kNoLimit ? number_in(folder + names.used) : UINT64_MAX;
    if (used == UINT64_MAX) return;
    uint64_t left = limit - std::min(limit, used);
    if (left >= least) return;
    left += bytes_of_line(read_file(folder + "/memory.stat"), names.reclaimable);
    least = std::min(least, left);
  });
  return least;
}

GroupLimit memory_group_limit() {
  GroupLimit narrowest;
  each_group([&narrowest](const Names& names, const std::string& folder) {
    const uint64_t limit = number_in(folder + names.limit);
    if (limit < kNoLimit && limit < narrowest.bytes) narrowest = {limit, folder};
  });
  return narrowest;
}

}  // namespace tube

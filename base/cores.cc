#include "base/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/memory_room.h"
#include "base/unique_fd.h"

namespace tube {
namespace {

std::string read_small(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t got = fd.valid() ? read(fd.get(), text, sizeof text) : -1;
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : std::string();
}

bool take_number(std::string_view* text, uint64_t* number) {
  while (!text->empty() && (text->front() == ' ' || text->front() == '\n')) text->remove_prefix(1);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

// The narrowest of a group and every group above it. Inside a container the path is relative to
// what is mounted.
template <class Quota>
void take_narrowest(std::string path, uint32_t* least, Quota quota) {
  while (true) {
    while (path.ends_with('/')) path.pop_back();
    if (const uint32_t own = thousandths_of_quota(quota(path)); own != 0)
      *least = std::min(*least, own);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

uint32_t quota_of_groups(const std::string& groups) {
  uint32_t least = UINT32_MAX;
  take_narrowest(group_path(groups, ""), &least, [](const std::string& path) {
    return read_small("/sys/fs/cgroup" + path + "/cpu.max");
  });
  // v1 has the two numbers in two files; -1 is no limit.
  take_narrowest(group_path(groups, "cpu"), &least, [](const std::string& path) {
    const std::string folder = "/sys/fs/cgroup/cpu" + path;
    const std::string quota = read_small(folder + "/cpu.cfs_quota_us");
    return quota.empty() || quota[0] == '-'
               ? std::string()
               : quota + " " + read_small(folder + "/cpu.cfs_period_us");
  });
  return least;
}

}  // namespace

uint32_t thousandths_of_quota(std::string_view cpu_max) {
  uint64_t quota = 0, period = 0;
  if (!take_number(&cpu_max, &quota) || !take_number(&cpu_max, &period) || quota == 0 ||
      period == 0)
    return 0;
  quota = std::min<uint64_t>(quota, UINT64_MAX / 2000) * 1000;
  return static_cast<uint32_t>(
      std::min<uint64_t>(quota / period + (quota % period != 0 ? 1 : 0), UINT32_MAX));
}

// Lines "number:controllers,of,it:path"; of v2 the list is empty.
std::string group_path(std::string_view groups, std::string_view controller) {
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(line.size() + 1, groups.size()));
    const size_t list = line.find(':'), path = line.find(':', list + 1);
    if (list == std::string_view::npos || path == std::string_view::npos) continue;
    const std::string names = "," + std::string(line.substr(list + 1, path - list - 1)) + ",";
    if (names.find("," + std::string(controller) + ",") != std::string::npos)
      return std::string(line.substr(path + 1));
  }
  return "/";
}

uint32_t runnable_of_loadavg(std::string_view loadavg) {
  for (int field = 0; field < 3; ++field) {
    const size_t space = loadavg.find(' ');
    if (space == std::string_view::npos) return 0;
    loadavg.remove_prefix(space + 1);
  }
  uint64_t count = 0;
  if (!take_number(&loadavg, &count) || loadavg.empty() || loadavg.front() != '/') return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
}

uint32_t runnable_threads() {
  const UniqueFd fd(open("/proc/loadavg", O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t got = fd.valid() ? read(fd.get(), text, sizeof text) : -1;
  return got > 0 ? runnable_of_loadavg({text, static_cast<size_t>(got)}) : 0;
}

uint32_t machine_cores() {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<uint32_t>(online) : 1;
}

uint64_t machine_memory_bytes() {
  const auto pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
}

uint64_t usable_memory_bytes() {
  return std::min(machine_memory_bytes(), memory_group_limit().bytes);
}

uint32_t affinity_cores() {
  // Larger than any mask of a kernel: the call refuses masks that are too small.
  constexpr int kMost = 8192;
  cpu_set_t* set = CPU_ALLOC(kMost);
  if (set == nullptr) return 1;
  const size_t bytes = CPU_ALLOC_SIZE(kMost);
  const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 1;
  CPU_FREE(set);
  return static_cast<uint32_t>(std::max(count, 1));
}

uint32_t quota_cores() {
  const uint32_t quota = quota_of_groups(read_small("/proc/self/cgroup"));
  return quota == UINT32_MAX ? quota : quota / 1000 + (quota % 1000 != 0 ? 1 : 0);
}

uint32_t quota_of_process(int pid) {
  return quota_of_groups(read_small("/proc/" + std::to_string(pid) + "/cgroup"));
}

uint32_t usable_cores() { return std::min(affinity_cores(), quota_cores()); }

}  // namespace tube

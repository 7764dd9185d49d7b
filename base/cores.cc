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

void take_smaller(uint32_t* least, uint32_t cores) {
  if (cores != 0) *least = std::min(*least, cores);
}

bool take_number(std::string_view* text, uint64_t* number) {
  while (!text->empty() && (text->front() == ' ' || text->front() == '\n')) text->remove_prefix(1);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

}  // namespace

uint32_t cores_of_quota(std::string_view cpu_max) {
  uint64_t quota = 0, period = 0;
  if (!take_number(&cpu_max, &quota) || !take_number(&cpu_max, &period) || quota == 0 ||
      period == 0)
    return 0;
  return static_cast<uint32_t>(std::min<uint64_t>((quota + period - 1) / period, UINT32_MAX));
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

// The process's own group of cgroup v2 and every group above it. Inside a container the path is
// relative to what is mounted.
uint32_t quota_cores() {
  uint32_t least = UINT32_MAX;
  const std::string groups = read_small("/proc/self/cgroup");
  std::string path;
  if (const size_t at = groups.find("0::"); at != std::string::npos)
    path = groups.substr(at + 3, groups.find('\n', at) - at - 3);
  while (path.size() > 1) {
    take_smaller(&least, cores_of_quota(read_small("/sys/fs/cgroup" + path + "/cpu.max")));
    path.resize(path.rfind('/'));
  }
  take_smaller(&least, cores_of_quota(read_small("/sys/fs/cgroup/cpu.max")));
  // v1 has the two numbers in two files; -1 is no limit.
  const std::string quota = read_small("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  if (!quota.empty() && quota[0] != '-')
    take_smaller(&least,
                 cores_of_quota(quota + " " + read_small("/sys/fs/cgroup/cpu/cpu.cfs_period_us")));
  return least;
}

uint32_t usable_cores() { return std::min(affinity_cores(), quota_cores()); }

}  // namespace tube

#include "proxy/common/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>

namespace tube::proxy {

namespace {

constexpr uint32_t kHeadroom = 64;

uint64_t entries_of(const char* path) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

rlimit limits_now() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = limit.rlim_max = 1024;
  return limit;
}

}  // namespace

void raise_descriptor_limit() {
  rlimit limit = limits_now();
  if (limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // at worst it stays as it is
}

uint32_t descriptor_limit() {
  constexpr rlim_t kMost = 1u << 30;
  return static_cast<uint32_t>(std::min(limits_now().rlim_cur, kMost));
}

uint32_t descriptor_headroom() { return std::min(kHeadroom, descriptor_limit() / 4); }

// Without the folder's own.
uint64_t open_descriptors() {
  const uint64_t entries = entries_of("/proc/self/fd");
  return entries - (entries != 0 ? 1 : 0);
}

uint64_t running_threads() { return entries_of("/proc/self/task"); }

bool is_scarce(int fd) {
  return fd >= 0 && static_cast<uint32_t>(fd) >= descriptor_limit() - descriptor_headroom();
}

}  // namespace tube::proxy

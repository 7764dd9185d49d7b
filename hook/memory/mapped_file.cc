// The file behind a shared mapping.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "hook/memory/mappings.h"

namespace tube::hook {
namespace {

// Some file systems show another device number in the list than stat() does: the path then decides.
bool is_file(int fd, const MappedArea& area, const char* link) {
  struct stat s;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_ino != area.inode) return false;
  if (s.st_dev == area.device) return true;
  char path[4096];
  const ssize_t n = readlink(link, path, sizeof path - 1);
  return n > 0 && area.path == std::string(path, static_cast<size_t>(n));
}

bool allows(int fd, bool writable) {
  const int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
  return mode == O_RDWR || (!writable && mode == O_RDONLY);
}

UniqueFd among_open_files(const MappedArea& area, bool writable) {
  DIR* directory = opendir("/proc/thread-self/fd");
  if (directory == nullptr) return UniqueFd();
  UniqueFd found;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const long fd = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || fd == dirfd(directory)) continue;
    char link[64];
    std::snprintf(link, sizeof link, "/proc/thread-self/fd/%ld", fd);
    if (!is_file(static_cast<int>(fd), area, link) || !allows(static_cast<int>(fd), writable))
      continue;
    found.reset(fcntl(static_cast<int>(fd), F_DUPFD_CLOEXEC, 40));
    if (found.valid()) break;
  }
  closedir(directory);
  return found;
}

UniqueFd by_path(const char* path, const MappedArea& area, bool writable) {
  UniqueFd fd(open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid() && !is_file(fd.get(), area, path)) fd.reset();
  return fd;
}

}  // namespace

UniqueFd file_of(const MappedArea& area, bool writable) {
  if (UniqueFd open_one = among_open_files(area, writable); open_one.valid()) return open_one;
  constexpr char kDeleted[] = " (deleted)";
  const bool deleted =
      area.path.size() > sizeof kDeleted &&
      area.path.compare(area.path.size() - (sizeof kDeleted - 1), std::string::npos, kDeleted) == 0;
  if (!area.path.empty() && area.path[0] == '/' && !deleted) {
    if (UniqueFd named = by_path(area.path.c_str(), area, writable); named.valid()) return named;
  }
  char link[80];
  std::snprintf(link, sizeof link, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, area.whole_begin,
                area.whole_end);
  return by_path(link, area, writable);
}

}  // namespace tube::hook
